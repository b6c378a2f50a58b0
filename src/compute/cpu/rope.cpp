#include "compute/cpu/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "compute/cpu/math64.h"
#include "compute/cpu/operand.h"
#include "compute/cpu/share.h"

namespace moetier::cpu {
namespace {

void check(const RopeParams& params) {
  if (params.dims <= 0 || params.dims % 2 != 0) {
    fail("rope_table: {} rotated elements are not a positive even number", params.dims);
  }
  if (params.step < 1) fail("rope_table: steps of {} positions are not possible", params.step);
  if (!(std::isnormal(params.base) && params.base > 0.0)) {
    fail("rope_table: the frequency base {} is not a positive number", params.base);
  }
  if (params.ext_factor != 0.0 &&
      !(params.original_context > 0 && params.beta_fast > 0.0 && params.beta_slow > 0.0 && params.base != 1.0)) {
    fail(
        "rope_table: YaRN needs an original context above 0 (it is {}), betas above 0 (they are {} and {}) and a base "
        "other than 1",
        params.original_context, params.beta_fast, params.beta_slow);
  }
}

/// The pair whose wave turns `turns` times within the original context, as a fraction (the YaRN paper's boundary).
double boundary(const RopeParams& params, double turns) {
  const double wave = static_cast<double>(params.original_context) / (2.0 * std::numbers::pi * turns);
  return static_cast<double>(params.dims) * num::log64(wave) / (2.0 * num::log64(params.base));
}

/// cos and sin of one position, rounded once.
void fill_row(const std::vector<double>& frequencies, double position, double magnitude, float* row) {
  const size_t half = frequencies.size();
  for (size_t i = 0; i < half; ++i) {
    const auto [sine, cosine] = num::sine_cosine64(position * frequencies[i]);
    row[i] = static_cast<float>(cosine * magnitude);
    row[half + i] = static_cast<float>(sine * magnitude);
  }
}

/// Turns a pair back: the rotation by the negated angle.
void turn_back(float& a, float& b, float cosine, float sine) {
  const float x = a * cosine + b * sine;
  b = b * cosine - a * sine;
  a = x;
}
void neighbours_back(float* x, const float* cosines, const float* sines, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) turn_back(x[2 * i], x[2 * i + 1], cosines[i], sines[i]);
}
void halves_back(float* x, const float* cosines, const float* sines, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) turn_back(x[i], x[i + pairs], cosines[i], sines[i]);
}

}  // namespace

void rope_frequencies(const RopeParams& params, const float* factors, std::vector<double>& out) {
  check(params);
  const int64_t half = params.dims / 2;
  const double log_base = num::log64(params.base);
  double low = 0.0, width = 1.0;
  if (params.ext_factor != 0.0) {
    low = std::max(0.0, std::floor(boundary(params, params.beta_fast)));
    const double high = std::min(static_cast<double>(params.dims - 1), std::ceil(boundary(params, params.beta_slow)));
    width = std::max(0.001, high - low);
  }
  out.resize(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i) {
    const double index = static_cast<double>(i);
    double theta = num::exp64(-(2.0 * index / static_cast<double>(params.dims)) * log_base);
    if (factors != nullptr) theta = theta / static_cast<double>(factors[i]);
    double frequency = params.freq_scale * theta;
    if (params.ext_factor != 0.0) {
      const double ramp = params.ext_factor * (1.0 - std::clamp((index - low) / width, 0.0, 1.0));
      frequency = frequency * (1.0 - ramp) + theta * ramp;
    }
    out[static_cast<size_t>(i)] = frequency;
  }
}

void rope_table(ThreadPool& pool, const RopeParams& params, const Tensor& positions, const Tensor& table,
                std::vector<double>& frequencies) {
  const char* op = "rope_table";
  const IntsIn at_positions = ints_in(positions, {op, "positions"});
  const FloatsOut to = floats_out(table, {op, "table"});
  const int64_t count = positions.shape[0];
  require_shape(positions, {count, 1, 1, 1}, {op, "positions"});
  require_shape(table, {params.dims, count, 1, 1}, {op, "table"});
  const float* factors = nullptr;
  if (!params.factors.empty()) {
    factors = floats_in(params.factors, {op, "factors"}).row(0);
    require_shape(params.factors, {params.dims / 2, 1, 1, 1}, {op, "factors"});
  }
  rope_frequencies(params, factors, frequencies);
  share(pool, count, 50 * params.dims, [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r) {
      const int64_t position = at(at_positions, r) / params.step * params.step;
      fill_row(frequencies, static_cast<double>(position), params.magnitude, to.row(r));
    }
  });
}

void rope(ThreadPool& pool, const RowOps& ops, const Tensor& x, const Tensor& table, RopePairs pairs, bool back) {
  const char* op = "rope";
  const FloatsOut to = floats_out(x, {op, "x"});
  const FloatsIn angles = floats_in(table, {op, "table"});
  const int64_t heads = x.shape[1], count = x.shape[2], dims = table.shape[0];
  require_shape(x, {x.shape[0], heads, count, 1}, {op, "x"});
  require_shape(table, {dims, count, 1, 1}, {op, "table"});
  if (dims % 2 != 0 || dims > to.columns) {
    fail("{}: a table of {} elements does not fit heads of {}", op, dims, to.columns);
  }
  const auto forth = pairs == RopePairs::halves ? ops.rotate_halves : ops.rotate_neighbours;
  const auto rotate = back ? (pairs == RopePairs::halves ? halves_back : neighbours_back) : forth;
  share(pool, count, heads * dims * 2, [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r) {
      const float* cosines = angles.row(r);
      for (int64_t head = 0; head < heads; ++head)
        rotate(to.row(r * heads + head), cosines, cosines + dims / 2, dims / 2);
    }
  });
}

}  // namespace moetier::cpu
