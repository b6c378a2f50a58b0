// How an operation's work is cut into chunks for the pool.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/thread_pool.h"

namespace moetier::cpu {

/// x *= factor, n elements.
inline void scale_row(float factor, float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] * factor;
}

/// Work, in float operations, below which waking another thread costs more than it brings: about 5 microseconds.
inline constexpr int64_t kChunkCost = 32768;

/// n / length, rounded up.
constexpr int64_t ceil_div(int64_t n, int64_t length) {
  return (n + length - 1) / length;
}

/// Calls body(first, last, thread) over all of [0, items) in chunks; each item costs about `item_cost` float
/// operations. Small work runs on the caller, without a barrier. The cut depends on the number of threads, so an item's
/// result must not.
template <typename Body>
void share(ThreadPool& pool, int64_t items, int64_t item_cost, Body&& body) {
  if (items <= 0) return;
  item_cost = std::max<int64_t>(item_cost, 1);
  const int64_t threads = pool.size();
  // items > 2 * kChunkCost / item_cost, without a product that could overflow.
  if (threads == 1 || items == 1 || items <= 2 * kChunkCost / item_cost) {
    body(int64_t{0}, items, 0);
    return;
  }
  const int64_t enough = ceil_div(items, 8 * threads);
  const int64_t per_chunk = std::max({int64_t{1}, kChunkCost / item_cost, enough});
  const int64_t chunks = ceil_div(items, per_chunk);
  pool.run(chunks, [&](int64_t chunk, int thread) {
    body(chunk * per_chunk, std::min(items, (chunk + 1) * per_chunk), thread);
  });
}

}  // namespace moetier::cpu
