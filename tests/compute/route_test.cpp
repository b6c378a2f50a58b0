#include <algorithm>
#include <set>

#include "base/error.h"
#include "compute_fixture.h"

namespace moetier {
namespace {

using namespace testing_compute;

struct Routed {
  Ints ids;
  Floats weights;
};

Routed route(Rig& rig, int64_t experts, const Floats& logits, const Floats& bias, const RouteParams& params) {
  const int64_t n = static_cast<int64_t>(logits.size()) / experts;
  const Tensor ids = rig.ints({params.top_k, n, 1, 1}, Ints(static_cast<size_t>(params.top_k * n), -7));
  const Tensor weights = rig.floats({params.top_k, n, 1, 1});
  rig->route(rig.floats({experts, n, 1, 1}, logits), bias.empty() ? Tensor{} : rig.floats({experts, 1, 1, 1}, bias),
             params, ids, weights);
  return {rig.read_ints(ids), rig.read(weights)};
}

Routed route_everywhere(int64_t experts, const Floats& logits, const Floats& bias, const RouteParams& params) {
  Routed first;
  const Floats packed = same_everywhere([&](Rig& rig) {
    const Routed r = route(rig, experts, logits, bias, params);
    if (first.ids.empty()) first = r;
    Floats all = r.weights;
    for (const int32_t id : r.ids) all.push_back(static_cast<float>(id));
    return all;
  });
  EXPECT_EQ(packed.size(), first.ids.size() * 2);
  return first;
}

RouteParams params_of(int k, Gating gating, bool normalize = false, float scale = 1.0f) {
  RouteParams params;
  params.top_k = k;
  params.gating = gating;
  params.normalize = normalize;
  params.scale = scale;
  return params;
}

/// All steps in float64, selection by a stable sort.
void expect_close(int64_t experts, const Floats& logits, const Floats& bias, const RouteParams& params) {
  const Routed got = route_everywhere(experts, logits, bias, params);
  const int64_t k = params.top_k;
  for (int64_t r = 0; r < static_cast<int64_t>(logits.size()) / experts; ++r) {
    std::vector<double> x(logits.begin() + r * experts, logits.begin() + (r + 1) * experts), p(x.size());
    const double m = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const double l : x) sum += std::exp(l - m);
    for (size_t e = 0; e < x.size(); ++e) {
      p[e] = params.gating == Gating::softmax         ? std::exp(x[e] - m) / sum
             : params.gating == Gating::sigmoid       ? 1 / (1 + std::exp(-x[e]))
             : params.gating == Gating::sqrt_softplus ? std::sqrt(std::log1p(std::exp(x[e])))
                                                      : x[e];
    }
    std::vector<double> score = p;
    for (size_t e = 0; e < bias.size(); ++e) score[e] += bias[e];
    std::vector<int32_t> order(x.size());
    for (size_t e = 0; e < order.size(); ++e) order[e] = static_cast<int32_t>(e);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return score[a] > score[b]; });
    std::vector<double> w(static_cast<size_t>(k));
    double total = 0;
    for (int64_t i = 0; i < k; ++i) {
      ASSERT_EQ(got.ids[r * k + i], order[i]) << "row " << r << " rank " << i;
      w[i] = params.gating == Gating::softmax_of_picks ? std::exp(p[order[i]] - p[order[0]]) : p[order[i]];
      total += w[i];
    }
    for (int64_t i = 0; i < k; ++i) {
      if (params.gating == Gating::softmax_of_picks || params.normalize) w[i] /= total;
      ASSERT_NEAR(got.weights[r * k + i], w[i] * params.scale, 2e-6 * std::abs(w[i] * params.scale) + 1e-12);
    }
  }
}

