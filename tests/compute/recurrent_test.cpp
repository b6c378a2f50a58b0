// Recurrent operations: against plain formulas in float64, by the order of docs/numbers.md, and the same however rows
// are cut, interleaved and shared among threads.
#include <numeric>

#include "base/error.h"
#include "compute/cpu/math.h"
#include "compute_fixture.h"

namespace moetier {
namespace {

using namespace testing_compute;

/// Rows of some sequences: of each its sequence; positions count up within each.
struct Batch {
  Ints sequences, positions, from, to;
};

/// Each sequence reads slot `from[s]` and leaves its state in `to[s]`.
Batch make_batch(const Ints& sequences, const Ints& from, const Ints& to) {
  Batch b{sequences, {}, {}, {}};
  Ints next(from.size(), 0);
  for (const int32_t s : sequences) {
    const auto i = static_cast<size_t>(s);
    b.positions.push_back(next[i]++);
    b.from.push_back(b.positions.back() == 0 ? from[i] : to[i]);
    b.to.push_back(to[i]);
  }
  return b;
}

BatchRows upload(Rig& rig, const Batch& b, int64_t n_sequences) {
  const auto n = static_cast<int64_t>(b.sequences.size());
  BatchRows rows;
  rows.tokens = rows.positions = rig.ints({n, 1, 1, 1}, b.positions);
  rows.sequences = rig.ints({n, 1, 1, 1}, b.sequences);
  rows.page_table = rig.ints({1, n_sequences, 1, 1}, Ints(static_cast<size_t>(n_sequences), 0));
  rows.states_from = rig.ints({n, 1, 1, 1}, b.from);
  rows.states_to = rig.ints({n, 1, 1, 1}, b.to);
  return rows;
}

/// The columns of row `r` of a tensor with so many.
Floats row_of(const Floats& all, size_t columns, size_t r) {
  return {all.begin() + static_cast<ptrdiff_t>(r * columns), all.begin() + static_cast<ptrdiff_t>((r + 1) * columns)};
}

constexpr int64_t kSlots = 5;
/// Two sequences in turn, the second with fewer rows; the first goes on from slot 3, the second begins.
const Ints kInterleaved{0, 1, 0, 0, 1, 0, 0};

// --- convolution ---

struct ConvCase {
  int64_t channels, taps;
  bool bias, silu;
};

struct Results {
  Floats out, memory;
  Floats both() const {
    Floats all = out;
    all.insert(all.end(), memory.begin(), memory.end());
    return all;
  }
};

Results run_conv(Rig& rig, const ConvCase& c, const Floats& x, const Floats& memory, const Batch& batch) {
  const auto n = static_cast<int64_t>(batch.sequences.size());
  const Tensor kept = rig.floats({c.channels, c.taps - 1, kSlots, 1}, memory);
  const Tensor out = rig.floats({c.channels, n, 1, 1});
  ConvParams params;
  params.weight = rig.floats({c.channels, c.taps, 1, 1}, noise(static_cast<size_t>(c.channels * c.taps), 2));
  if (c.bias) params.bias = rig.floats({c.channels, 1, 1, 1}, noise(static_cast<size_t>(c.channels), 3));
  params.silu = c.silu;
  rig->causal_conv(rig.floats({c.channels, n, 1, 1}, x), params, upload(rig, batch, 2), kept, out);
  return {rig.read(out), rig.read(kept)};
}

class Convolution : public testing::TestWithParam<ConvCase> {};

TEST_P(Convolution, TakesTheOrderOfTheRuleAndLeavesTheLastInputs) {
  const ConvCase& c = GetParam();
  const auto channels = static_cast<size_t>(c.channels), taps = static_cast<size_t>(c.taps), history = taps - 1;
  const Floats x = noise(channels * kInterleaved.size(), 1);
  const Floats memory = noise(channels * history * kSlots, 4);
  const Batch batch = make_batch(kInterleaved, {3, -1}, {4, 0});
  const Floats w = noise(channels * taps, 2), bias = noise(channels, 3);
  const Floats got = same_everywhere([&](Rig& rig) { return run_conv(rig, c, x, memory, batch).both(); });
  Floats want(channels * kInterleaved.size()), left = memory;
  for (size_t s = 0; s < 2; ++s) {
    std::vector<Floats> inputs;
    for (size_t j = 0; j < history; ++j)
      inputs.push_back(s == 0 ? row_of(memory, channels, 3 * history + j) : Floats(channels, 0.0f));
    for (size_t r = 0; r < kInterleaved.size(); ++r) {
      if (kInterleaved[r] != static_cast<int32_t>(s)) continue;
      inputs.push_back(row_of(x, channels, r));
      for (size_t ch = 0; ch < channels; ++ch) {
        float sum = 0.0f;
        for (size_t j = 0; j < taps; ++j) sum = sum + inputs[inputs.size() - taps + j][ch] * w[j * channels + ch];
        if (c.bias) sum = sum + bias[ch];
        want[r * channels + ch] = c.silu ? num::silu(sum) : sum;
      }
    }
    const size_t slot = s == 0 ? 4 : 0;
    for (size_t j = 0; j < history; ++j) {
      const Floats& last = inputs[inputs.size() - history + j];
      std::copy(last.begin(), last.end(), left.begin() + static_cast<ptrdiff_t>((slot * history + j) * channels));
    }
  }
  want.insert(want.end(), left.begin(), left.end());
  expect_same_bits(got, want, "convolution");
}

INSTANTIATE_TEST_SUITE_P(Shapes, Convolution,
                         testing::Values(ConvCase{37, 4, false, true}, ConvCase{8, 2, true, false},
                                         ConvCase{1300, 3, true, true}, ConvCase{5, 9, false, false}));

TEST(ConvolutionOfOneSlot, ShiftsInPlaceWhereRowsAreFewerThanTaps) {
  const ConvCase c{20, 6, false, false};
  const Floats x = noise(20 * 2, 1), memory = noise(20 * 5 * kSlots, 4);
  Rig rig;
  const Results got = run_conv(rig, c, x, memory, make_batch({0, 0}, {2, -1}, {2, 0}));
  for (size_t j = 0; j < 3; ++j) EXPECT_EQ(row_of(got.memory, 20, 2 * 5 + j), row_of(memory, 20, 2 * 5 + j + 2)) << j;
  for (size_t j = 3; j < 5; ++j) EXPECT_EQ(row_of(got.memory, 20, 2 * 5 + j), row_of(x, 20, j - 3)) << j;
}

// --- states ---

/// What delta_rule() and scan() have in common: inputs by row, a state by head.
struct StateCase {
  bool delta;
  int64_t width, rows, heads, groups;
  bool tiled;
  float least_decay = 0;  ///< below 0: a decay for each element of a key
  int64_t decays() const { return least_decay < 0 ? width * heads : heads; }
};

struct StateInputs {
  Floats a, b, x, step, decay, bias, factor, skip, memory;
};

StateInputs make_inputs(const StateCase& c, size_t n) {
  const auto size = [n](int64_t each) { return static_cast<size_t>(each) * n; };
  const auto heads = static_cast<size_t>(c.heads);
  StateInputs in;
  in.a = noise(size(c.width * c.groups), 1);
  in.b = noise(size(c.width * c.groups), 2);
  in.x = noise(size(c.rows * c.heads), 3);
  in.step = noise(size(c.heads), 4, 2.0f);
  in.decay = noise(size(c.decays()), 5, 2.0f);
  in.bias = noise(static_cast<size_t>(c.decays()), 6);
  in.factor = noise(heads, 7);
  in.skip = noise(heads, 8);
  in.memory = noise(static_cast<size_t>(c.width * c.rows * c.heads * kSlots), 9);
  for (float& f : in.factor) f = -0.1f - std::abs(f);
  if (!in.decay.empty()) in.decay[0] = 30.0f;  // beyond softplus's linear end
  if (!in.step.empty()) in.step[0] = 25.0f;
  return in;
}

Results run_state(Rig& rig, const StateCase& c, const StateInputs& in, const Batch& batch) {
  const auto n = static_cast<int64_t>(batch.sequences.size());
  const BatchRows rows = upload(rig, batch, 2);
  const Tensor memory = rig.floats({c.width, c.rows, c.heads, kSlots}, in.memory);
  const Tensor out = rig.floats({c.rows, c.heads, n, 1});
  const Tensor a = rig.floats({c.width, c.groups, n, 1}, in.a), b = rig.floats({c.width, c.groups, n, 1}, in.b);
  const Tensor x = rig.floats({c.rows, c.heads, n, 1}, in.x), step = rig.floats({c.heads, n, 1, 1}, in.step);
  const Tensor bias = rig.floats(c.least_decay < 0 ? std::array<int64_t, 4>{c.width, c.heads, 1, 1}
                                                   : std::array<int64_t, 4>{c.heads, 1, 1, 1},
                                 in.bias),
               factor = rig.floats({c.heads, 1, 1, 1}, in.factor);
  if (c.delta) {
    rig->delta_rule({.query = a,
                     .key = b,
                     .value = x,
                     .decay = c.least_decay < 0 ? rig.floats({c.width, c.heads, n, 1}, in.decay)
                                                : rig.floats({c.heads, n, 1, 1}, in.decay),
                     .step = step,
                     .bias = bias,
                     .factor = factor,
                     .tiled = c.tiled,
                     .least_decay = c.least_decay},
                    rows, memory, out);
  } else {
    rig->scan({.x = x,
               .b = a,
               .c = b,
               .step = step,
               .bias = bias,
               .factor = factor,
               .skip = rig.floats({c.heads, 1, 1, 1}, in.skip)},
              rows, memory, out);
  }
  return {rig.read(out), rig.read(memory)};
}

double soft(double x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}

/// The same in float64, step by step.
Floats plain_outputs(const StateCase& c, const StateInputs& in, const Batch& batch) {
  const auto width = static_cast<size_t>(c.width), rows = static_cast<size_t>(c.rows);
  const auto heads = static_cast<size_t>(c.heads), groups = static_cast<size_t>(c.groups), n = batch.sequences.size();
  Floats out(rows * heads * n);
  for (size_t s = 0; s < 2; ++s) {
    for (size_t h = 0; h < heads; ++h) {
      std::vector<double> state(width * rows, 0.0);
      bool first = true;
      for (size_t r = 0; r < n; ++r) {
        if (batch.sequences[r] != static_cast<int32_t>(s)) continue;
        if (first && batch.from[r] >= 0) {
          const size_t at = (static_cast<size_t>(batch.from[r]) * heads + h) * rows * width;
          for (size_t i = 0; i < state.size(); ++i) state[i] = in.memory[at + i];
        }
        first = false;
        const size_t g = c.delta && c.tiled ? h % groups : h / (heads / groups);
        const float* a = &in.a[(r * groups + g) * width];
        const float* b = &in.b[(r * groups + g) * width];
        const double step = in.step[r * heads + h];
        const auto element_decay = [&](size_t i) {
          const double raw = in.decay[(r * heads + h) * width + i] + in.bias[h * width + i];
          return std::exp(c.least_decay / (1 + std::exp(-in.factor[h] * raw)));
        };
        const double t = c.least_decay < 0 ? 0
                         : c.delta         ? soft(in.decay[r * heads + h] + in.bias[h])
                                           : soft(step + in.bias[h]);
        const double decay = std::exp(t * in.factor[h]);
        for (size_t j = 0; j < rows; ++j) {
          double* row = &state[j * width];
          const double x = in.x[(r * heads + h) * rows + j];
          double known = 0, read = 0;
          for (size_t i = 0; i < width; ++i) row[i] *= c.least_decay < 0 ? element_decay(i) : decay;
          if (c.delta) {
            for (size_t i = 0; i < width; ++i) known += row[i] * b[i];
            const double change = (x - known) / (1 + std::exp(-step));
            for (size_t i = 0; i < width; ++i) row[i] += b[i] * change;
            for (size_t i = 0; i < width; ++i) read += row[i] * a[i];
            out[(r * heads + h) * rows + j] = static_cast<float>(read / std::sqrt(static_cast<double>(width)));
          } else {
            for (size_t i = 0; i < width; ++i) row[i] += a[i] * x * t;
            for (size_t i = 0; i < width; ++i) read += row[i] * b[i];
            out[(r * heads + h) * rows + j] = static_cast<float>(read + in.skip[h] * x);
          }
        }
      }
    }
  }
  return out;
}

class States : public testing::TestWithParam<StateCase> {};

TEST_P(States, AreCloseToFloat64AndTheSameEverywhere) {
  const StateCase& c = GetParam();
  const StateInputs in = make_inputs(c, kInterleaved.size());
  const Batch batch = make_batch(kInterleaved, {3, -1}, {4, 0});
  const Floats got = same_everywhere([&](Rig& rig) { return run_state(rig, c, in, batch).both(); });
  const Floats want = plain_outputs(c, in, batch);
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5 * (1 + std::abs(want[i]))) << i;
  // Slots that nobody writes are as they were.
  const auto each = static_cast<size_t>(c.width * c.rows * c.heads);
  for (const size_t slot : {1u, 2u, 3u}) {
    for (size_t i = slot * each; i < (slot + 1) * each; ++i) ASSERT_EQ(got[want.size() + i], in.memory[i]);
  }
}

TEST_P(States, DoNotDependOnHowRowsAreCut) {
  const StateCase& c = GetParam();
  const StateInputs in = make_inputs(c, 6);
  Rig rig(Isa::automatic, 2);
  const Batch whole = make_batch({0, 0, 0, 0, 0, 0}, {3}, {4});
  const Results all = run_state(rig, c, in, whole);
  StateInputs rest = in;
  Floats out;
  for (size_t first = 0; first < 6; first += 2) {
    const auto slice = [&](const Floats& from, int64_t each) {
      const auto k = static_cast<size_t>(each);
      return Floats(from.begin() + static_cast<ptrdiff_t>(first * k),
                    from.begin() + static_cast<ptrdiff_t>((first + 2) * k));
    };
    StateInputs part = rest;
    part.a = slice(in.a, c.width * c.groups);
    part.b = slice(in.b, c.width * c.groups);
    part.x = slice(in.x, c.rows * c.heads);
    part.step = slice(in.step, c.heads);
    part.decay = slice(in.decay, c.decays());
    const Results piece = run_state(rig, c, part, make_batch({0, 0}, {first == 0 ? 3 : 4}, {4}));
    out.insert(out.end(), piece.out.begin(), piece.out.end());
    rest.memory = piece.memory;
  }
  expect_same_bits(out, all.out, "outputs");
  expect_same_bits(rest.memory, all.memory, "states");
}

INSTANTIATE_TEST_SUITE_P(Shapes, States,
                         testing::Values(StateCase{true, 16, 16, 4, 2, false}, StateCase{true, 48, 48, 6, 2, true},
                                         StateCase{true, 128, 128, 2, 1, false},
                                         StateCase{true, 32, 32, 4, 4, false, -5.0f},
                                         StateCase{false, 16, 5, 4, 2, false}, StateCase{false, 32, 40, 3, 1, false}));

/// The order of sums, for one head and one row of state.
TEST(DeltaRule, TakesTheOrderOfTheRule) {
  const StateCase c{true, 32, 32, 1, 1, false};
  const StateInputs in = make_inputs(c, 2);
  Rig rig;
  const Results got = run_state(rig, c, in, make_batch({0, 0}, {1}, {1}));
  for (size_t j = 0; j < 32; ++j) {
    Floats state = row_of(in.memory, 32, 32 + j);
    for (size_t r = 0; r < 2; ++r) {
      const float raw = in.decay[r] + in.bias[0];
      const float t = raw > 20.0f ? raw : static_cast<float>(std::log(1.0 + static_cast<double>(num::exp(raw))));
      const float decay = num::exp(in.factor[0] * t), beta = num::sigmoid(in.step[r]);
      Floats known(16, 0.0f), read(16, 0.0f);
      for (size_t i = 0; i < 32; ++i) {
        state[i] = state[i] * decay;
        known[i % 16] = known[i % 16] + state[i] * in.b[r * 32 + i];
      }
      const float change = beta * (in.x[r * 32 + j] - plain_tree16(known));
      for (size_t i = 0; i < 32; ++i) {
        state[i] = state[i] + in.b[r * 32 + i] * change;
        read[i % 16] = read[i % 16] + state[i] * in.a[r * 32 + i];
      }
      const float want = static_cast<float>(1.0 / std::sqrt(32.0)) * plain_tree16(read);
      ASSERT_NEAR(got.out[r * 32 + j], want, 1e-6f * std::abs(want) + 1e-7f);
    }
  }
}

TEST(Recurrent, WrongOperandsEndInASentence) {
  const StateCase c{true, 16, 16, 4, 2, false};
  const StateInputs in = make_inputs(c, 3);
  Rig rig;
  EXPECT_THROW(run_state(rig, c, in, make_batch({0, 0, 0}, {kSlots}, {0})), Error);
  EXPECT_THROW(run_state(rig, c, in, make_batch({0, 0, 0}, {-2}, {0})), Error);
  EXPECT_THROW(run_state(rig, c, in, make_batch({0, 0, 0}, {0}, {-1})), Error);
  const StateCase uneven{true, 16, 16, 4, 3, false};
  EXPECT_THROW(run_state(rig, uneven, make_inputs(uneven, 3), make_batch({0, 0, 0}, {0}, {1})), Error);
  const StateCase odd{false, 24, 4, 4, 2, false};
  EXPECT_THROW(run_state(rig, odd, make_inputs(odd, 3), make_batch({0, 0, 0}, {0}, {1})), Error);
}

}  // namespace
}  // namespace moetier
