// What a server counts, and /metrics made of it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/context.h"
#include "server/metrics_text.h"
#include "server/request.h"

namespace moetier {

inline constexpr size_t kFinishes = static_cast<size_t>(Finish::failed) + 1;

/// Counted by the scheduler. Not safe from several threads at once.
struct ServeMeters {
  uint64_t prompt_tokens = 0;  ///< computed
  uint64_t cached_tokens = 0, sampled_tokens = 0;
  double prompt_seconds = 0, decode_seconds = 0;
  uint64_t steps = 0, busy_slots = 0;  ///< busy_slots: summed over steps
  uint64_t most_tokens = 0;            ///< that a sequence held
  uint64_t refused = 0;                ///< because the queue was full
  std::array<uint64_t, kFinishes> finished{};
  Histogram queue{seconds_buckets()}, first_token{seconds_buckets()}, token_gap{seconds_buckets()},
      request{seconds_buckets()}, step{seconds_buckets()};

  void note_step(size_t slots_at_work, double seconds);
  void note_request(const RequestResult& result);
};

/// The tier cache and the memory, as of the last step.
struct TierSnapshot {
  bool experts = false;  ///< the model has any; without, what follows up to `layers` is empty
  bool cached = false;   ///< there is a cache that may hold something
  StoreStatus status;
  StoreCounters total;  ///< since the context was made
  StoreMeters store;
  std::vector<std::pair<int, StoreCounters>> layers;  ///< by the model's layer number
  Context::Meters batches;
  double moe_wait_seconds = 0, moe_compute_seconds = 0;
  uint64_t picks = 0, dropped = 0, weight_bytes = 0;
  uint64_t kv_used = 0, kv_reserved = 0, buffers = 0, dense_bytes = 0;
  int64_t kept_sequences = 0;
  uint64_t stored_bytes = 0;  ///< of the prompt cache on disk
};
/// Waits for a batch that another context of the engine computes.
TierSnapshot read_tier(Context& context);

/// What changes from moment to moment.
struct ServeGauges {
  int busy = 0, queued = 0, aside = 0, slots = 0;
  int64_t context = 0;
};

/// llama-server's series, `llamacpp:moe_cache_*` where there is a cache, and ours under `moetier:`.
std::string render_metrics(const ServeMeters& meters, const TierSnapshot& tier, const ServeGauges& gauges);

/// The reference's line for a request, e.g. "MoE cache hits = 93.1 % (H hit, P from the profile, M read: X MiB, Y
/// GiB/s)". The rate is over the time that the request had its slot.
std::string hits_line(const RequestResult& result);

}  // namespace moetier
