#include "compute/cpu/route.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/error.h"
#include "compute/cpu/math.h"
#include "compute/cpu/math64.h"
#include "compute/cpu/operand.h"
#include "compute/cpu/share.h"

namespace moetier::cpu {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr float kLeastSum = 6.103515625e-05f;

/// One row's work: what a thread needs of the scratch.
struct RowScratch {
  std::span<float> probabilities;  ///< [experts]
  std::span<float> scores;         ///< [experts], what is chosen by; a NaN counts as -infinity
  std::span<float> group_scores;   ///< [groups]
  std::span<int32_t> candidates;   ///< [experts]
  std::span<int32_t> groups;       ///< [groups]
};

/// Puts the `count` best of `candidates` in front: highest score first, equal scores in ascending id.
void choose(std::span<int32_t> candidates, std::span<const float> scores, int64_t count) {
  std::partial_sort(candidates.begin(), candidates.begin() + count, candidates.end(), [&](int32_t a, int32_t b) {
    const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  });
}

/// The sum of a group's two best scores (a lone expert's own score).
float group_score(std::span<const float> scores) {
  float best = kLowest, second = kLowest;
  for (const float s : scores) {
    second = s > best ? best : num::max(s, second);
    best = num::max(s, best);
  }
  if (scores.size() == 1) return best;
  const float sum = best + second;  // +infinity and -infinity give no number
  return std::isnan(sum) ? kLowest : sum;
}

/// Fills `candidates` with the experts of the best groups and returns how many they are.
int64_t candidates_of_groups(const RouteParams& params, const RowScratch& row) {
  const int64_t experts = static_cast<int64_t>(row.scores.size());
  const int64_t size = experts / params.groups;
  for (int32_t g = 0; g < params.groups; ++g) {
    row.groups[static_cast<size_t>(g)] = g;
    row.group_scores[static_cast<size_t>(g)] =
        group_score(row.scores.subspan(static_cast<size_t>(g * size), static_cast<size_t>(size)));
  }
  choose(row.groups, row.group_scores, params.groups_used);
  int64_t count = 0;
  for (int32_t u = 0; u < params.groups_used; ++u) {
    const int64_t first = row.groups[static_cast<size_t>(u)] * size;
    for (int64_t e = first; e < first + size; ++e)
      row.candidates[static_cast<size_t>(count++)] = static_cast<int32_t>(e);
  }
  return count;
}

void weigh(const RowOps& ops, const RouteParams& params, const float* logits, const RowScratch& row, const int32_t* ids,
           float* weights) {
  const int64_t k = params.top_k;
  const bool of_picks = params.gating == Gating::softmax_of_picks;
  for (int64_t i = 0; i < k; ++i)
    weights[i] = of_picks ? logits[ids[i]] : row.probabilities[static_cast<size_t>(ids[i])];
  if (of_picks) ops.softmax(weights, k, weights);
  if (params.normalize) {
    float sum = 0.0f;
    for (int64_t i = 0; i < k; ++i) sum = sum + weights[i];
    const float divisor = num::max(sum, kLeastSum);
    for (int64_t i = 0; i < k; ++i) weights[i] = weights[i] / divisor;
  }
  for (int64_t i = 0; i < k; ++i) weights[i] = weights[i] * params.scale;
}

void route_row(const RowOps& ops, const RouteParams& params, const float* logits, const float* bias,
               const RowScratch& row, const int32_t* chosen, int32_t* ids, float* weights) {
  const int64_t experts = static_cast<int64_t>(row.scores.size());
  const float* base = logits;
  if (params.gating != Gating::softmax_of_picks) {
    base = row.probabilities.data();
    if (params.gating == Gating::softmax) {
      ops.softmax(logits, experts, row.probabilities.data());
    } else if (params.gating == Gating::sqrt_softplus) {
      for (int64_t e = 0; e < experts; ++e)
        row.probabilities[static_cast<size_t>(e)] = std::sqrt(num::softplus(logits[e]));
    } else {
      for (int64_t e = 0; e < experts; ++e) row.probabilities[static_cast<size_t>(e)] = num::sigmoid(logits[e]);
    }
  }
  if (chosen != nullptr) {
    std::copy_n(chosen, params.top_k, ids);
    return weigh(ops, params, logits, row, ids, weights);
  }
  for (int64_t e = 0; e < experts; ++e) {
    const float chosen_by = params.by_logits ? logits[e] : base[e];
    const float score = bias != nullptr ? chosen_by + bias[e] : chosen_by;
    row.scores[static_cast<size_t>(e)] = std::isnan(score) || std::isnan(logits[e]) ? kLowest : score;
  }
  int64_t count = experts;
  if (params.groups > 1) {
    count = candidates_of_groups(params, row);
  } else {
    for (int64_t e = 0; e < experts; ++e) row.candidates[static_cast<size_t>(e)] = static_cast<int32_t>(e);
  }
  choose(row.candidates.first(static_cast<size_t>(count)), row.scores, params.top_k);
  std::copy_n(row.candidates.begin(), params.top_k, ids);
  weigh(ops, params, logits, row, ids, weights);
}

void check(const RouteParams& params, int64_t experts) {
  if (params.groups < 1 || experts % params.groups != 0 || params.groups_used < 1 ||
      params.groups_used > params.groups) {
    fail("route: {} of {} groups of {} experts cannot be used", params.groups_used, params.groups, experts);
  }
  const int64_t usable = experts / params.groups * params.groups_used;
  if (params.top_k < 1 || params.top_k > usable) {
    fail("route: {} picks cannot be chosen from {} experts", params.top_k, usable);
  }
}

}  // namespace

