#include "compute/cpu/isa.h"

#include "base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace moetier {
namespace {

#if defined(__x86_64__)
bool has_avx2() {
  // __builtin_cpu_supports asks the operating system too (XGETBV), but not every compiler knows "f16c" there.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (ecx & bit_F16C) != 0 && __builtin_cpu_supports("avx2") != 0;
}
#else
bool has_avx2() {
  return false;
}
#endif

}  // namespace

bool isa_available(Isa isa) {
  static const bool avx2 = has_avx2();
  return isa != Isa::avx2 || avx2;
}

Isa detect_isa() {
  return isa_available(Isa::avx2) ? Isa::avx2 : Isa::portable;
}

Isa resolve_isa(Isa isa) {
  if (!isa_available(isa)) fail("this machine cannot run the avx2 kernels (they need AVX2 and F16C); use portable");
  return isa == Isa::automatic ? detect_isa() : isa;
}

}  // namespace moetier
