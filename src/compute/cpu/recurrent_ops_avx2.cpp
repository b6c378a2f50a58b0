#include "compute/cpu/recurrent_ops.h"

#if defined(__x86_64__)

#include "compute/cpu/math_avx2.h"
#include "compute/cpu/recurrent_rows.h"

namespace moetier::cpu {
namespace {

struct Unit {
  using V = __m256;
  static constexpr int kLanes = 8;
  MOETIER_INLINE static __m256 load(const float* at) { return _mm256_loadu_ps(at); }
  MOETIER_INLINE static void store(float* at, __m256 v) { _mm256_storeu_ps(at, v); }
  MOETIER_INLINE static __m256 set(float x) { return _mm256_set1_ps(x); }
  MOETIER_INLINE static __m256 add(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
  MOETIER_INLINE static __m256 mul(__m256 a, __m256 b) { return _mm256_mul_ps(a, b); }
  MOETIER_INLINE static __m256 silu(__m256 x) { return num::silu8(x); }
  MOETIER_INLINE static float tree16(const __m256* p) { return num::tree16(p[0], p[1]); }
};

}  // namespace

const RecurrentOps& recurrent_ops_avx2() {
  static constexpr RecurrentOps kOps{conv_row<Unit>, delta_rows<Unit>, scan_rows<Unit>};
  return kOps;
}

}  // namespace moetier::cpu

#endif
