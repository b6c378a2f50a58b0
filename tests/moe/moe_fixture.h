// A MoE layer of random weights, its float64 evaluation, and a store that reveals entries in any order.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "base/error.h"
#include "compute/compute.h"
#include "compute/cpu/cpu_compute.h"
#include "experts/store.h"
#include "moe/moe.h"
#include "quant/codec.h"

namespace moetier::testing {

inline std::vector<float> random_floats(size_t n, float sigma, std::mt19937& rng) {
  std::normal_distribution<float> normal(0.0f, sigma);
  std::vector<float> values(n);
  for (float& v : values) v = normal(rng);
  return values;
}

struct LayerShape {
  int64_t columns = 64, width = 96;
  int experts = 7, top_k = 3;
  TensorType type = TensorType::f32;
  bool fused = false;
};

/// Weights as the file would have them, and the floats they decode to.
struct RandomLayer {
  RandomLayer(const LayerShape& shape_in, unsigned seed) : shape(shape_in) {
    std::mt19937 rng(seed);
    const auto experts = static_cast<size_t>(shape.experts);
    const auto cells = static_cast<size_t>(shape.columns * shape.width);
    const float in = 1.0f / std::sqrt(static_cast<float>(shape.columns));
    router = random_floats(static_cast<size_t>(shape.columns) * experts, 3.0f * in, rng);
    gate = encoded(random_floats(cells * experts, in, rng), gate_values);
    up = encoded(random_floats(cells * experts, in, rng), up_values);
    down = encoded(random_floats(cells * experts, 1.0f / std::sqrt(static_cast<float>(shape.width)), rng), down_values);
    if (shape.fused) fuse();
  }

  std::vector<std::byte> encoded(const std::vector<float>& values, std::vector<float>& decoded) const {
    const auto n = static_cast<int64_t>(values.size());
    std::vector<std::byte> blocks(row_bytes(shape.type, n));
    encode(shape.type, values.data(), blocks.data(), n);
    decoded.resize(values.size());
    decode(shape.type, blocks.data(), decoded.data(), n);
    return blocks;
  }

  /// Gate rows then up rows, expert by expert.
  void fuse() {
    const size_t slice = gate.size() / static_cast<size_t>(shape.experts);
    for (int e = 0; e < shape.experts; ++e) {
      for (const auto* part : {&gate, &up}) {
        const auto first = part->begin() + static_cast<ptrdiff_t>(slice) * e;
        gate_up.insert(gate_up.end(), first, first + static_cast<ptrdiff_t>(slice));
      }
    }
  }

  LayerEntries entries(int layer) const {
    LayerEntries result;
    result.layer = layer;
    result.n_expert = shape.experts;
    result.top_k = shape.top_k;
    const auto add = [&](Projection projection, const std::vector<std::byte>& data, int64_t columns, int64_t rows) {
      result.slices.push_back({projection, shape.type, columns, rows, 0, 0, data.size() / shape.experts});
    };
    if (shape.fused) {
      add(Projection::gate_up, gate_up, shape.columns, 2 * shape.width);
    } else {
      add(Projection::gate, gate, shape.columns, shape.width);
      add(Projection::up, up, shape.columns, shape.width);
    }
    add(Projection::down, down, shape.width, shape.columns);
    return result;
  }

  std::vector<const std::vector<std::byte>*> stacks() const {
    if (shape.fused) return {&gate_up, &down};
    return {&gate, &up, &down};
  }

