#include "compute/cpu/row_ops.h"

#if defined(__x86_64__)

#include "compute/cpu/math_avx2.h"
#include "quant/blocks.h"

namespace moetier::cpu {
namespace {

/// What is left of n after i, at most 8, as a mask.
MOETIER_INLINE __m256i tail8(int64_t n, int64_t i) {
  return num::lanes8(static_cast<int>(n - i));
}

/// out[c] = f(a[c], b[c]) for all c < n; f must not trap on zeros.
template <typename F>
MOETIER_INLINE void map2(const float* a, const float* b, int64_t n, float* out, F f) {
  int64_t c = 0;
  for (; c + 8 <= n; c += 8) _mm256_storeu_ps(out + c, f(_mm256_loadu_ps(a + c), _mm256_loadu_ps(b + c)));
  if (c < n) {
    const __m256i tail = tail8(n, c);
    _mm256_maskstore_ps(out + c, tail, f(_mm256_maskload_ps(a + c, tail), _mm256_maskload_ps(b + c, tail)));
  }
}

float sum_of_squares(const float* x, int64_t n) {
  __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
  int64_t c = 0;
  for (; c + 16 <= n; c += 16) {
    const __m256 a = _mm256_loadu_ps(x + c), b = _mm256_loadu_ps(x + c + 8);
    low = _mm256_add_ps(low, _mm256_mul_ps(a, a));
    high = _mm256_add_ps(high, _mm256_mul_ps(b, b));
  }
  // Adding +0 for the columns that are not there changes no partial sum: they start at +0 and so are never -0.
  if (c + 8 <= n) {
    const __m256 a = _mm256_loadu_ps(x + c);
    low = _mm256_add_ps(low, _mm256_mul_ps(a, a));
    c += 8;
    if (c < n) {
      const __m256 b = _mm256_maskload_ps(x + c, tail8(n, c));
      high = _mm256_add_ps(high, _mm256_mul_ps(b, b));
    }
  } else if (c < n) {
    const __m256 a = _mm256_maskload_ps(x + c, tail8(n, c));
    low = _mm256_add_ps(low, _mm256_mul_ps(a, a));
  }
  return num::tree16(low, high);
}

void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* out) {
  const float mean = sum_of_squares(x, n) / static_cast<float>(n);
  const __m128 root = _mm_sqrt_ss(_mm_set_ss(mean + eps));
  const __m256 factor = _mm256_set1_ps(1.0f / _mm_cvtss_f32(root));
  if (weight == nullptr) {
    map2(x, x, n, out, [&](__m256 a, __m256) { return _mm256_mul_ps(a, factor); });
  } else {
    map2(x, weight, n, out, [&](__m256 a, __m256 w) { return _mm256_mul_ps(_mm256_mul_ps(a, factor), w); });
  }
}

void add(const float* a, const float* b, int64_t n, float* out) {
  map2(a, b, n, out, [](__m256 x, __m256 y) { return _mm256_add_ps(x, y); });
}

void silu_glu(const float* gate, const float* up, int64_t n, float* out) {
  map2(gate, up, n, out, [](__m256 g, __m256 u) { return _mm256_mul_ps(num::silu8(g), u); });
}

void gelu_glu(const float* gate, const float* up, int64_t n, float* out) {
  map2(gate, up, n, out, [](__m256 g, __m256 u) { return _mm256_mul_ps(num::gelu8(g), u); });
}

void sigmoid_glu(const float* gate, const float* up, int64_t n, float* out) {
  map2(gate, up, n, out, [](__m256 g, __m256 u) { return _mm256_mul_ps(num::sigmoid8(g), u); });
}

void relu_glu(const float* gate, const float* up, int64_t n, float* out) {
  map2(gate, up, n, out, [](__m256 g, __m256 u) { return _mm256_mul_ps(num::relu8(g), u); });
}

void multiply(const float* a, const float* b, int64_t n, float* out) {
  map2(a, b, n, out, [](__m256 x, __m256 y) { return _mm256_mul_ps(x, y); });
}

void scale(float factor, const float* x, int64_t n, float* out) {
  const __m256 f = _mm256_set1_ps(factor);
  map2(x, x, n, out, [&](__m256 a, __m256) { return _mm256_mul_ps(f, a); });
}

void rotate_halves(float* x, const float* cosines, const float* sines, int64_t pairs) {
  const auto turn = [](__m256 a, __m256 b, __m256 cosine, __m256 sine, __m256& first, __m256& second) {
    first = _mm256_sub_ps(_mm256_mul_ps(a, cosine), _mm256_mul_ps(b, sine));
    second = _mm256_add_ps(_mm256_mul_ps(a, sine), _mm256_mul_ps(b, cosine));
  };
  __m256 first, second;
  float* y = x + pairs;
  int64_t i = 0;
  for (; i + 8 <= pairs; i += 8) {
    turn(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i), _mm256_loadu_ps(cosines + i), _mm256_loadu_ps(sines + i),
         first, second);
    _mm256_storeu_ps(x + i, first);
    _mm256_storeu_ps(y + i, second);
  }
  if (i < pairs) {
    const __m256i tail = tail8(pairs, i);
    turn(_mm256_maskload_ps(x + i, tail), _mm256_maskload_ps(y + i, tail), _mm256_maskload_ps(cosines + i, tail),
         _mm256_maskload_ps(sines + i, tail), first, second);
    _mm256_maskstore_ps(x + i, tail, first);
    _mm256_maskstore_ps(y + i, tail, second);
  }
}

