#include "experts/belady.h"

#include <limits>

#include "base/error.h"

namespace moetier {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class Belady final : public Policy {
 public:
  explicit Belady(const TraceRun& run) : run_(run), next_(run.picks.size(), kNoStep) {
    std::vector<std::vector<uint32_t>> later;
    for (const LayerShape& shape : run.shapes) {
      later.emplace_back(static_cast<size_t>(shape.n_expert), kNoStep);
      keys_.emplace_back(static_cast<size_t>(shape.n_expert), -kNever);
    }
    for (size_t i = run.steps.size(); i-- > 0;) {
      const TraceRun::Step& step = run.steps[i];
      std::vector<uint32_t>& next = later[static_cast<size_t>(step.layer)];
      for (size_t k = step.first; k < step.first + step.count; ++k) next_[k] = next[static_cast<size_t>(run.picks[k])];
      for (const int32_t expert : run.picks_of(step)) next[static_cast<size_t>(expert)] = static_cast<uint32_t>(i);
    }
  }

  std::string_view name() const override { return "belady"; }
  void touch(int layer, std::span<const int32_t> picks, int64_t) override {
    if (at_ >= run_.steps.size() || run_.steps[at_].layer != layer || run_.steps[at_].count != picks.size())
      fail("Belady's rule was asked about another run than it knows; this is a fault of the program");
    const size_t first = run_.steps[at_++].first;
    for (size_t i = 0; i < picks.size(); ++i) {
      const uint32_t next = next_[first + i];
      keys_[static_cast<size_t>(layer)][static_cast<size_t>(picks[i])] =
          next == kNoStep ? -kNever : -static_cast<double>(next);
    }
  }
  std::span<const double> keys(int layer) const override { return keys_[static_cast<size_t>(layer)]; }
  bool admits(int layer, int expert, int victim_layer, int victim_expert) const override {
    return of(layer, expert) > of(victim_layer, victim_expert);
  }

 private:
  static constexpr uint32_t kNoStep = std::numeric_limits<uint32_t>::max();
  double of(int layer, int expert) const { return keys_[static_cast<size_t>(layer)][static_cast<size_t>(expert)]; }

  const TraceRun& run_;
  std::vector<uint32_t> next_;  // by pick: the step that picks its entry again
  std::vector<std::vector<double>> keys_;
  size_t at_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_belady_policy(const TraceRun& run) {
  return std::make_unique<Belady>(run);
}

}  // namespace moetier
