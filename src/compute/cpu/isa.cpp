#include "compute/cpu/isa.h"

#include "base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace moetier {
namespace {

#if defined(__x86_64__)

// Bits of CPUID leaf 7. Compilers know some of these features by other names, or not at all.
constexpr unsigned kAvx2 = 1u << 5, kAvx512F = 1u << 16, kAvx512DQ = 1u << 17, kAvx512BW = 1u << 30;  // EBX
constexpr unsigned kAvx512VL = 1u << 31;                                                              // EBX
constexpr unsigned kAvx512Vnni = 1u << 11;                                                            // ECX
constexpr unsigned kAmxTile = 1u << 24, kAmxInt8 = 1u << 25;                                          // EDX
constexpr unsigned kAvxVnni = 1u << 4;                                                                // subleaf 1, EAX
// State that the operating system keeps (XCR0).
constexpr uint64_t kYmmState = 0x6, kZmmState = 0xe6, kTileState = 0x60000;

/// What the processor has and the operating system keeps.
struct Features {
  bool avx2 = false, avx_vnni = false, avx512 = false, amx_int8 = false;
};

uint64_t kept_state() {
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

Features find_features() {
  Features f;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & bit_OSXSAVE) == 0) return f;
  const bool f16c = (ecx & bit_F16C) != 0;
  const uint64_t state = kept_state();
  const auto keeps = [state](uint64_t bits) { return (state & bits) == bits; };
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return f;
  constexpr unsigned kAll = kAvx512F | kAvx512DQ | kAvx512BW | kAvx512VL;
  f.avx2 = f16c && (ebx & kAvx2) != 0 && keeps(kYmmState);
  f.avx512 = f.avx2 && (ebx & kAll) == kAll && (ecx & kAvx512Vnni) != 0 && keeps(kZmmState);
  f.amx_int8 = f.avx512 && (edx & kAmxTile) != 0 && (edx & kAmxInt8) != 0 && keeps(kTileState);
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) f.avx_vnni = f.avx2 && (eax & kAvxVnni) != 0;
  return f;
}

const Features& features() {
  static const Features found = find_features();
  return found;
}

bool has_unit(Isa isa) {
  switch (isa) {
    case Isa::automatic:
    case Isa::portable:
      return true;
    case Isa::avx2:
      return features().avx2;
    case Isa::avx512:
      return features().avx512;
    default:
      return false;
  }
}

#else

bool has_unit(Isa isa) {
#if defined(__aarch64__)
  if (isa == Isa::neon) return true;
#endif
  return isa == Isa::automatic || isa == Isa::portable;
}

#endif

}  // namespace

bool isa_available(Isa isa) {
  return has_unit(isa);
}

std::vector<Isa> available_isas() {
  std::vector<Isa> out;
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512, Isa::neon}) {
    if (isa_available(isa)) out.push_back(isa);
  }
  return out;
}

Isa detect_isa() {
  return available_isas().back();
}

Isa resolve_isa(Isa isa) {
  if (!isa_available(isa)) {
    fail("this machine cannot run the {} kernels (they need {}); use portable", isa_name(isa), isa_needs(isa));
  }
  return isa == Isa::automatic ? detect_isa() : isa;
}

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::automatic:
      return "auto";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::neon:
      return "neon";
    default:
      return "portable";
  }
}

std::string_view isa_needs(Isa isa) {
  switch (isa) {
    case Isa::avx2:
      return "AVX2 and F16C";
    case Isa::avx512:
      return "AVX-512 F, BW, DQ, VL and VNNI";
    case Isa::neon:
      return "an ARM processor of 64 bits";
    default:
      return "nothing";
  }
}

#if defined(__x86_64__)

bool has_avx_vnni() {
  return features().avx_vnni;
}

bool has_amx_int8() {
  // The kernel hands out tile state only to processes that ask.
  static const bool granted = [] {
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    return features().amx_int8 && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return granted;
}

#else

bool has_avx_vnni() {
  return false;
}
bool has_amx_int8() {
  return false;
}

#endif

}  // namespace moetier
