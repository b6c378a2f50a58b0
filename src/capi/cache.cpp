// C API: the cache of experts.
#include <algorithm>

#include "capi/handles.h"
#include "engine/run_meters.h"

using namespace moetier;
using namespace moetier::capi;

namespace {

/// The model's store if it has a cache, else nullptr. The engine's mutex must be held.
ExpertStore* cache_of(const moetier_context* context) {
  ExpertStore* store = context->shared->engine->store();
  return store != nullptr && has_cache(store->status()) ? store : nullptr;
}

/// Runs `body` with the store while nothing is computed; what it gives, or `otherwise` without a cache or on an error.
template <typename Result, typename Body>
Result with_cache(const moetier_context* context, Result otherwise, Body&& body) noexcept {
  Result result = otherwise;
  guarded([&] {
    need(context, "the context");
    const std::lock_guard lock(context->shared->engine->run_mutex());
    if (ExpertStore* store = cache_of(context); store != nullptr) result = body(*store);
    return MOETIER_OK;
  });
  return result;
}

/// What layer number i of the store's map did since the context was made.
StoreCounters since(const moetier_context* context, ExpertStore& store, size_t i) {
  return store.counters(store.map().layers[i].layer) - context->shared->before[i];
}

}  // namespace

bool moetier_moe_cache_get_stats(const moetier_context* context, moetier_moe_cache_stats* stats) {
  return with_cache(context, false, [&](ExpertStore& store) {
    need(stats, "the place for the statistics");
    StoreCounters c;
    for (size_t i = 0; i < store.map().layers.size(); ++i) c += since(context, store, i);
    const StoreStatus status = store.status();
    *stats = {};
    stats->n_hit = c.hits;
    stats->n_hit_profile = c.hits_profile;
    stats->n_miss = c.misses;
    stats->n_bytes_upload = c.bytes_read;
    stats->n_copy = c.large_hits;
    stats->n_bytes_copy = c.large_hit_bytes;
    stats->n_slots = static_cast<uint64_t>(status.slots);
    stats->n_prefilled = status.prefilled;
    stats->n_bytes_cache = status.arena_bytes;
    stats->n_swap = c.swaps;
    return true;
  });
}

int32_t moetier_moe_cache_get_layer_stats(const moetier_context* context, moetier_moe_cache_layer_stats* stats,
                                          int32_t n_max) {
  return with_cache(context, 0, [&](ExpertStore& store) {
    const auto places = need_array(stats, static_cast<size_t>(std::max(n_max, 0)), "the array of statistics");
    const auto& layers = store.map().layers;
    for (size_t i = 0; i < std::min(places.size(), layers.size()); ++i) {
      const StoreCounters c = since(context, store, i);
      places[i] = {layers[i].layer, store.held(layers[i].layer).size(), c.hits, c.hits_profile, c.misses};
    }
    return static_cast<int32_t>(layers.size());
  });
}

int32_t moetier_moe_cache_get_resident(const moetier_context* context, int32_t il, int32_t* experts, int32_t n_max) {
  return with_cache(context, 0, [&](ExpertStore& store) {
    const auto places = need_array(experts, static_cast<size_t>(std::max(n_max, 0)), "the array of experts");
    if (store.map().find(il) == nullptr) return 0;
    const std::vector<int32_t> held = store.held(il);
    std::copy_n(held.begin(), std::min(held.size(), places.size()), places.begin());
    return static_cast<int32_t>(held.size());
  });
}

int32_t moetier_moe_cache_rebalance(moetier_context* context, int32_t max_swaps) {
  return with_cache(context, -1, [&](ExpertStore& store) { return store.rebalance(std::max(max_swaps, 0)); });
}

moetier_status moetier_set_cache_budget_mb(moetier_context* context, int32_t mib) {
  return guarded([&] {
    need(context, "the context");
    if (mib < 0) usage_error("a cache cannot have {} MiB", mib);
    const std::unique_lock lock(context->shared->engine->run_mutex(), std::try_to_lock);
    if (!lock.owns_lock()) fail("the cache cannot be resized while a batch is being computed; try between batches");
    ExpertStore* store = context->shared->engine->store();
    if (store == nullptr) fail("the model has no experts, so there is no cache to resize");
    store->set_budget(static_cast<uint64_t>(mib) << 20);
    return MOETIER_OK;
  });
}
