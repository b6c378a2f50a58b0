#include "experts/route_predict.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "base/error.h"

namespace moetier {
namespace {

using Ids = std::span<const int32_t>;
constexpr size_t kPredictors = 4;
constexpr std::array<std::string_view, kPredictors> kNames = {"previous", "popularity", "co-occurrence", "next-router"};

/// The `n` highest, higher first; equal ones by id.
void highest(std::span<const double> scores, size_t n, std::vector<int32_t>& order) {
  order.resize(scores.size());
  std::iota(order.begin(), order.end(), 0);
  n = std::min(n, order.size());
  std::ranges::partial_sort(order, order.begin() + static_cast<ptrdiff_t>(n), [&](int32_t a, int32_t b) {
    const double x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  order.resize(n);
}

/// What one layer has seen.
class Layer {
 public:
  Layer(const GuessLog& log, size_t index)
      : log_(log),
        layer_(log.layers[index]),
        before_(log.layers[index - 1]),
        n_(static_cast<size_t>(log.n_expert)),
        most_(static_cast<size_t>(log.top_k) * PredictionScore::kTimes.back()),
        counts_(n_, 0),
        beside_(n_ * n_, 0),
        before_counts_(n_, 0),
        last_(n_, -1) {}

  /// Picks of the scored tokens that are among the candidates, summed.
  using Found = std::array<std::array<uint64_t, PredictionScore::kTimes.size()>, kPredictors>;

  void pass(int64_t token, bool scored, Found& found) {
    const Ids picks = of(layer_.picks, token, log_.top_k), before = of(before_.picks, token, log_.top_k);
    if (scored) {
      std::vector<double> scores(n_);
      for (size_t e = 0; e < n_; ++e) scores[e] = static_cast<double>(last_[e]);
      score(0, scores, picks, found);
      for (size_t e = 0; e < n_; ++e) scores[e] = static_cast<double>(counts_[e]);
      score(1, scores, picks, found);
      std::ranges::fill(scores, 0.0);
      for (const int32_t b : before) {
        const size_t row = static_cast<size_t>(b) * n_;
        const double times = static_cast<double>(before_counts_[static_cast<size_t>(b)]) + 1;
        for (size_t e = 0; e < n_; ++e) scores[e] += static_cast<double>(beside_[row + e]) / times;
      }
      for (size_t e = 0; e < n_; ++e) scores[e] += 1e-9 * static_cast<double>(counts_[e]);  // parts equal ones
      score(2, scores, picks, found);
      const Ids guesses = of(layer_.guesses, token, log_.width);
      order_.assign(guesses.begin(), guesses.end());
      count(3, picks, found);
    }
    for (const int32_t e : picks) {
      ++counts_[static_cast<size_t>(e)];
      last_[static_cast<size_t>(e)] = token;
    }
    for (const int32_t b : before) {
      ++before_counts_[static_cast<size_t>(b)];
      for (const int32_t e : picks) ++beside_[static_cast<size_t>(b) * n_ + static_cast<size_t>(e)];
    }
  }

 private:
  static Ids of(const std::vector<int32_t>& all, int64_t token, int each) {
    return Ids(all).subspan(static_cast<size_t>(token) * static_cast<size_t>(each), static_cast<size_t>(each));
  }
  void score(size_t predictor, std::span<const double> scores, Ids picks, Found& found) {
    highest(scores, most_, order_);
    count(predictor, picks, found);
  }
  void count(size_t predictor, Ids picks, Found& found) {
    for (size_t t = 0; t < PredictionScore::kTimes.size(); ++t) {
      const size_t n =
          std::min(order_.size(), static_cast<size_t>(log_.top_k) * static_cast<size_t>(PredictionScore::kTimes[t]));
      for (const int32_t e : picks)
        found[predictor][t] += std::find(order_.begin(), order_.begin() + static_cast<ptrdiff_t>(n), e) !=
                               order_.begin() + static_cast<ptrdiff_t>(n);
    }
  }

  const GuessLog& log_;
  const GuessLog::Layer &layer_, &before_;
  size_t n_, most_;
  std::vector<uint64_t> counts_;
  std::vector<uint32_t> beside_;  // [expert of the layer before][expert]
  std::vector<uint64_t> before_counts_;
  std::vector<int64_t> last_;
  std::vector<int32_t> order_;
};

}  // namespace

Prediction predict_routes(const GuessLog& log) {
  if (log.layers.size() < 2 || log.tokens < 2)
    fail("there are {} layers with experts and {} tokens; predicting needs two of each", log.layers.size(), log.tokens);
  Prediction prediction;
  prediction.layers = static_cast<int>(log.layers.size()) - 1;
  const int64_t first = log.tokens / 2;
  prediction.scored = log.tokens - first;
  Layer::Found found{};
  bool bytes_known = true;
  for (size_t l = 1; l < log.layers.size(); ++l) {
    Layer layer(log, l);
    for (int64_t t = 0; t < log.tokens; ++t) layer.pass(t, t >= first, found);
    prediction.cycle_bytes += static_cast<double>(log.layers[l].entry_bytes) * log.top_k;
    bytes_known = bytes_known && log.layers[l].entry_bytes > 0;
  }
  if (!bytes_known) prediction.cycle_bytes = 0;
  const double picks = static_cast<double>(prediction.scored) * prediction.layers * log.top_k;
  for (size_t p = 0; p < kPredictors; ++p) {
    PredictionScore score;
    score.name = kNames[p];
    for (size_t t = 0; t < score.recall.size(); ++t) score.recall[t] = static_cast<double>(found[p][t]) / picks;
    prediction.scores.push_back(score);
  }
  return prediction;
}

}  // namespace moetier
