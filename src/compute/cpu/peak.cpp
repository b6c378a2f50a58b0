#include "compute/cpu/peak.h"

#include <cstring>

#include "compute/cpu/isa.h"

namespace moetier {
namespace {

// The compiler must neither know the values nor that the rounds are alike.
template <typename T>
void opaque(T& value) {
  asm volatile("" : "+m"(value) : : "memory");
}

void int8_portable(int64_t iterations) {
  int8_t a[16], b[16];
  int32_t sums[16] = {};
  std::memset(a, 3, sizeof(a));
  std::memset(b, 5, sizeof(b));
  for (int64_t i = 0; i < iterations; ++i) {
    opaque(a);
    for (int k = 0; k < 16; ++k) sums[k] += static_cast<int32_t>(a[k]) * b[k];
  }
  opaque(sums);
}

void f32_portable(int64_t iterations) {
  float a[16], b[16], sums[16] = {};
  for (int k = 0; k < 16; ++k) a[k] = b[k] = 1.0f;
  for (int64_t i = 0; i < iterations; ++i) {
    opaque(a);
    for (int k = 0; k < 16; ++k) sums[k] += a[k] * b[k];
  }
  opaque(sums);
}

uint64_t read_portable(const std::byte* data, size_t bytes) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i < bytes; i += 64) {
    uint64_t words[8];
    std::memcpy(words, data + i, sizeof(words));
    for (int k = 0; k < 8; ++k) sums[k] += words[k];
  }
  uint64_t sum = 0;
  for (const uint64_t s : sums) sum += s;
  return sum;
}

}  // namespace

const PeakOps& cpu::peak_ops_portable() {
  static constexpr PeakOps ops{"as compiled", 16, int8_portable, 16, f32_portable, read_portable};
  return ops;
}

const PeakOps& peak_ops(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx512) return cpu::peak_ops_avx512();
  if (isa == Isa::avx2) return has_avx_vnni() ? cpu::peak_ops_avx2_vnni() : cpu::peak_ops_avx2();
#else
  static_cast<void>(isa);
#endif
  return cpu::peak_ops_portable();
}

#if !defined(__x86_64__)
bool peak_tiles(int64_t) {
  return false;
}
#endif

}  // namespace moetier