void Router::run(const Tensor& logits, const Tensor& selection_bias, const RouteParams& params, const Tensor& ids,
                 const Tensor& weights) {
  const char* op = "route";
  const FloatsIn from = floats_in(logits, {op, "logits"});
  const IntsOut to_ids = ints_out(ids, {op, "ids"});
  const FloatsOut to_weights = floats_out(weights, {op, "weights"});
  const int64_t experts = logits.shape[0], count = logits.shape[1];
  check(params, experts);
  require_shape(logits, {experts, count, 1, 1}, {op, "logits"});
  require_shape(ids, {params.top_k, count, 1, 1}, {op, "ids"});
  require_shape(weights, {params.top_k, count, 1, 1}, {op, "weights"});
  const float* bias = nullptr;
  if (!selection_bias.empty()) {
    bias = floats_in(selection_bias, {op, "selection_bias"}).row(0);
    require_shape(selection_bias, {experts, 1, 1, 1}, {op, "selection_bias"});
  }
  IntsIn chosen;
  if (!params.chosen.empty()) {
    chosen = ints_in(params.chosen, {op, "chosen"});
    require_shape(params.chosen, ids.shape, {op, "chosen"});
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t i = 0; i < params.top_k; ++i) {
        if (chosen.row(r)[i] < 0 || chosen.row(r)[i] >= experts)
          fail("{}: expert {} was chosen, but there are {}", op, chosen.row(r)[i], experts);
      }
    }
  }
  const size_t e = static_cast<size_t>(experts), g = static_cast<size_t>(params.groups);
  const size_t floats = 2 * e + g, ints = e + g;
  const size_t threads = static_cast<size_t>(pool_.size());
  if (scratch_.size() < floats * threads) scratch_.resize(floats * threads);
  if (order_.size() < ints * threads) order_.resize(ints * threads);
  share(pool_, count, experts * 16, [&](int64_t first, int64_t last, int thread) {
    const std::span<float> f(scratch_.data() + floats * static_cast<size_t>(thread), floats);
    const std::span<int32_t> i(order_.data() + ints * static_cast<size_t>(thread), ints);
    const RowScratch row{f.first(e), f.subspan(e, e), f.subspan(2 * e, g), i.first(e), i.subspan(e, g)};
    for (int64_t r = first; r < last; ++r)
      route_row(ops_, params, from.row(r), bias, row, chosen.rows > 0 ? chosen.row(r) : nullptr, to_ids.row(r),
                to_weights.row(r));
  });
}

}  // namespace moetier::cpu
