#include "compute/cpu/activation_rows.h"

#include "compute/cpu/share.h"

namespace moetier::cpu {
namespace {

/// What encoding a column costs, in float operations.
constexpr int64_t kEncodeCost = 3;

}  // namespace

void ActivationRows::reserve(int64_t rows, int64_t columns, const ActivationKinds& kinds) {
  for (const ActivationKind kind : {ActivationKind::blocks32, ActivationKind::blocks256}) {
    if (!kinds.has(kind)) continue;
    std::vector<std::byte>& scratch = scratch_[static_cast<size_t>(kind)];
    const size_t bytes = activation_row_bytes(kind, columns) * static_cast<size_t>(rows);
    if (scratch.size() < bytes) scratch.resize(bytes);
  }
}

void ActivationRows::encode(const FloatsIn& x, const ActivationKinds& kinds) {
  views_[static_cast<size_t>(ActivationKind::floats)] = {x.base, x.stride};
  reserve(x.rows, x.columns, kinds);
  for (const ActivationKind kind : {ActivationKind::blocks32, ActivationKind::blocks256}) {
    if (!kinds.has(kind)) continue;
    const size_t stride = activation_row_bytes(kind, x.columns);
    std::vector<std::byte>& scratch = scratch_[static_cast<size_t>(kind)];
    views_[static_cast<size_t>(kind)] = {scratch.data(), stride};
    share(pool_, x.rows, x.columns * kEncodeCost, [&](int64_t first, int64_t last, int) {
      for (int64_t r = first; r < last; ++r) {
        std::byte* to = scratch.data() + static_cast<size_t>(r) * stride;
        encode_activations(encoders_, kind, x.row(r), to, x.columns);
      }
    });
  }
}

}  // namespace moetier::cpu
