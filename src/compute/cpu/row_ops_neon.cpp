#include "compute/cpu/row_ops.h"

#if defined(__aarch64__)

#include <cmath>

#include "compute/cpu/math_neon.h"

namespace moetier::cpu {
namespace {

using num::Partials;

/// out[c] = f(a[c], b[c]) for all c < n; f takes four values or one.
template <typename F>
MOETIER_INLINE void map2(const float* a, const float* b, int64_t n, float* out, F f) {
  int64_t c = 0;
  for (; c + 4 <= n; c += 4) vst1q_f32(out + c, f(vld1q_f32(a + c), vld1q_f32(b + c)));
  for (; c < n; ++c) {
    // The last ones in the first lane each, with the same operations.
    vst1q_lane_f32(out + c, f(vld1q_dup_f32(a + c), vld1q_dup_f32(b + c)), 0);
  }
}

/// The last n mod 16 of the row's columns, and `other` beyond.
struct Tail {
  float columns[16];
  MOETIER_INLINE Tail(const float* x, int64_t n, float other) {
    const int64_t whole = n - n % 16;
    for (int64_t i = 0; i < 16; ++i) columns[i] = whole + i < n ? x[whole + i] : other;
  }
};

MOETIER_INLINE float sum_of_squares(const float* x, int64_t n) {
  Partials sums(0.0f);
  const auto add16 = [&](const float* from) {
    for (int i = 0; i < 4; ++i) {
      const float32x4_t v = vld1q_f32(from + 4 * i);
      sums.p[i] = vaddq_f32(sums.p[i], vmulq_f32(v, v));
    }
  };
  for (int64_t c = 0; c + 16 <= n; c += 16) add16(x + c);
  // Adding +0 for the columns that are not there changes no partial sum: they start at +0 and so are never -0.
  if (n % 16 != 0) add16(Tail(x, n, 0.0f).columns);
  return sums.tree();
}

void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* out) {
  const float mean = sum_of_squares(x, n) / static_cast<float>(n);
  const float factor = 1.0f / std::sqrt(mean + eps);
  if (weight == nullptr) {
    map2(x, x, n, out, [factor](float32x4_t a, float32x4_t) { return vmulq_n_f32(a, factor); });
  } else {
    map2(x, weight, n, out, [factor](float32x4_t a, float32x4_t w) { return vmulq_f32(vmulq_n_f32(a, factor), w); });
  }
}

void add(const float* a, const float* b, int64_t n, float* out) {
  map2(a, b, n, out, [](float32x4_t x, float32x4_t y) { return vaddq_f32(x, y); });
}

void silu_glu(const float* gate, const float* up, int64_t n, float* out) {
  map2(gate, up, n, out, [](float32x4_t g, float32x4_t u) { return vmulq_f32(num::silu4(g), u); });
}

void gelu_glu(const float* gate, const float* up, int64_t n, float* out) {
  map2(gate, up, n, out, [](float32x4_t g, float32x4_t u) { return vmulq_f32(num::gelu4(g), u); });
}

void sigmoid_glu(const float* gate, const float* up, int64_t n, float* out) {
  map2(gate, up, n, out, [](float32x4_t g, float32x4_t u) { return vmulq_f32(num::sigmoid4(g), u); });
}

void relu_glu(const float* gate, const float* up, int64_t n, float* out) {
  map2(gate, up, n, out, [](float32x4_t g, float32x4_t u) { return vmulq_f32(num::relu4(g), u); });
}

void multiply(const float* a, const float* b, int64_t n, float* out) {
  map2(a, b, n, out, [](float32x4_t x, float32x4_t y) { return vmulq_f32(x, y); });
}

void scale(float factor, const float* x, int64_t n, float* out) {
  map2(x, x, n, out, [factor](float32x4_t a, float32x4_t) { return vmulq_n_f32(a, factor); });
}

/// (a, b) -> (a*cos - b*sin, a*sin + b*cos).
MOETIER_INLINE void turn(float32x4_t& a, float32x4_t& b, float32x4_t cosine, float32x4_t sine) {
  const float32x4_t first = vsubq_f32(vmulq_f32(a, cosine), vmulq_f32(b, sine));
  b = vaddq_f32(vmulq_f32(a, sine), vmulq_f32(b, cosine));
  a = first;
}

MOETIER_INLINE void turn_one(float& a, float& b, float cosine, float sine) {
  const float first = a * cosine - b * sine;
  b = a * sine + b * cosine;
  a = first;
}

void rotate_halves(float* x, const float* cosines, const float* sines, int64_t pairs) {
  float* y = x + pairs;
  int64_t i = 0;
  for (; i + 4 <= pairs; i += 4) {
    float32x4_t a = vld1q_f32(x + i), b = vld1q_f32(y + i);
    turn(a, b, vld1q_f32(cosines + i), vld1q_f32(sines + i));
    vst1q_f32(x + i, a);
    vst1q_f32(y + i, b);
  }
  for (; i < pairs; ++i) turn_one(x[i], y[i], cosines[i], sines[i]);
}

void rotate_neighbours(float* x, const float* cosines, const float* sines, int64_t pairs) {
  int64_t i = 0;
  for (; i + 4 <= pairs; i += 4) {
    float32x4x2_t ab = vld2q_f32(x + 2 * i);
    turn(ab.val[0], ab.val[1], vld1q_f32(cosines + i), vld1q_f32(sines + i));
    vst2q_f32(x + 2 * i, ab);
  }
  for (; i < pairs; ++i) turn_one(x[2 * i], x[2 * i + 1], cosines[i], sines[i]);
}

void softmax(const float* x, int64_t n, float* out) {
  constexpr float kLowest = -__builtin_inff();
  const int64_t whole = n - n % 16;
  const auto tail_lanes = [&](int i) { return num::lanes4(static_cast<int>(n - whole) - 4 * i); };
  const Tail tail(x, n, kLowest);
  Partials maxima(kLowest);
  for (int64_t c = 0; c < whole; c += 16) {
    for (int i = 0; i < 4; ++i) maxima.p[i] = num::max4(maxima.p[i], vld1q_f32(x + c + 4 * i));
  }
  // A partial maximum may be a NaN, which the missing lanes must leave alone: max(NaN, -infinity) would not.
  for (int i = 0; i < 4; ++i) {
    const float32x4_t with_tail = num::max4(maxima.p[i], vld1q_f32(tail.columns + 4 * i));
    maxima.p[i] = vbslq_f32(tail_lanes(i), with_tail, maxima.p[i]);
  }
  const float32x4_t m = vdupq_n_f32(maxima.max_tree());
  Partials sums(0.0f);
  for (int64_t c = 0; c < whole; c += 16) {
    for (int i = 0; i < 4; ++i) {
      const float32x4_t e = num::exp4(vsubq_f32(vld1q_f32(x + c + 4 * i), m));
      vst1q_f32(out + c + 4 * i, e);
      sums.p[i] = vaddq_f32(sums.p[i], e);
    }
  }
  if (whole < n) {
    float e[16];
    for (int i = 0; i < 4; ++i) {
      const float32x4_t four = num::exp4(vsubq_f32(vld1q_f32(tail.columns + 4 * i), m));
      vst1q_f32(e + 4 * i, four);
      sums.p[i] = vaddq_f32(sums.p[i], num::masked4(four, tail_lanes(i)));
    }
    for (int64_t c = whole; c < n; ++c) out[c] = e[c - whole];
  }
  const float32x4_t sum = vdupq_n_f32(sums.tree());
  map2(out, out, n, out, [sum](float32x4_t e, float32x4_t) { return vdivq_f32(e, sum); });
}

void to_f16(const float* x, int64_t n, uint16_t* out) {
  const auto narrow = [](float32x4_t v) { return vreinterpret_u16_f16(vcvt_f16_f32(v)); };
  int64_t c = 0;
  for (; c + 4 <= n; c += 4) vst1_u16(out + c, narrow(vld1q_f32(x + c)));
  for (; c < n; ++c) vst1_lane_u16(out + c, narrow(vld1q_dup_f32(x + c)), 0);
}

void from_f16(const uint16_t* x, int64_t n, float* out) {
  int64_t c = 0;
  for (; c + 4 <= n; c += 4) vst1q_f32(out + c, num::widen_f16x4(x + c));
  for (; c < n; ++c) vst1q_lane_f32(out + c, vcvt_f32_f16(vreinterpret_f16_u16(vld1_dup_u16(x + c))), 0);
}

}  // namespace

const RowOps& row_ops_neon() {
  static constexpr RowOps kOps{rms_norm, add,           silu_glu,          gelu_glu, sigmoid_glu, relu_glu, multiply,
                               scale,    rotate_halves, rotate_neighbours, softmax,  to_f16,      from_f16};
  return kOps;
}

}  // namespace moetier::cpu

#endif