  LayerShape shape;
  std::vector<float> router, gate_values, up_values, down_values;
  std::vector<std::byte> gate, up, down, gate_up;
};

/// Reveals the entries of a fetch in a random order and in random bunches, some first without their last slice; in
/// ascending order where that is asked for. Fails where an entry that was given is not done before the next is waited
/// for.
class ShuffledStore final : public ExpertStore, private Lease::Source {
 public:
  /// Layer i of the map is layers[i].
  ShuffledStore(std::vector<const RandomLayer*> layers, unsigned seed, bool shuffle = true)
      : layers_(std::move(layers)), rng_(seed), shuffle_(shuffle) {
    for (size_t i = 0; i < layers_.size(); ++i) {
      map_.layers.push_back(layers_[i]->entries(static_cast<int>(i)));
      stacks_.push_back(layers_[i]->stacks());
    }
    entries_.reserve(1024);
    order_.reserve(2048);
    whole_.reserve(1024);
    undone_.reserve(1024);
  }
  const EntryMap& map() const override { return map_; }
  Lease fetch(int layer, std::span<const int32_t> picks, int64_t, FetchOrder order) override {
    const RandomLayer& from = *layers_[static_cast<size_t>(layer)];
    entries_.clear();
    for (int e = 0; e < from.shape.experts; ++e) {
      if (std::find(picks.begin(), picks.end(), e) == picks.end()) continue;
      FetchedEntry entry;
      entry.expert = e;
      size_t s = 0;
      for (const auto* stack : stacks_[static_cast<size_t>(layer)])
        entry.slices[s++] =
            stack->data() + stack->size() / static_cast<size_t>(from.shape.experts) * static_cast<size_t>(e);
      entries_.push_back(entry);
    }
    order_.clear();
    for (size_t i = 0; i < entries_.size(); ++i) {
      const bool twice = shuffle_ && order == FetchOrder::any && rng_() % 2 == 0;
      order_.insert(order_.end(), twice ? 2 : 1, static_cast<int>(i));
    }
    if (shuffle_ && order == FetchOrder::any) std::shuffle(order_.begin(), order_.end(), rng_);
    whole_ = entries_;
    n_slices_ = stacks_[static_cast<size_t>(layer)].size();
    for (FetchedEntry& entry : entries_) entry.slices = {};
    given_ = 0;
    undone_.clear();
    ++fetches;
    return {this, entries_};
  }
  StoreStatus status() const override { return {}; }
  bool holds(int, int) const override { return true; }
  std::vector<int32_t> held(int) const override { return {}; }
  const StoreMeters& meters() const override { return meters_; }
  StoreCounters counters(int) const override { return {}; }
  StoreCounters counters() const override { return {}; }
  uint64_t resident_bytes() const override { return 0; }

  int fetches = 0, released = 0;

 private:
  Ready next_ready() override {
    if (!undone_.empty()) fail("entry {} was given and not done", undone_.front());
    return give();
  }
  Ready try_ready() override { return shuffle_ && rng_() % 2 == 0 ? Ready{} : give(); }
  Ready give() {
    if (given_ == order_.size()) return {};
    const int index = order_[given_++];
    const bool complete =
        std::find(order_.begin() + static_cast<ptrdiff_t>(given_), order_.end(), index) == order_.end();
    const auto i = static_cast<size_t>(index);
    for (size_t s = 0; s < n_slices_ - (complete ? 0 : 1); ++s) entries_[i].slices[s] = whole_[i].slices[s];
    if (complete) undone_.push_back(index);
    return {index, complete};
  }
  void done(int index) override {
    if (std::erase(undone_, index) == 0) fail("entry {} is done and was not given", index);
    entries_[static_cast<size_t>(index)].slices = {};
  }
  void release() override { ++released; }
  StoreMeters meters_;

  std::vector<const RandomLayer*> layers_;
  std::vector<std::vector<const std::vector<std::byte>*>> stacks_;  ///< of each layer
  std::mt19937 rng_;
  bool shuffle_;
  EntryMap map_;
  std::vector<FetchedEntry> entries_, whole_;
  size_t n_slices_ = 0;
  std::vector<int> undone_;
  std::vector<int> order_;
  size_t given_ = 0;
};

/// Owns a backend, the layer's router there, and input and output.
class Bench {
 public:
  Bench(const RandomLayer& layer, ExpertStore& store, int64_t max_rows, int threads = 1)
      : layer_(layer),
        compute_(make_cpu_compute({.threads = threads})),
        moe_(*compute_, store, max_rows, layer.shape.experts, layer.shape.top_k) {
    const LayerShape& s = layer.shape;
    router_ = compute_->wrap(layer.router.data(), layer.router.size() * sizeof(float));
    x_ = compute_->allocate(static_cast<size_t>(s.columns * max_rows) * sizeof(float));
    out_ = compute_->allocate(static_cast<size_t>(s.columns * max_rows) * sizeof(float));
    description.router = Tensor::packed(router_.get(), 0, TensorType::f32, {s.columns, s.experts, 1, 1});
    description.route.top_k = s.top_k;
    description.route.normalize = true;
    description.ffn = {s.columns, s.width, s.type, s.type, s.type, s.fused, Activation::silu};
  }

