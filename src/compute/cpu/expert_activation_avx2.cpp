#include "compute/cpu/expert_activation.h"

#if defined(__AVX2__)

#include "compute/cpu/math_avx2.h"

namespace moetier::cpu {
namespace {

/// Calls body(offset, load, store) for each eight elements; load and store leave lanes beyond n alone.
template <typename Body>
MOETIER_INLINE void for_eights(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    body(
        i, [](const float* p) { return _mm256_loadu_ps(p); }, [](float* p, __m256 v) { _mm256_storeu_ps(p, v); });
  }
  if (i == n) return;
  const __m256i lanes = num::lanes8(static_cast<int>(n - i));
  body(
      i, [lanes](const float* p) { return _mm256_maskload_ps(p, lanes); },
      [lanes](float* p, __m256 v) { _mm256_maskstore_ps(p, lanes, v); });
}

template <Activation kActivation>
MOETIER_INLINE __m256 activated8(__m256 g) {
  if constexpr (kActivation == Activation::silu) return num::silu8(g);
  if constexpr (kActivation == Activation::gelu) return num::gelu8(g);
  return num::relu8(g);
}

template <Activation kActivation>
void activate(const float* gate, const float* up, float* out, int64_t n) {
  for_eights(n, [&](int64_t i, auto load, auto store) {
    const __m256 activated = num::flush8(activated8<kActivation>(load(gate + i)));
    store(out + i, num::flush8(_mm256_mul_ps(activated, load(up + i))));
  });
}

void swiglu_oai(const float* gate, const float* up, float* out, int64_t n) {
  const __m256 limit = _mm256_set1_ps(num::kOaiLimit), least = _mm256_set1_ps(-num::kOaiLimit);
  for_eights(n, [&](int64_t i, auto load, auto store) {
    // The limit comes first, so that a NaN stays.
    const __m256 g = _mm256_min_ps(limit, load(gate + i));
    const __m256 u = _mm256_max_ps(least, _mm256_min_ps(limit, load(up + i)));
    const __m256 s = num::sigmoid8(_mm256_mul_ps(_mm256_set1_ps(num::kOaiAlpha), g));
    const __m256 activated = num::flush8(_mm256_mul_ps(g, s));
    store(out + i, num::flush8(_mm256_mul_ps(activated, _mm256_add_ps(u, _mm256_set1_ps(1.0f)))));
  });
}

void add_weighted(float weight, const float* y, float* out, int64_t n) {
  for_eights(n, [&](int64_t i, auto load, auto store) {
    const __m256 product = num::flush8(_mm256_mul_ps(_mm256_set1_ps(weight), load(y + i)));
    store(out + i, _mm256_add_ps(load(out + i), product));
  });
}

}  // namespace

const ExpertOps* avx2_expert_ops() {
  static constexpr ExpertOps ops{activate<Activation::silu>, activate<Activation::gelu>, activate<Activation::relu>,
                                 swiglu_oai, add_weighted};
  return &ops;
}

}  // namespace moetier::cpu

#else

namespace moetier::cpu {
const ExpertOps* avx2_expert_ops() {
  return nullptr;
}
}  // namespace moetier::cpu

#endif