TEST(Route, CloseToFloat64) {
  for (const int64_t experts : {1, 3, 7, 16, 60, 128, 1024}) {
    const Floats logits = noise(static_cast<size_t>(experts * 5), static_cast<unsigned>(experts), 3.0f);
    for (const int64_t k : {int64_t{1}, std::min<int64_t>(8, experts), experts}) {
      for (const Gating gating : {Gating::softmax, Gating::sigmoid, Gating::softmax_of_picks, Gating::sqrt_softplus}) {
        expect_close(experts, logits, {}, params_of(static_cast<int>(k), gating));
        expect_close(experts, logits, {}, params_of(static_cast<int>(k), gating, true, 2.5f));
      }
    }
  }
}

TEST(Route, ManyRowsOverThreads) {
  expect_close(128, noise(128 * 300, 9, 2.0f), {}, params_of(8, Gating::softmax, true));
}

TEST(Route, BiasChoosesButDoesNotWeigh) {
  const Floats logits = noise(64 * 4, 1, 2.0f), bias = noise(64, 2);
  expect_close(64, logits, bias, params_of(6, Gating::sigmoid, true, 1.5f));
  Rig rig;
  const Routed got = route(rig, 4, {0, 0, 0, 2}, {0, 5, 0, 0}, params_of(2, Gating::sigmoid));
  EXPECT_EQ(got.ids, (Ints{1, 3}));
  EXPECT_NEAR(got.weights[0], 0.5, 1e-6);
  EXPECT_NEAR(got.weights[1], 0.880797, 1e-6);
}

TEST(Route, TiesGoToTheLowerId) {
  Rig rig;
  const Routed all = route(rig, 6, Floats(6, 1.0f), {}, params_of(4, Gating::softmax));
  EXPECT_EQ(all.ids, (Ints{0, 1, 2, 3}));
  const Routed some = route(rig, 6, {1, 3, 2, 3, 2, 3}, {}, params_of(5, Gating::softmax_of_picks));
  EXPECT_EQ(some.ids, (Ints{1, 3, 5, 2, 4}));
}

TEST(Route, GroupsByHand) {
  Rig rig;
  RouteParams params = params_of(3, Gating::softmax_of_picks);
  params.groups = 4;
  params.groups_used = 2;
  // Sums of the two best: 9 + 0, 5 + 5, 6 + 3, 4 + 4: groups 1 and (equal sums) 0 win; 6 of group 2 may not be picked.
  const Routed got = route(rig, 12, {9, 0, -1, 5, 5, 1, 6, 3, 0, 4, 4, 4}, {}, params);
  EXPECT_EQ(got.ids, (Ints{0, 3, 4}));
  params.groups_used = 3;
  EXPECT_EQ(route(rig, 12, {9, 0, -1, 5, 5, 1, 6, 3, 0, 4, 4, 4}, {}, params).ids, (Ints{0, 6, 3}));
  params.groups = 12;  // groups of one expert count it alone
  EXPECT_EQ(route(rig, 12, {9, 0, -1, 5, 5, 1, 6, 3, 0, 4, 4, 4}, {}, params).ids, (Ints{0, 6, 3}));
}

TEST(Route, SmallSumsAreDividedByTheFloor) {
  Rig rig;
  const Routed got = route(rig, 2, {-20.0f, -21.0f}, {}, params_of(2, Gating::sigmoid, true));
  EXPECT_NEAR(got.weights[0], std::exp(-20.0) / 6.103515625e-05, 1e-9);
}

void expect_valid(const Routed& got, int64_t experts, int k) {
  for (size_t r = 0; r * static_cast<size_t>(k) < got.ids.size(); ++r) {
    std::set<int32_t> seen;
    for (int i = 0; i < k; ++i) {
      const int32_t id = got.ids[r * static_cast<size_t>(k) + static_cast<size_t>(i)];
      EXPECT_GE(id, 0);
      EXPECT_LT(id, experts);
      EXPECT_TRUE(seen.insert(id).second) << "expert " << id << " twice";
    }
  }
}

