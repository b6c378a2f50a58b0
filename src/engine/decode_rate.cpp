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

double decode_rate(Compute& compute, TensorType type) {
  if (!type_info(type).computable) fail("tensors of type {} cannot be computed with", type_name(type));
  constexpr int64_t kColumns = 2048;
  const size_t row = row_bytes(type, kColumns);
  const auto rows = static_cast<int64_t>(block_bytes() / row);
  const uint64_t bytes = static_cast<uint64_t>(rows) * row;
  Arena arena(bytes);
  std::memset(arena.data(), 0, bytes);  // pages of its own, and zeros are weights in every type
  const auto weights = compute.wrap(arena.data(), bytes);
  const auto in = compute.allocate(kColumns * sizeof(float)), out = compute.allocate(static_cast<size_t>(rows) * 4);
  const Tensor x = Tensor::packed(in.get(), 0, TensorType::f32, {kColumns, 1, 1, 1});
  const std::vector<float> ones(kColumns, 1.0F);
  compute.upload(x, ones.data());
  const MatmulTerm term{Tensor::packed(weights.get(), 0, type, {kColumns, rows, 1, 1}),
                        Tensor::packed(out.get(), 0, TensorType::f32, {rows, 1, 1, 1})};
  std::vector<float> result(static_cast<size_t>(rows));
  double best = 0;
  const auto start = Clock::now();
  for (int i = 0; i < 3 || seconds_since(start) < 0.2; ++i) {
    const auto pass = Clock::now();
    compute.matmul(x, {&term, 1});
    compute.download(term.out, result.data());  // waits for it
    best = std::max(best, static_cast<double>(bytes) / seconds_since(pass));
  }
  return best;
}

double decode_rate(Compute& compute, const BytesByType& bytes, std::map<TensorType, double>& known) {
  double all = 0, seconds = 0;
  for (const auto& [type, n] : bytes) {
    if (n == 0) continue;
    const auto [at, fresh] = known.try_emplace(type, 0);
    if (fresh) at->second = decode_rate(compute, type);
    all += static_cast<double>(n);
    seconds += static_cast<double>(n) / at->second;
  }
  return seconds > 0 ? all / seconds : 0;
}

}  // namespace moetier
