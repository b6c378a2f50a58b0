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

template <typename RowOf>
void ActivationRows::encode_rows(const FloatsIn& x, const ActivationKinds& kinds, int64_t n, RowOf row_of) {
  views_[static_cast<size_t>(ActivationKind::floats)] = {x.base, x.stride};
  for (const ActivationKind kind : {ActivationKind::blocks32, ActivationKind::blocks256}) {
    if (!kinds.has(kind)) continue;
    const size_t stride = activation_row_bytes(kind, x.columns);
    std::vector<std::byte>& scratch = scratch_[static_cast<size_t>(kind)];
    const size_t bytes = stride * static_cast<size_t>(x.rows);
    if (scratch.size() < bytes) scratch.resize(bytes);
    views_[static_cast<size_t>(kind)] = {scratch.data(), stride};
    share(pool_, n, x.columns * kEncodeCost, [&](int64_t first, int64_t last, int) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t r = row_of(i);
        std::byte* to = scratch.data() + static_cast<size_t>(r) * stride;
        encode_activations(encoders_, kind, x.row(r), to, x.columns);
      }
    });
  }
}

void ActivationRows::encode(const FloatsIn& x, const ActivationKinds& kinds) {
  encode_rows(x, kinds, x.rows, [](int64_t i) { return i; });
}

void ActivationRows::encode(const FloatsIn& x, const ActivationKinds& kinds, std::span<const int32_t> rows) {
  encode_rows(x, kinds, static_cast<int64_t>(rows.size()),
              [rows](int64_t i) { return int64_t{rows[static_cast<size_t>(i)]}; });
}

}  // namespace moetier::cpu
