#include "server/serve_meters.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/run_meters.h"
#include "io/memory.h"

namespace moetier {
namespace {

using Type = MetricsText::Type;

double ratio(uint64_t part, uint64_t rest) {
  return part + rest == 0 ? 0 : static_cast<double>(part) / static_cast<double>(part + rest);
}

double per_second(uint64_t n, double seconds) {
  return seconds > 0 ? static_cast<double>(n) / seconds : 0;
}

std::string finish_label(size_t index) {
  std::string label(to_string(static_cast<Finish>(index)));
  std::replace(label.begin(), label.end(), ' ', '_');
  return label;
}

/// Names and meanings of llama-server.
void render_server(MetricsText& out, const ServeMeters& m, const ServeGauges& g) {
  out.single("llamacpp:prompt_tokens_total", Type::counter, "Prompt tokens computed.", m.prompt_tokens);
  out.single("llamacpp:prompt_seconds_total", Type::counter, "Seconds that prompts took.", m.prompt_seconds);
  out.single("llamacpp:tokens_predicted_total", Type::counter, "Tokens generated.", m.sampled_tokens);
  out.single("llamacpp:tokens_predicted_seconds_total", Type::counter, "Seconds that generating took.",
             m.decode_seconds);
  out.single("llamacpp:n_decode_total", Type::counter, "Batches computed.", m.steps);
  out.single("llamacpp:n_tokens_max", Type::gauge, "The most tokens that a sequence held.", m.most_tokens);
  out.single("llamacpp:n_busy_slots_per_decode", Type::gauge, "Slots at work per batch, on average.",
             m.steps == 0 ? 0.0 : static_cast<double>(m.busy_slots) / static_cast<double>(m.steps));
  out.single("llamacpp:prompt_tokens_seconds", Type::gauge, "Prompt tokens per second, on average.",
             per_second(m.prompt_tokens, m.prompt_seconds));
  out.single("llamacpp:predicted_tokens_seconds", Type::gauge, "Tokens generated per second, on average.",
             per_second(m.sampled_tokens, m.decode_seconds));
  out.single("llamacpp:requests_processing", Type::gauge, "Requests that have a slot.", static_cast<uint64_t>(g.busy));
  out.single("llamacpp:requests_deferred", Type::gauge, "Requests that wait for a slot.",
             static_cast<uint64_t>(g.queued));
  out.single("moetier:requests_set_aside", Type::gauge, "Requests that gave their slots away, since nobody reads them.",
             static_cast<uint64_t>(g.aside));
}

/// A counter for each layer.
template <typename Field>
void per_layer(MetricsText& out, const TierSnapshot& t, std::string_view name, std::string_view help, Field field) {
  out.family(name, Type::counter, help);
  for (const auto& [layer, counters] : t.layers) out.sample(counters.*field, {{"layer", std::to_string(layer)}});
}

/// The reference's series, for the host's cache.
void render_cache(MetricsText& out, const TierSnapshot& t) {
  const StoreCounters& c = t.total;
  out.single("llamacpp:moe_cache_hits_total", Type::counter, "Selected experts that the cache held.", c.hits);
  out.single("llamacpp:moe_cache_hits_profile_total", Type::counter, "Of them, put there by the profile.",
             c.hits_profile);
  out.single("llamacpp:moe_cache_misses_total", Type::counter, "Selected experts that the cache did not hold.",
             c.misses);
  out.single("llamacpp:moe_cache_upload_bytes_total", Type::counter, "Bytes read into the cache.", c.bytes_read);
  out.single("llamacpp:moe_cache_cpu_bytes_total", Type::counter,
             "Bytes of experts that the CPU computed instead of the device.", uint64_t{0});
  out.single("llamacpp:moe_cache_copies_total", Type::counter, "Experts that large batches found in the cache.",
             c.large_hits);
  out.single("llamacpp:moe_cache_swaps_total", Type::counter, "Experts that the adaptive policy brought in.", c.swaps);
  out.single("llamacpp:moe_cache_hit_ratio", Type::gauge, "Hits / (hits + misses) since the start.",
             ratio(c.hits, c.misses));
  out.single("llamacpp:moe_cache_slots", Type::gauge, "Slots for experts.", static_cast<uint64_t>(t.status.slots));
  out.single("llamacpp:moe_cache_prefilled", Type::gauge, "Slots that the profile filled at load.", t.status.prefilled);
  out.single("llamacpp:moe_cache_bytes", Type::gauge, "Memory of the cache in bytes.", t.status.arena_bytes);
  out.single("llamacpp:moe_cache_hybrid", Type::gauge, "1 where device and CPU share the experts.", uint64_t{0});
  per_layer(out, t, "llamacpp:moe_cache_layer_hits_total", "Hits of a layer.", &StoreCounters::hits);
  per_layer(out, t, "llamacpp:moe_cache_layer_hits_profile_total", "Of them, put there by the profile.",
            &StoreCounters::hits_profile);
  per_layer(out, t, "llamacpp:moe_cache_layer_misses_total", "Misses of a layer.", &StoreCounters::misses);
}

void render_requests(MetricsText& out, const ServeMeters& m, const TierSnapshot& t, const ServeGauges& g) {
  out.family("moetier:requests_total", Type::counter, "Requests that ended, by how.");
  for (size_t i = 0; i < kFinishes; ++i) out.sample(m.finished[i], {{"finish", finish_label(i)}});
  out.single("moetier:requests_refused_total", Type::counter, "Requests refused because the queue was full.",
             m.refused);
  out.single("moetier:cached_prompt_tokens_total", Type::counter, "Prompt tokens that a kept sequence held already.",
             m.cached_tokens);
  out.single("moetier:slots", Type::gauge, "Requests that can be served at once.", static_cast<uint64_t>(g.slots));
  out.single("moetier:slot_context_tokens", Type::gauge, "Positions of a slot.", static_cast<uint64_t>(g.context));
  out.single("moetier:kept_sequences", Type::gauge, "Finished sequences kept for their prefixes, beside the slots'.",
             static_cast<uint64_t>(t.kept_sequences));
  out.single("moetier:prompt_cache_bytes", Type::gauge, "Saved prompts of this model on disk.", t.stored_bytes);
  const auto histogram = [&](std::string_view name, std::string_view help, const Histogram& values) {
    out.family(name, Type::histogram, help);
    out.histogram(values);
  };
  histogram("moetier:queue_seconds", "How long requests waited for a slot.", m.queue);
  histogram("moetier:first_token_seconds", "From a request to its first token.", m.first_token);
  histogram("moetier:token_gap_seconds", "Between a token and the next of the same request.", m.token_gap);
  histogram("moetier:request_seconds", "From a request to its end.", m.request);
  histogram("moetier:batch_seconds", "Time of a batch, with what was made of it.", m.step);
}

void render_work(MetricsText& out, const TierSnapshot& t) {
  out.single("moetier:batch_rows_total", Type::counter, "Rows computed.", t.batches.rows);
  out.single("moetier:ubatches_total", Type::counter, "Ubatches computed.", t.batches.ubatches);
  out.single("moetier:compute_seconds_total", Type::counter, "In batches, outside of waits for experts.",
             std::max(0.0, t.batches.seconds - t.moe_wait_seconds));
  out.single("moetier:expert_wait_seconds_total", Type::counter, "In batches, asking for experts and waiting for them.",
             t.moe_wait_seconds);
  out.single("moetier:expert_compute_seconds_total", Type::counter, "In batches, computing experts.",
             t.moe_compute_seconds);
  out.single("moetier:weight_bytes_total", Type::counter, "Bytes of weights that were multiplied with.",
             t.weight_bytes);
  out.single("moetier:picks_total", Type::counter, "Experts that the router chose, for each row.", t.picks);
  out.single("moetier:picks_dropped_total", Type::counter, "Of them, left out because they were cold.", t.dropped);
  const Faults faults = process_faults();
  out.family("moetier:page_faults_total", Type::counter, "Page faults of the process.");
  out.sample(faults.major, {{"kind", "major"}});
  out.sample(faults.minor, {{"kind", "minor"}});
  const ProcessMemory memory = process_memory();
  out.single("moetier:process_resident_bytes", Type::gauge, "Memory of the process.", memory.resident);
  out.family("moetier:memory_bytes", Type::gauge, "Memory by what it is for.");
  out.sample(t.dense_bytes, {{"for", "dense_weights"}});
  out.sample(t.status.arena_bytes, {{"for", "expert_cache"}});
  out.sample(t.kv_used, {{"for", "kv"}});
  out.sample(t.buffers, {{"for", "buffers"}});
  out.single("moetier:kv_reserved_bytes", Type::gauge, "What the KV cache can grow to.", t.kv_reserved);
}

/// Of the tier that is there: the host's.
void render_tiers(MetricsText& out, const TierSnapshot& t) {
  const MetricsText::Labels host = {{"tier", "host"}};
  const auto counter = [&](std::string_view name, std::string_view help, auto value) {
    out.family(name, Type::counter, help);
    out.sample(value, host);
  };
  const auto gauge = [&](std::string_view name, std::string_view help, uint64_t value) {
    out.family(name, Type::gauge, help);
    out.sample(value, host);
  };
  const StoreCounters& c = t.total;
  out.family("moetier:experts_info", Type::gauge, "How experts are kept; always 1.");
  out.sample(uint64_t{1},
             {{"mode", std::string(to_string(t.status.mode))}, {"policy", t.status.policy}, {"io", t.status.io}});
  counter("moetier:tier_hits_total", "Experts of small batches that were in the tier.", c.hits);
  counter("moetier:tier_misses_total", "Experts of small batches that were not.", c.misses);
  counter("moetier:tier_large_hits_total", "Experts of large batches that were in the tier.", c.large_hits);
  counter("moetier:tier_large_misses_total", "Experts of large batches that were not.", c.large_misses);
  counter("moetier:tier_evictions_total", "Experts that made room for others.", c.evictions);
  counter("moetier:tier_swaps_total", "Experts that the policy brought in between tokens.", c.swaps);
  counter("moetier:tier_reads_total", "Experts read from the tier below.", c.reads);
  counter("moetier:tier_rereads_total", "Of misses, experts that had been read before.", c.rereads);
  counter("moetier:tier_read_bytes_total", "Bytes read from the tier below.", c.bytes_read);
  counter("moetier:tier_read_wait_seconds_total", "Blocked until a read came.", t.store.read_wait_seconds);
  counter("moetier:tier_manage_seconds_total", "Bookkeeping, submitting and reaping reads.", t.store.manage_seconds);
  counter("moetier:tier_speculated_total", "Experts read ahead of the router.", c.speculated);
  counter("moetier:tier_speculated_used_total", "Of them, experts that were then picked.", c.speculated_used);
  counter("moetier:tier_advise_calls_total", "Calls that told the kernel what is needed next.", t.store.advise_calls);
  counter("moetier:tier_advise_bytes_total", "Bytes that they named.", t.store.advise_bytes);
  counter("moetier:tier_advise_seconds_total", "Time of these calls.", t.store.advise_seconds);
  gauge("moetier:tier_budget_bytes", "What the tier may take.", t.status.budget_bytes);
  gauge("moetier:tier_bytes", "What it has taken.", t.status.arena_bytes);
  gauge("moetier:tier_transit_bytes", "Of that, room for what is on its way.", t.status.transit_bytes);
  gauge("moetier:tier_slots", "Homes for experts.", static_cast<uint64_t>(t.status.slots));
  gauge("moetier:token_cycle_bytes", "The most that one token can need.", t.status.token_demand_bytes);
  per_layer(out, t, "moetier:layer_reads_total", "Experts of a layer read from the tier below.", &StoreCounters::reads);
  per_layer(out, t, "moetier:layer_read_bytes_total", "Bytes of them.", &StoreCounters::bytes_read);
}

}  // namespace

void ServeMeters::note_step(size_t slots_at_work, double seconds) {
  ++steps;
  busy_slots += slots_at_work;
  step.observe(seconds);
}

void ServeMeters::note_request(const RequestResult& r) {
  ++finished[static_cast<size_t>(r.finish)];
  request.observe(r.total_seconds);
  if (r.slot < 0) return;
  queue.observe(r.queue_seconds);
  if (r.sampled_tokens > 0) first_token.observe(r.first_token_seconds);
  prompt_tokens += static_cast<uint64_t>(r.computed_tokens);
  cached_tokens += static_cast<uint64_t>(r.cached_tokens);
  sampled_tokens += static_cast<uint64_t>(r.sampled_tokens);
  prompt_seconds += r.prompt_seconds;
  decode_seconds += r.decode_seconds;
  most_tokens = std::max(most_tokens, static_cast<uint64_t>(r.prompt_tokens + r.sampled_tokens));
}

TierSnapshot read_tier(Context& context) {
  Engine& engine = context.engine();
  const std::lock_guard quiet(engine.run_mutex());
  TierSnapshot t;
  t.batches = context.meters();
  t.weight_bytes = read_meters(context, false).weight_bytes;
  t.kv_used = context.kv().used_bytes();
  t.kv_reserved = context.kv().reserved_bytes();
  t.buffers = context.buffer_bytes();
  t.dense_bytes = engine.model().dense_bytes();
  if (const MoeOperation* moe = context.moe(); moe != nullptr) {
    t.moe_wait_seconds = moe->meters().wait_seconds;
    t.moe_compute_seconds = moe->meters().compute_seconds;
    t.picks = moe->meters().picks;
    t.dropped = moe->meters().dropped;
  }
  ExpertStore* store = engine.store();
  if (store == nullptr) return t;
  t.experts = true;
  t.status = store->status();
  t.cached = has_cache(t.status);
  t.store = store->meters();
  const std::vector<StoreCounters> passed = context.store_counters();
  for (size_t i = 0; i < passed.size(); ++i) {
    t.layers.emplace_back(store->map().layers[i].layer, passed[i]);
    t.total += passed[i];
  }
  return t;
}

std::string render_metrics(const ServeMeters& meters, const TierSnapshot& tier, const ServeGauges& gauges) {
  MetricsText out;
  render_server(out, meters, gauges);
  if (tier.cached) render_cache(out, tier);
  render_requests(out, meters, tier, gauges);
  render_work(out, tier);
  if (tier.experts) render_tiers(out, tier);
  return out.take();
}

std::string hits_line(const RequestResult& r) {
  constexpr double kMiB = 1 << 20, kGiB = 1 << 30;
  const double seconds = r.total_seconds - r.queue_seconds - r.aside_seconds;
  const auto bytes = static_cast<double>(r.bytes_read);
  return fmt::format("MoE cache hits = {:.1f} % ({} hit, {} from the profile, {} read: {:.1f} MiB, {:.2f} GiB/s)",
                     100 * ratio(r.hits, r.misses), r.hits, r.hits_profile, r.misses, bytes / kMiB,
                     seconds > 0 ? bytes / kGiB / seconds : 0);
}

}  // namespace moetier
