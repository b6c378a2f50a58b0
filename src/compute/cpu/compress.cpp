// Recurrent::compress: one row out of each block of positions.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "compute/cpu/math.h"
#include "compute/cpu/recurrent.h"
#include "compute/cpu/share.h"

namespace moetier::cpu {
namespace {

/// Channels that a thread takes at once.
constexpr int64_t kChannels = 256;
constexpr int64_t kMaxRatio = 4096;

/// Columns of some channels, and what is summed up of them.
struct Softmax {
  float m[kChannels], l[kChannels], o[kChannels];
};

/// Where a call's numbers stand. A remembered position is a row: its values, then its gates.
struct Place {
  const CompressParams& in;
  int64_t channels = 0, width = 0;  ///< width: of what comes out

  int64_t ring() const { return in.remembered(); }
  int halves() const { return in.overlapping ? 2 : 1; }
};

/// The block that ends at `position`, for channels [c, c + n). row(p) is what is remembered of a position.
template <typename Row>
void compress_block(const Place& place, int64_t position, int64_t c, int64_t n, Row row, float* out) {
  Softmax s;
  const int64_t ratio = place.in.ratio, start = position + 1 - ratio;
  // Calls body(values, gates) for all positions, ascending.
  const auto for_positions = [&](auto body) {
    if (place.in.overlapping && start > 0) {
      for (int64_t p = start - ratio; p < start; ++p) body(row(p) + c, row(p) + place.channels + c);
    }
    const int64_t half = place.in.overlapping ? place.width : 0;
    for (int64_t p = start; p <= position; ++p) body(row(p) + half + c, row(p) + place.channels + half + c);
  };
  bool first = true;
  for_positions([&](const float*, const float* gates) {
    for (int64_t i = 0; i < n; ++i) s.m[i] = first ? gates[i] : num::max(gates[i], s.m[i]);
    first = false;
  });
  std::fill_n(s.l, n, 0.0f);
  std::fill_n(s.o, n, 0.0f);
  for_positions([&](const float* values, const float* gates) {
    for (int64_t i = 0; i < n; ++i) {
      const float e = num::exp(gates[i] - s.m[i]);
      s.l[i] = s.l[i] + e;
      s.o[i] = s.o[i] + e * values[i];
    }
  });
  for (int64_t i = 0; i < n; ++i) out[i] = s.o[i] / s.l[i];
}

}  // namespace

void Recurrent::compress(const CompressParams& in, const BatchRows& rows, const Tensor& memory, const Tensor& out) {
  const char* op = "compress";
  const FloatsIn values = floats_in(in.values, {op, "values"}), gates = floats_in(in.gates, {op, "gates"});
  const FloatsIn bias = floats_in(in.bias, {op, "bias"});
  const FloatsOut to = floats_out(out, {op, "out"}), state = floats_out(memory, {op, "memory"});
  const int64_t channels = in.values.shape[0], count = in.values.shape[1];
  if (in.ratio < 1 || in.ratio > kMaxRatio) fail("{}: blocks of {} positions are not possible", op, in.ratio);
  if (in.overlapping && channels % 2 != 0) fail("{}: {} channels are not two halves", op, channels);
  const Place place{in, channels, in.overlapping ? channels / 2 : channels};
  const int64_t ring = place.ring();
  for (const Tensor* t : {&in.values, &in.gates}) require_shape(*t, {channels, count, 1, 1}, {op, "values or gates"});
  require_shape(in.bias, {channels, in.ratio, 1, 1}, {op, "bias"});
  require_shape(memory, {2 * channels, ring, memory.shape[2], 1}, {op, "memory"});
  require_shape(out, {place.width, count, 1, 1}, {op, "out"});
  require_shape(rows.positions, {count, 1, 1, 1}, {op, "positions"});
  const IntsIn positions = ints_in(rows.positions, {op, "positions"});
  make_runs(rows, memory.shape[2], op);
  const int64_t parts = ceil_div(place.width, kChannels), runs = static_cast<int64_t>(runs_.size());
  const int64_t cost = count / std::max<int64_t>(runs, 1) * std::min(place.width, kChannels) * 40;
  share(pool_, runs * parts, cost, [&](int64_t first, int64_t last, int) {
    for (int64_t i = first; i < last; ++i) {
      const Run& run = runs_[static_cast<size_t>(i / parts)];
      const int64_t c = i % parts * kChannels, n = std::min(kChannels, place.width - c);
      const auto kept = [&](int64_t slot, int64_t position) { return state.row(slot * ring + position % ring); };
      // Calls body(column) for each stretch of a remembered row that belongs to these channels: values, then gates.
      const auto for_stretches = [&](auto body) {
        for (int half = 0; half < place.halves(); ++half) body(half * place.width + c);
      };
      if (run.from != run.to) {
        for (int64_t p = 0; p < ring; ++p) {
          for_stretches([&](int64_t column) {
            for (const int64_t at : {column, channels + column}) {
              if (run.from < 0) {
                std::fill_n(kept(run.to, p) + at, n, 0.0f);
              } else {
                std::memcpy(kept(run.to, p) + at, kept(run.from, p) + at, static_cast<size_t>(n) * sizeof(float));
              }
            }
          });
        }
      }
      for (int64_t t = 0; t < run.count; ++t) {
        const int64_t r = order_[static_cast<size_t>(run.first + t)], position = at(positions, r);
        float* own = kept(run.to, position);
        const float* own_bias = bias.row(position % in.ratio);
        for_stretches([&](int64_t column) {
          std::memcpy(own + column, values.row(r) + column, static_cast<size_t>(n) * sizeof(float));
          for (int64_t j = column; j < column + n; ++j) own[channels + j] = gates.row(r)[j] + own_bias[j];
        });
        if ((position + 1) % in.ratio == 0) {
          compress_block(
              place, position, c, n, [&](int64_t p) { return kept(run.to, p); }, to.row(r) + c);
        } else {
          std::fill_n(to.row(r) + c, n, 0.0f);
        }
      }
    }
  });
}

}  // namespace moetier::cpu