  Tensor x(int64_t n) const { return Tensor::packed(x_.get(), 0, TensorType::f32, {layer_.shape.columns, n, 1, 1}); }
  Tensor out(int64_t n) const {
    return Tensor::packed(out_.get(), 0, TensorType::f32, {layer_.shape.columns, n, 1, 1});
  }

  std::vector<float> run(std::span<const float> input) {
    const auto n = static_cast<int64_t>(input.size()) / layer_.shape.columns;
    compute_->upload(x(n), input.data());
    moe_.run(description, x(n), out(n));
    std::vector<float> result(input.size());
    compute_->download(out(n), result.data());
    return result;
  }

  MoeLayer description;
  MoeOperation& moe() { return moe_; }

 private:
  const RandomLayer& layer_;
  std::unique_ptr<Compute> compute_;
  std::unique_ptr<Buffer> router_, x_, out_;
  MoeOperation moe_;
};

/// One row's picks and result in float64.
struct DenseRow {
  std::vector<int> picks;       ///< by falling score
  std::vector<double> weights;  ///< of the picks
  std::vector<double> out;
};

inline std::vector<double> matvec(const float* weight, size_t columns, size_t rows, const std::vector<double>& x) {
  std::vector<double> y(rows, 0.0);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) y[r] += static_cast<double>(weight[r * columns + c]) * x[c];
  }
  return y;
}

/// Evaluates every expert for the row and then takes the weighted sum of the picks.
inline DenseRow dense_row(const RandomLayer& layer, std::span<const float> x, bool normalize) {
  const LayerShape& s = layer.shape;
  const auto columns = static_cast<size_t>(s.columns), width = static_cast<size_t>(s.width);
  const auto experts = static_cast<size_t>(s.experts);
  const std::vector<double> input(x.begin(), x.end());
  std::vector<double> probability = matvec(layer.router.data(), columns, experts, input);
  const double top = *std::max_element(probability.begin(), probability.end());
  double sum = 0;
  for (double& p : probability) sum += p = std::exp(p - top);
  for (double& p : probability) p /= sum;

  DenseRow row;
  row.picks.resize(experts);
  std::iota(row.picks.begin(), row.picks.end(), 0);
  std::stable_sort(row.picks.begin(), row.picks.end(), [&](int a, int b) {
    return probability[static_cast<size_t>(a)] > probability[static_cast<size_t>(b)];
  });
  row.picks.resize(static_cast<size_t>(s.top_k));
  double picked = 0;
  for (const int e : row.picks) picked += probability[static_cast<size_t>(e)];
  row.out.assign(columns, 0.0);
  for (const int e : row.picks) {
    row.weights.push_back(probability[static_cast<size_t>(e)] / (normalize ? picked : 1.0));
    const size_t at = static_cast<size_t>(e) * columns * width;
    std::vector<double> hidden = matvec(layer.gate_values.data() + at, columns, width, input);
    const std::vector<double> u = matvec(layer.up_values.data() + at, columns, width, input);
    for (size_t i = 0; i < width; ++i) hidden[i] = hidden[i] / (1.0 + std::exp(-hidden[i])) * u[i];
    const std::vector<double> y = matvec(layer.down_values.data() + at, width, columns, hidden);
    for (size_t i = 0; i < columns; ++i) row.out[i] += row.weights.back() * y[i];
  }
  return row;
}

}  // namespace moetier::testing
