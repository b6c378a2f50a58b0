#include "engine/decode_rate.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "experts/arena.h"
#include "io/memory.h"

namespace moetier {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMostOperations = 4096;  // of a pass

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Four times the last cache, if there is room.
uint64_t block_bytes() {
  const long cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  const uint64_t wanted =
      std::clamp<uint64_t>(4 * static_cast<uint64_t>(std::max(cache, 0L)), uint64_t{64} << 20, uint64_t{512} << 20);
  return std::max(std::min(wanted, memory_state().available.value_or(wanted) / 4), uint64_t{1} << 20);
}

}  // namespace

double decode_rate(Compute& compute, const MatrixKind& kind) {
  if (!type_info(kind.type).computable) fail("tensors of type {} cannot be computed with", type_name(kind.type));
  const uint64_t block = block_bytes();
  const size_t row = row_bytes(kind.type, kind.columns);
  // A matrix larger than the block is measured by its first rows.
  const int64_t rows = std::clamp<int64_t>(static_cast<int64_t>(block / row), 1, kind.rows);
  const uint64_t matrix = static_cast<uint64_t>(rows) * row;
  const auto fit = static_cast<size_t>(std::max<uint64_t>(block / matrix, 1));
  const size_t together = std::clamp<size_t>(static_cast<size_t>(kind.together), 1, fit);
  const size_t operations = std::min(fit / together, kMostOperations);
  const uint64_t bytes = operations * together * matrix;
  Arena arena(bytes);
  std::memset(arena.data(), 0, bytes);  // pages of its own, and zeros are weights in every type
  const auto weights = compute.wrap(arena.data(), bytes);
  const auto in = compute.allocate(static_cast<size_t>(kind.columns) * sizeof(float));
  const auto out = compute.allocate(together * static_cast<size_t>(rows) * sizeof(float));
  const Tensor x = Tensor::packed(in.get(), 0, TensorType::f32, {kind.columns, 1, 1, 1});
  const std::vector<float> ones(static_cast<size_t>(kind.columns), 1.0F);
  compute.upload(x, ones.data());
  std::vector<MatmulTerm> terms;
  for (size_t i = 0; i < operations * together; ++i) {
    terms.push_back({Tensor::packed(weights.get(), i * matrix, kind.type, {kind.columns, rows, 1, 1}),
                     Tensor::packed(out.get(), (i % together) * static_cast<size_t>(rows) * sizeof(float),
                                    TensorType::f32, {rows, 1, 1, 1})});
  }
  std::vector<float> result(static_cast<size_t>(rows));
  std::vector<double> passes;
  const auto start = Clock::now();
  while (passes.size() < 3 || seconds_since(start) < 0.2) {
    const auto pass = Clock::now();
    for (size_t i = 0; i < operations; ++i) compute.matmul(x, std::span(terms).subspan(i * together, together));
    compute.download(terms.back().out, result.data());  // waits for it
    passes.push_back(seconds_since(pass));
  }
  const auto middle = passes.begin() + static_cast<ptrdiff_t>(passes.size() / 2);
  std::ranges::nth_element(passes, middle);
  return static_cast<double>(bytes) / *middle;
}

double decode_rate(Compute& compute, const BytesByKind& bytes, std::map<MatrixKind, double>& known) {
  double all = 0, seconds = 0;
  for (const auto& [kind, n] : bytes) {
    if (n == 0) continue;
    const auto [at, fresh] = known.try_emplace(kind, 0);
    if (fresh) at->second = decode_rate(compute, kind);
    all += static_cast<double>(n);
    seconds += static_cast<double>(n) / at->second;
  }
  return seconds > 0 ? all / seconds : 0;
}

}  // namespace moetier
