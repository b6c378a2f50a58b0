#include "compute/cpu/recurrent.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "compute/cpu/math.h"
#include "compute/cpu/math64.h"
#include "compute/cpu/share.h"

namespace moetier::cpu {
namespace {

/// Channels of a convolution, and rows of a head's state, that a thread takes at once: few enough to stay in the
/// nearest cache over all positions of an ubatch.
constexpr int64_t kChannels = 512;
constexpr int64_t kStateRows = 32;
constexpr int kMaxTaps = 16;
constexpr int64_t kMaxWidth = 1024;  ///< of a state's rows

template <typename T>
void grow(std::vector<T>& v, int64_t n) {
  if (v.size() < static_cast<size_t>(n)) v.resize(static_cast<size_t>(n));
}

/// A vector with an element for each head.
const float* per_head(const Tensor& tensor, int64_t heads, OperandName name) {
  require_shape(tensor, {heads, 1, 1, 1}, name);
  return floats_in(tensor, name).row(0);
}

}  // namespace

/// [width, rows, heads, slots].
struct Recurrent::State {
  State(const Tensor& memory, const char* operation) {
    const FloatsOut all = floats_out(memory, {operation, "memory"});
    width = memory.shape[0];
    rows = memory.shape[1];
    heads = memory.shape[2];
    slots = memory.shape[3];
    if (width < 1 || width % kStateStep != 0 || width > kMaxWidth || rows < 1 || heads < 1 ||
        all.stride != static_cast<size_t>(width) * sizeof(float))
      fail("{}: rows of state of {} elements are not packed multiples of {} up to {}", operation, width, kStateStep,
           kMaxWidth);
    base = all.row(0);
  }
  float* at(int64_t slot, int64_t head, int64_t row) const {
    return base + ((slot * heads + head) * rows + row) * width;
  }