TEST(Route, OddLogitsStillGiveDistinctExperts) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Floats rows = {nan,  nan,  nan,  nan,  nan,  nan,  nan,  nan,   //
                       1,    nan,  2,    nan,  3,    nan,  4,    nan,   //
                       inf,  inf,  -inf, nan,  -inf, -inf, inf,  -inf,  //
                       -inf, -inf, -inf, -inf, -inf, -inf, -inf, -inf};
  for (const Gating gating : {Gating::softmax, Gating::sigmoid, Gating::softmax_of_picks, Gating::sqrt_softplus}) {
    for (const int groups : {1, 4}) {
      RouteParams params = params_of(groups == 1 ? 8 : 4, gating, true);
      params.groups = groups;
      params.groups_used = groups == 1 ? 1 : 2;
      const Routed got = route_everywhere(8, rows, {}, params);
      expect_valid(got, 8, params.top_k);
      if (groups == 1) {
        const Ints second(got.ids.begin() + 8, got.ids.begin() + 16);
        EXPECT_EQ(second, (Ints{6, 4, 2, 0, 1, 3, 5, 7})) << "numbers before NaNs, NaNs in ascending id";
      }
    }
  }
}

TEST(Route, WrongParametersAreErrors) {
  Rig rig;
  const Floats logits(8);
  EXPECT_THROW(route(rig, 8, logits, {}, params_of(9, Gating::softmax)), Error);
  RouteParams params = params_of(2, Gating::softmax);
  params.groups = 3;
  EXPECT_THROW(route(rig, 8, logits, {}, params), Error);
  params.groups = 4;
  params.groups_used = 5;
  EXPECT_THROW(route(rig, 8, logits, {}, params), Error);
  params.top_k = 5;
  params.groups_used = 2;
  EXPECT_THROW(route(rig, 8, logits, {}, params), Error);
  params = params_of(2, Gating::softmax);
  EXPECT_THROW(rig->route(rig.floats({8, 1, 1, 1}), rig.floats({7, 1, 1, 1}), params, rig.ints({2, 1, 1, 1}, {0, 0}),
                          rig.floats({2, 1, 1, 1})),
               Error);
  EXPECT_THROW(rig->route(rig.floats({8, 1, 1, 1}), {}, params_of(0, Gating::softmax), rig.ints({1, 1, 1, 1}, {0}),
                          rig.floats({1, 1, 1, 1})),
               Error);
}

TEST(Route, ByLogitsTellsApartWhatSigmoidsDoNot) {
  RouteParams params = params_of(2, Gating::sigmoid);
  const Floats logits{90.0f, 5.0f, 95.0f, 91.0f};  // sigmoids of 1, but for the second
  EXPECT_EQ(route_everywhere(4, logits, {}, params).ids, (Ints{0, 2}));
  params.by_logits = true;
  const Routed got = route_everywhere(4, logits, {}, params);
  EXPECT_EQ(got.ids, (Ints{2, 3}));
  for (const float w : got.weights) EXPECT_NEAR(w, 1.0f, 1e-6f);
}

TEST(Route, ChosenPicksAreOnlyWeighed) {
  const Floats logits{1.0f, -2.0f, 4.0f, 0.5f, 3.0f, 3.0f};
  const Floats got = same_everywhere([&](Rig& rig) {
    RouteParams params = params_of(2, Gating::sqrt_softplus, true, 1.5f);
    params.chosen = rig.ints({2, 1, 1, 1}, {4, 1});
    const Routed r = route(rig, 6, logits, Floats(6, 9.0f), params);
    EXPECT_EQ(r.ids, (Ints{4, 1}));
    return r.weights;
  });
  const double a = std::sqrt(std::log1p(std::exp(3.0))), b = std::sqrt(std::log1p(std::exp(-2.0)));
  EXPECT_NEAR(got[0], 1.5 * a / (a + b), 1e-6);
  EXPECT_NEAR(got[1], 1.5 * b / (a + b), 1e-6);
  Rig rig;
  RouteParams params = params_of(2, Gating::sqrt_softplus);
  params.chosen = rig.ints({2, 1, 1, 1}, {4, 6});
  EXPECT_THROW(route(rig, 6, logits, {}, params), Error);
}

}  // namespace
}  // namespace moetier
