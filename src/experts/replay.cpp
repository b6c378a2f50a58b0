#include "experts/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace moetier {
namespace {

void check_layer(int layer, int layers) {
  if (layer < 0 || layer >= layers) fail("MoE layer {} was asked for, and the model has {}", layer, layers);
}

/// The layers that occur in a trace, ascending.
std::vector<int32_t> layers_of(const RoutingTrace& trace) {
  std::vector<bool> seen(static_cast<size_t>(trace.n_layer));
  for (const Routing& r : trace.routings) seen[static_cast<size_t>(r.layer)] = true;
  std::vector<int32_t> layers;
  for (size_t i = 0; i < seen.size(); ++i) {
    if (seen[i]) layers.push_back(static_cast<int32_t>(i));
  }
  return layers;
}

class TraceReplay final : public RoutingSource {
 public:
  TraceReplay(const RoutingTrace& trace, const std::string& name, int model_layers, int model_experts,
              bool decoded_only)
      : name_(name),
        model_layers_(model_layers),
        trace_layers_(static_cast<int>(layers_of(trace).size())),
        top_k_(trace.top_k) {
    if (trace.told ? trace.n_expert != model_experts : trace.n_expert > model_experts) {
      fail("{} was recorded with {} experts in a layer{}, and the model has {}: its routing cannot be replayed here",
           name, trace.n_expert, trace.told ? "" : " or more", model_experts);
    }
    // A token's routings lie together, by ascending layer.
    const std::span<const Routing> all = trace.routings;
    for (size_t first = 0, end = 0; first < all.size(); first = end) {
      while (end < all.size() && all[end].token == all[first].token) ++end;
      const auto token = all.subspan(first, end - first);
      const bool whole = static_cast<int>(token.size()) == trace_layers_ &&
                         std::all_of(token.begin(), token.end(),
                                     [&](const Routing& r) { return static_cast<int>(r.count) == top_k_; });
      if (whole && !(decoded_only && token.front().prompt)) play(trace, token);
    }
    if (tokens_ == 0) {
      fail("{} has no {}token with {} picks in each of its {} layers, so there is nothing to replay", name,
           decoded_only ? "decoded " : "", top_k_, trace_layers_);
    }
  }

  Picks picks(int layer, int64_t token) override {
    check_layer(layer, model_layers_);
    const int64_t of = int64_t{layer} * trace_layers_ / model_layers_;
    const auto first = static_cast<size_t>(((token % tokens_) * trace_layers_ + of) * top_k_);
    const auto count = static_cast<size_t>(top_k_);
    return {std::span<const int32_t>(ids_).subspan(first, count),
            std::span<const float>(weights_).subspan(first, count)};
  }
  int top_k() const override { return top_k_; }
  int64_t tokens() const override { return tokens_; }
  std::string describe() const override {
    return fmt::format("the routing of {}: {} tokens, {} layers, top-{}", name_, tokens_, trace_layers_, top_k_);
  }

 private:
  void play(const RoutingTrace& trace, std::span<const Routing> token) {
    ++tokens_;
    for (const Routing& r : token) {
      const auto ids = trace.picks(r);
      const auto weights = trace.pick_weights(r);
      ids_.insert(ids_.end(), ids.begin(), ids.end());
      const bool known = std::all_of(weights.begin(), weights.end(), [](float w) { return w >= 0; });
      const float sum = known ? std::accumulate(weights.begin(), weights.end(), 0.0f) : 0.0f;
      const bool usable = sum > 1e-6f && sum < 1e6f;
      for (const float w : weights) weights_.push_back(usable ? w / sum : 1.0f / static_cast<float>(top_k_));
    }
  }

  std::string name_;
  int model_layers_, trace_layers_, top_k_;
  int64_t tokens_ = 0;
  std::vector<int32_t> ids_;  // [top_k, trace layers, tokens]
  std::vector<float> weights_;
};

class RandomRouting final : public RoutingSource {
 public:
  RandomRouting(uint64_t seed, int model_layers, int experts, int top_k)
      : seed_(seed), model_layers_(model_layers), top_k_(top_k) {
    if (top_k < 1 || top_k > experts) fail("random routing cannot pick {} of {} experts", top_k, experts);
    experts_.resize(static_cast<size_t>(experts));
    std::iota(experts_.begin(), experts_.end(), 0);
    weights_.assign(static_cast<size_t>(top_k), 1.0f / static_cast<float>(top_k));
    swapped_.resize(static_cast<size_t>(top_k));
  }

  Picks picks(int layer, int64_t token) override {
    check_layer(layer, model_layers_);
    // The swaps of the last call are undone, so that an answer depends on the question only.
    for (size_t i = drawn_; i-- > 0;) std::swap(experts_[i], experts_[swapped_[i]]);
    Xoshiro256 random(seed_ +
                      0x9e3779b97f4a7c15u * (static_cast<uint64_t>(token) * 65536 + static_cast<uint64_t>(layer)));
    drawn_ = static_cast<size_t>(top_k_);
    for (size_t i = 0; i < drawn_; ++i) {  // the first steps of a Fisher-Yates shuffle
      swapped_[i] = i + static_cast<size_t>(((random.next_starstar() >> 32) * (experts_.size() - i)) >> 32);
      std::swap(experts_[i], experts_[swapped_[i]]);
    }
    return {std::span<const int32_t>(experts_).first(drawn_), weights_};
  }
  int top_k() const override { return top_k_; }
  int64_t tokens() const override { return 0; }
  std::string describe() const override {
    return fmt::format("uniform random routing: top-{} of {}, seed {}", top_k_, experts_.size(), seed_);
  }

 private:
  uint64_t seed_;
  int model_layers_, top_k_;
  size_t drawn_ = 0;
  std::vector<int32_t> experts_;
  std::vector<size_t> swapped_;
  std::vector<float> weights_;
};

}  // namespace

std::unique_ptr<RoutingSource> replay_trace(const RoutingTrace& trace, const std::string& name, int model_layers,
                                            int model_experts, bool decoded_only) {
  return std::make_unique<TraceReplay>(trace, name, model_layers, model_experts, decoded_only);
}

std::unique_ptr<RoutingSource> random_routing(uint64_t seed, int model_layers, int experts, int top_k) {
  return std::make_unique<RandomRouting>(seed, model_layers, experts, top_k);
}

}  // namespace moetier