  float* base = nullptr;
  int64_t width = 0, rows = 0, heads = 0, slots = 0;
};

/// Sorts the rows by sequence, in order within each, and notes their slots.
void Recurrent::make_runs(const BatchRows& rows, int64_t slots, const char* operation) {
  const BatchView batch(rows, operation);
  const IntsIn from = ints_in(rows.states_from, {operation, "states_from"});
  const IntsIn to = ints_in(rows.states_to, {operation, "states_to"});
  require_shape(rows.states_from, {batch.count, 1, 1, 1}, {operation, "states_from"});
  require_shape(rows.states_to, {batch.count, 1, 1, 1}, {operation, "states_to"});
  const int64_t sequences = batch.table.rows;
  next_.assign(static_cast<size_t>(sequences) + 1, 0);
  for (int64_t r = 0; r < batch.count; ++r) ++next_[static_cast<size_t>(batch.sequence(r)) + 1];
  runs_.clear();
  for (int64_t s = 0; s < sequences; ++s) {
    const auto i = static_cast<size_t>(s);
    if (next_[i + 1] > 0) runs_.push_back({next_[i], next_[i + 1], -1, -1});
    next_[i + 1] += next_[i];
  }
  grow(order_, batch.count);
  for (int64_t r = 0; r < batch.count; ++r) {
    const auto s = static_cast<size_t>(batch.sequence(r));
    order_[static_cast<size_t>(next_[s]++)] = static_cast<int32_t>(r);
  }
  for (Run& run : runs_) {
    const int64_t first = order_[static_cast<size_t>(run.first)];
    run.from = at(from, first);
    run.to = at(to, first);
    if (run.from < -1 || run.from >= slots || run.to < 0 || run.to >= slots)
      fail("{}: row {} has its state in slots {} and {}, but there are {}", operation, first, run.from, run.to, slots);
  }
}

const float* Recurrent::zeros(int64_t n) {
  grow(zeros_, n);  // never written
  return zeros_.data();
}

void Recurrent::conv(const Tensor& x, const ConvParams& params, const BatchRows& rows, const Tensor& memory,
                     const Tensor& out) {
  const char* op = "causal_conv";
  const FloatsIn in = floats_in(x, {op, "x"}), weight = floats_in(params.weight, {op, "weight"});
  const FloatsOut to = floats_out(out, {op, "out"}), state = floats_out(memory, {op, "memory"});
  const int64_t channels = x.shape[0], count = x.shape[1], taps = params.weight.shape[1], history = taps - 1;
  if (taps < 2 || taps > kMaxTaps) fail("{}: a kernel of {} taps is not between 2 and {}", op, taps, kMaxTaps);
  require_shape(x, {channels, count, 1, 1}, {op, "x"});
  require_shape(out, {channels, count, 1, 1}, {op, "out"});
  require_shape(params.weight, {channels, taps, 1, 1}, {op, "weight"});
  require_shape(memory, {channels, history, memory.shape[2], 1}, {op, "memory"});
  require_shape(rows.positions, {count, 1, 1, 1}, {op, "positions"});
  const float* bias = params.bias.empty() ? nullptr : per_head(params.bias, channels, {op, "bias"});
  make_runs(rows, memory.shape[2], op);
  const float* const nothing = zeros(kChannels);
  const int64_t parts = ceil_div(channels, kChannels), runs = static_cast<int64_t>(runs_.size());
  const int64_t stride = static_cast<int64_t>(weight.stride / sizeof(float));
  const int64_t cost = count / std::max<int64_t>(runs, 1) * std::min(channels, kChannels) * (taps + 6);
  share(pool_, runs * parts, cost, [&](int64_t first, int64_t last, int) {
    for (int64_t i = first; i < last; ++i) {
      const Run& run = runs_[static_cast<size_t>(i / parts)];
      const int64_t c = i % parts * kChannels, n = std::min(kChannels, channels - c);
      // The input `index` places after the run's first row; those before it are in memory.
      const auto input = [&](int64_t index) {
        if (index >= 0) return in.row(order_[static_cast<size_t>(run.first + index)]) + c;
        return run.from < 0 ? nothing : state.row(run.from * history + history + index) + c;
      };
      const float* inputs[kMaxTaps];
      for (int64_t t = 0; t < run.count; ++t) {
        for (int64_t j = 0; j < taps; ++j) inputs[j] = input(t - history + j);
        const int64_t row = order_[static_cast<size_t>(run.first + t)];
        ops_.conv(inputs, weight.row(0) + c, stride, static_cast<int>(taps), bias == nullptr ? nullptr : bias + c,
                  params.silu, n, to.row(row) + c);
      }
      // Ascending: where both slots are one, what is read lies behind what was written.
      for (int64_t j = 0; j < history; ++j) {
        float* kept = state.row(run.to * history + j) + c;
        const float* from = input(run.count - history + j);
        if (kept != from) std::memcpy(kept, from, static_cast<size_t>(n) * sizeof(float));
      }
    }
  });
}

template <typename Body>
void Recurrent::share_state(const State& state, int64_t row_cost, Body body) {
  const int64_t parts = ceil_div(state.rows, kStateRows), runs = static_cast<int64_t>(runs_.size());
  int64_t rows = 0;
  for (const Run& run : runs_) rows += run.count;
  const int64_t cost = rows / std::max<int64_t>(runs, 1) * std::min(state.rows, kStateRows) * row_cost;
  share(pool_, runs * state.heads * parts, cost, [&](int64_t first, int64_t last, int) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = i % parts * kStateRows;
      body(runs_[static_cast<size_t>(i / parts / state.heads)], i / parts % state.heads, row,
           std::min(kStateRows, state.rows - row));
    }
  });
}