void rotate_neighbours(float* x, const float* cosines, const float* sines, int64_t pairs) {
  // Four pairs at a time: [a0 b0 a1 b1 ...] with every cosine and sine doubled; b*cos + a*sin has the bits of a*sin +
  // b*cos.
  const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  int64_t i = 0;
  for (; i + 4 <= pairs; i += 4) {
    const __m256 v = _mm256_loadu_ps(x + 2 * i);
    const __m256 c = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(cosines + i)), twice);
    const __m256 s = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(sines + i)), twice);
    const __m256 swapped = _mm256_permute_ps(v, 0xb1);
    _mm256_storeu_ps(x + 2 * i, _mm256_addsub_ps(_mm256_mul_ps(v, c), _mm256_mul_ps(swapped, s)));
  }
  for (; i < pairs; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cosines[i] - b * sines[i];
    x[2 * i + 1] = a * sines[i] + b * cosines[i];
  }
}

/// Lanes that are not there, at the end of a row, become `other`.
MOETIER_INLINE __m256 load_or(const float* at, __m256i lanes, float other) {
  return _mm256_blendv_ps(_mm256_set1_ps(other), _mm256_maskload_ps(at, lanes), _mm256_castsi256_ps(lanes));
}

void softmax(const float* x, int64_t n, float* out) {
  const float lowest = -__builtin_inff();
  const int64_t whole = n - n % 8;
  const __m256i tail = tail8(n, whole);
  __m256 max[2] = {_mm256_set1_ps(lowest), _mm256_set1_ps(lowest)};
  for (int64_t i = 0; i < whole; i += 8) max[i / 8 % 2] = _mm256_max_ps(max[i / 8 % 2], _mm256_loadu_ps(x + i));
  // A partial maximum may be a NaN, which the missing lanes must leave alone: max(NaN, -infinity) would not.
  __m256& last_max = max[whole / 8 % 2];
  if (whole < n) {
    const __m256 with_tail = _mm256_max_ps(last_max, load_or(x + whole, tail, lowest));
    last_max = _mm256_blendv_ps(last_max, with_tail, _mm256_castsi256_ps(tail));
  }
  const __m256 m = _mm256_set1_ps(num::max_tree16(max[0], max[1]));
  __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (int64_t i = 0; i < whole; i += 8) {
    const __m256 e = num::exp8(_mm256_sub_ps(_mm256_loadu_ps(x + i), m));
    _mm256_storeu_ps(out + i, e);
    sums[i / 8 % 2] = _mm256_add_ps(sums[i / 8 % 2], e);
  }
  if (whole < n) {
    const __m256 e = num::exp8(_mm256_sub_ps(load_or(x + whole, tail, lowest), m));
    _mm256_maskstore_ps(out + whole, tail, e);
    sums[whole / 8 % 2] = _mm256_add_ps(sums[whole / 8 % 2], _mm256_and_ps(e, _mm256_castsi256_ps(tail)));
  }
  const __m256 sum = _mm256_set1_ps(num::tree16(sums[0], sums[1]));
  map2(out, out, n, out, [&](__m256 e, __m256) { return _mm256_div_ps(e, sum); });
}

void to_f16(const float* x, int64_t n, uint16_t* out) {
  constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  int64_t c = 0;
  for (; c + 8 <= n; c += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + c), _mm256_cvtps_ph(_mm256_loadu_ps(x + c), kNearestEven));
  }
  for (; c < n; ++c) {
    out[c] = static_cast<uint16_t>(_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x[c]), kNearestEven), 0));
  }
}

void from_f16(const uint16_t* x, int64_t n, float* out) {
  int64_t c = 0;
  for (; c + 8 <= n; c += 8) {
    _mm256_storeu_ps(out + c, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + c))));
  }
  for (; c < n; ++c) out[c] = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(x[c])));
}

void from_q8_0(const std::byte* x, int64_t n, float* out) {
  const auto* block = reinterpret_cast<const BlockQ8_0*>(x);
  for (int64_t c = 0; c < n; c += kBlock32, ++block) {
    const __m256 d = _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(block->d)));
    for (int i = 0; i < kBlock32; i += 8) {
      const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(block->qs + i));
      const __m256 values = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
      _mm256_storeu_ps(out + c + i, _mm256_mul_ps(d, values));
    }
  }
}

}  // namespace

const RowOps& row_ops_avx2() {
  static constexpr RowOps kOps{rms_norm, add,           silu_glu,          gelu_glu, sigmoid_glu, relu_glu, multiply,
                               scale,    rotate_halves, rotate_neighbours, softmax,  to_f16,      from_f16, from_q8_0};
  return kOps;
}

}  // namespace moetier::cpu

#endif
