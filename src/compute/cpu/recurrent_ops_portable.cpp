#include "compute/cpu/isa.h"
#include "compute/cpu/recurrent_rows.h"

namespace moetier::cpu {
namespace {

struct Unit {
  using V = float;
  static constexpr int kLanes = 1;
  static float load(const float* at) { return *at; }
  static void store(float* at, float v) { *at = v; }
  static float set(float x) { return x; }
  static float add(float a, float b) { return a + b; }
  static float mul(float a, float b) { return a * b; }
  static float silu(float x) { return num::silu(x); }
  static float tree16(const float* partial) {
    float p[16];
    for (int i = 0; i < 16; ++i) p[i] = partial[i];
    return num::tree16(p);
  }
};

}  // namespace

const RecurrentOps& recurrent_ops_portable() {
  static constexpr RecurrentOps kOps{conv_row<Unit>, delta_rows<Unit>, scan_rows<Unit>};
  return kOps;
}

const RecurrentOps& recurrent_ops(Isa isa) {
#if defined(__x86_64__)
  if (isa_has_avx2(isa)) return recurrent_ops_avx2();
#elif defined(__aarch64__)
  if (isa == Isa::neon) return recurrent_ops_neon();
#endif
  (void)isa;
  return recurrent_ops_portable();
}

}  // namespace moetier::cpu