void Recurrent::delta(const DeltaInputs& in, const BatchRows& rows, const Tensor& memory, const Tensor& out) {
  const char* op = "delta_rule";
  const State state(memory, op);
  const int64_t d = state.width, heads = state.heads, count = rows.positions.shape[0], key_heads = in.key.shape[1];
  if (key_heads < 1 || heads % key_heads != 0) fail("{}: {} heads cannot share {} key heads", op, heads, key_heads);
  require_shape(memory, {d, d, heads, state.slots}, {op, "memory"});
  for (const Tensor* t : {&in.query, &in.key}) require_shape(*t, {d, key_heads, count, 1}, {op, "query or key"});
  for (const Tensor* t : {&in.value, &out}) require_shape(*t, {d, heads, count, 1}, {op, "value or out"});
  const bool by_element = in.least_decay < 0;
  require_shape(in.step, {heads, count, 1, 1}, {op, "step"});
  require_shape(in.decay, by_element ? std::array<int64_t, 4>{d, heads, count, 1} : in.step.shape, {op, "decay"});
  const FloatsIn query = floats_in(in.query, {op, "query"}), key = floats_in(in.key, {op, "key"});
  const FloatsIn value = floats_in(in.value, {op, "value"});
  const FloatsIn decay = floats_in(in.decay, {op, "decay"}), step = floats_in(in.step, {op, "step"});
  const FloatsOut to = floats_out(out, {op, "out"});
  const float* factor = per_head(in.factor, heads, {op, "factor"});
  require_shape(in.bias, by_element ? std::array<int64_t, 4>{d, heads, 1, 1} : in.factor.shape, {op, "bias"});
  const FloatsIn bias = floats_in(in.bias, {op, "bias"});
  make_runs(rows, state.slots, op);
  const float* const nothing = zeros(kStateRows * d);
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
  share_state(state, 3 * d, [&](const Run& run, int64_t head, int64_t first, int64_t n) {
    float decays[kMaxWidth];
    const int64_t key_head = in.tiled ? head % key_heads : head / (heads / key_heads);
    DeltaStep s{.rows = n, .width = d, .decay = decays, .scale = scale};
    s.from = run.from < 0 ? nothing : state.at(run.from, head, first);
    s.to = state.at(run.to, head, first);
    for (int64_t t = 0; t < run.count; ++t, s.from = s.to) {
      const int64_t r = order_[static_cast<size_t>(run.first + t)];
      if (by_element) {
        const float *raw = decay.row(r * heads + head), *own_bias = bias.row(head);
        for (int64_t c = 0; c < d; ++c)
          decays[c] = num::exp(in.least_decay * num::sigmoid(factor[head] * (raw[c] + own_bias[c])));
      } else {
        std::fill_n(decays, d, num::exp(factor[head] * num::softplus(decay.row(r)[head] + bias.row(0)[head])));
      }
      s.beta = num::sigmoid(step.row(r)[head]);
      s.key = key.row(r * key_heads + key_head);
      s.query = query.row(r * key_heads + key_head);
      s.value = value.row(r * heads + head) + first;
      s.out = to.row(r * heads + head) + first;
      ops_.delta(s);
    }
  });
}

void Recurrent::scan(const ScanInputs& in, const BatchRows& rows, const Tensor& memory, const Tensor& out) {
  const char* op = "scan";
  const State state(memory, op);
  const int64_t heads = state.heads, count = rows.positions.shape[0], groups = in.b.shape[1];
  if (groups < 1 || heads % groups != 0) fail("{}: {} heads cannot share {} groups", op, heads, groups);
  for (const Tensor* t : {&in.b, &in.c}) require_shape(*t, {state.width, groups, count, 1}, {op, "b or c"});
  for (const Tensor* t : {&in.x, &out}) require_shape(*t, {state.rows, heads, count, 1}, {op, "x or out"});
  require_shape(in.step, {heads, count, 1, 1}, {op, "step"});
  const FloatsIn x = floats_in(in.x, {op, "x"}), b = floats_in(in.b, {op, "b"}), c = floats_in(in.c, {op, "c"});
  const FloatsIn step = floats_in(in.step, {op, "step"});
  const FloatsOut to = floats_out(out, {op, "out"});
  const float *bias = per_head(in.bias, heads, {op, "bias"}), *factor = per_head(in.factor, heads, {op, "factor"});
  const float* skip = per_head(in.skip, heads, {op, "skip"});
  make_runs(rows, state.slots, op);
  const float* const nothing = zeros(kStateRows * state.width);
  share_state(state, 2 * state.width, [&](const Run& run, int64_t head, int64_t first, int64_t n) {
    const int64_t group = head / (heads / groups);
    ScanStep s{.rows = n, .width = state.width, .skip = skip[head]};
    s.from = run.from < 0 ? nothing : state.at(run.from, head, first);
    s.to = state.at(run.to, head, first);
    for (int64_t t = 0; t < run.count; ++t, s.from = s.to) {
      const int64_t r = order_[static_cast<size_t>(run.first + t)];
      s.step = num::softplus(step.row(r)[head] + bias[head]);
      s.decay = num::exp(s.step * factor[head]);
      s.b = b.row(r * groups + group);
      s.c = c.row(r * groups + group);
      s.x = x.row(r * heads + head) + first;
      s.out = to.row(r * heads + head) + first;
      ops_.scan(s);
    }
  });
}

}  // namespace moetier::cpu
