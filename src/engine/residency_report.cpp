#include "engine/residency_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/thread_pool.h"
#include "base/units.h"
#include "engine/machine.h"
#include "engine/op_report.h"
#include "engine/residency.h"
#include "io/block_device.h"

namespace moetier {
namespace {

using Json = nlohmann::ordered_json;

double mib(uint64_t bytes) {
  return static_cast<double>(bytes) / 1048576.0;
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json mib_or_null(const std::optional<uint64_t>& bytes) {
  return bytes ? Json(mib(*bytes)) : Json(nullptr);
}

std::optional<double> hit_percent(uint64_t hits, uint64_t misses) {
  if (hits + misses == 0) return std::nullopt;
  return 100 * static_cast<double>(hits) / static_cast<double>(hits + misses);
}

/// The counters as records name them.
void put_counters(Json& to, const StoreCounters& c, bool cached) {
  to["cache_hit_pct"] = cached ? or_null(hit_percent(c.hits, c.misses)) : Json(nullptr);
  to["cache_hits"] = c.hits;
  to["cache_misses"] = c.misses;
  to["cache_few_hits"] = c.few_hits;
  to["cache_few_misses"] = c.few_misses;
  to["cache_hits_profile"] = c.hits_profile;
  to["cache_large_hits"] = c.large_hits;
  to["cache_large_misses"] = c.large_misses;
  to["cache_evictions"] = c.evictions;
  to["cache_rereads"] = c.rereads;
  to["cache_swaps"] = c.swaps;
  to["entries_read"] = c.reads;
  to["read_mib"] = mib(c.bytes_read);
  to["speculated"] = c.speculated;
  to["speculated_used"] = c.speculated_used;
  to["speculated_mib"] = mib(c.speculated_bytes);
}

/// The meters as records name them.
void put_cost(Json& to, const Cost& c) {
  to["wall_s"] = c.wall_seconds;
  to["read_wait_s"] = c.store.read_wait_seconds;
  to["manage_s"] = c.store.manage_seconds;
  to["compute_s"] = c.compute_seconds();
  to["expert_compute_s"] = c.moe_compute_seconds;
  to["sampling_s"] = c.sampling_seconds;
  to["loop_overhead_s"] = c.loop_seconds();
  to["picks"] = c.picks;
  to["picks_dropped"] = c.dropped;
  to["majflt"] = c.faults.major;
  to["minflt"] = c.faults.minor;
  to["cpu_s"] = or_null(c.cpu_seconds);
  const auto others = c.other_cpu_share();
  to["other_cpu_pct"] = others ? Json(100 * *others) : Json(nullptr);
  to["device_read_mib"] = mib_or_null(c.device_bytes);
  to["swapped_in_mib"] = mib_or_null(c.swapped_in_bytes);
  to["advise_calls"] = c.store.advise_calls;
  to["advise_mib"] = mib(c.store.advise_bytes);
  to["advise_failures"] = c.store.advise_failures;
  to["advise_s"] = c.store.advise_seconds;
  to["copied_mib"] = mib(c.store.copied_bytes);
  to["copy_s"] = c.store.copy_seconds;
}

Json phase_json(const RunMeters::Phase& phase, bool cached) {
  const double tokens = static_cast<double>(phase.tokens);
  Json out{{"tokens", phase.tokens}};
  out["tok_s"] = phase.cost.wall_seconds > 0 ? Json(tokens / phase.cost.wall_seconds) : Json(nullptr);
  put_cost(out, phase.cost);
  put_counters(out, phase.cost.counters, cached);
  out["weight_mib_per_token"] = tokens > 0 ? Json(mib(phase.cost.weight_bytes) / tokens) : Json(nullptr);
  out["read_mib_per_token"] = tokens > 0 ? Json(mib(phase.cost.counters.bytes_read) / tokens) : Json(nullptr);
  out["majflt_per_token"] = tokens > 0 ? Json(static_cast<double>(phase.cost.faults.major) / tokens) : Json(nullptr);
  return out;
}

StoreStatus status_of(Context& context) {
  ExpertStore* store = context.engine().store();
  return store != nullptr ? store->status() : StoreStatus{};
}

/// What stands as null in the stats, and why.
Json reasons(Context& context, const Cost& total, const StoreStatus& status, const MemoryState& memory,
             const ProcessMemory& process) {
  Json out = Json::object();
  for (const auto& [key, why] : unmeasured(total)) out[key] = why;
  const Residency& residency = context.engine().residency();
  if (!has_cache(status)) {
    out["cache_hit_pct"] = "there is no cache";
  } else if (total.counters.hits + total.counters.misses == 0) {
    out["cache_hit_pct"] = fmt::format("no ubatch of up to {} rows asked for experts", kSmallRows);
  }
  const Engine::FirstToken& first = context.engine().first_token();
  if (first.after_start <= 0) out["first_token_s"] = "nothing was computed, or /proc/self/stat cannot be read";
  if (first.after_load <= 0) out["first_token_after_load_s"] = "nothing was computed";
  if (residency.drive_bytes_per_second <= 0) out["drive_mib_s"] = "the drive was not measured in this run";
  if (residency.read_ahead_bytes == 0) out["read_ahead_kb"] = "the system does not tell of this file's device";
  if (!memory.available) out["mem_available_mib"] = "the system does not tell";
  if (!memory.tightest) {
    out["cgroup_usage_mib"] = out["cgroup_limit_mib"] = "no memory cgroup limits this process";
  }
  if (!process.swapped) out["swap_mib"] = "the system does not tell";
  if (!process.locked) out["locked_mib"] = "the system does not tell";
  return out;
}

Json layers_json(Context& context, const RunMeters& meters, bool cached) {
  Json out = Json::array();
  ExpertStore* store = context.engine().store();
  if (store == nullptr) return out;
  const std::vector<LayerEntries>& layers = store->map().layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    Json prefill = Json::object(), decode = Json::object();
    put_counters(prefill, meters.prompt().layers[i], cached);
    put_counters(decode, meters.decode().layers[i], cached);
    out.push_back({{"layer", layers[i].layer},
                   {"entry_mib", mib(layers[i].entry_bytes())},
                   {"prefill", prefill},
                   {"decode", decode}});
  }
  return out;
}

}  // namespace

Json residency_json(Context& context) {
  Engine& engine = context.engine();
  const Residency& r = engine.residency();
  const ResidencyOptions& asked = engine.options().residency;
  const StoreStatus status = status_of(context);
  const ExpertStore* store = engine.store();
  Json plan{{"mode", to_string(r.plan.mode)},
            {"fits", r.plan.fits},
            {"budget_bytes", r.plan.budget},
            {"from_memory", r.plan.from_memory},
            {"reserved_bytes", r.plan.reserved},
            {"floor_bytes", r.plan.floor},
            {"available_bytes", or_null(r.plan.input.available)},
            {"group_limit_bytes", r.plan.input.group_limit},
            {"bank_bytes", r.plan.input.bank},
            {"kv_bytes", r.plan.input.kv},
            {"buffer_bytes", r.plan.input.buffers},
            {"dense_bytes", r.plan.input.dense},
            {"dense_mapped_bytes", r.plan.input.dense_mapped},
            {"why", r.plan.why}};
  return {{"mode_requested", to_string(asked.mode)},
          {"mode", store != nullptr ? Json(to_string(status.mode)) : Json(nullptr)},
          {"dense_weights_requested", to_string(asked.dense)},
          {"dense_weights", to_string(r.dense)},
          {"dense_read_bytes", r.dense_bytes},
          {"dense_read_seconds", r.dense_seconds},
          {"policy_requested", to_string(asked.policy)},
          {"policy", status.policy.empty() ? Json(nullptr) : Json(status.policy)},
          {"io", status.io.empty() ? Json(nullptr) : Json(status.io)},
          {"advising", status.advising},
          {"cached", has_cache(status)},
          {"budget_bytes", status.budget_bytes},
          {"arena_bytes", status.arena_bytes},
          {"transit_bytes", status.transit_bytes},
          {"slots", status.slots},
          {"prefilled", status.prefilled},
          {"cache_cycle_bytes", store != nullptr ? store->map().token_cycle_bytes() : 0},
          {"token_demand_bytes", status.token_demand_bytes},
          {"layer_demand_bytes", status.layer_demand_bytes},
          {"drive_bytes_per_second", r.drive_bytes_per_second > 0 ? Json(r.drive_bytes_per_second) : Json(nullptr)},
          {"read_ahead_bytes", r.read_ahead_bytes > 0 ? Json(r.read_ahead_bytes) : Json(nullptr)},
          {"advise_random", r.random.why.empty() ? Json(nullptr) : Json(r.random.random)},
          {"advise_random_measured", r.random.measured},
          {"advise_random_why", r.random.why},
          {"plan", plan}};
}

Json stats_json(Context& context, const RunMeters& meters) {
  Engine& engine = context.engine();
  ExpertStore* store = engine.store();
  const Residency& residency = engine.residency();
  const StoreStatus status = status_of(context);
  const ProcessMemory process = process_memory();
  const MemoryState memory = memory_state();
  Cost total = meters.prompt().cost;
  total.add(meters.decode().cost);
  if (store != nullptr) total.counters = store->counters();  // since the model was loaded
  Json out{{"program", "moetier"}, {"version", MOETIER_VERSION}};
  out["mode"] = store != nullptr ? Json(to_string(status.mode)) : Json("dense");
  out["mode_requested"] = to_string(engine.options().residency.mode);
  out["policy"] = status.policy.empty() ? Json("none") : Json(status.policy);
  out["io"] = status.io.empty() ? Json("none") : Json(status.io);
  out["dense_weights"] = to_string(residency.dense);
  put_counters(out, total.counters, has_cache(status));
  out["cache_budget_mb"] = mib(status.budget_bytes);
  out["cache_cycle_mb"] = mib(store != nullptr ? store->map().token_cycle_bytes() : 0);
  out["cache_slots"] = status.slots;
  out["cache_prefilled"] = status.prefilled;
  out["token_demand_mib"] = mib(status.token_demand_bytes);
  out["layer_demand_mib"] = mib(status.layer_demand_bytes);
  out["bank_mib"] = mib(store != nullptr ? store->map().total_bytes() : 0);
  out["resident_mib"] = mib(store != nullptr ? store->resident_bytes() : 0);
  put_cost(out, total);
  out["load_s"] = engine.load_seconds();
  out["first_tokens_s"] = meters.first_tokens();
  const Engine::FirstToken& first = engine.first_token();
  out["first_token_s"] = first.after_start > 0 ? Json(first.after_start) : Json(nullptr);
  out["first_token_after_load_s"] = first.after_load > 0 ? Json(first.after_load) : Json(nullptr);
  out["rss_mib"] = mib(process.resident);
  out["peak_rss_mib"] = mib(process.peak_resident);
  out["rss_anon_mib"] = mib(process.anonymous);
  out["rss_file_mib"] = mib(process.file);
  out["swap_mib"] = mib_or_null(process.swapped);
  out["locked_mib"] = mib_or_null(process.locked);
  out["mem_available_mib"] = mib_or_null(memory.available);
  out["cgroup_usage_mib"] = memory.tightest ? Json(mib(memory.tightest->usage)) : Json(nullptr);
  out["cgroup_limit_mib"] = memory.tightest ? Json(mib(memory.tightest->limit)) : Json(nullptr);
  out["read_ahead_kb"] = residency.read_ahead_bytes > 0 ? Json(residency.read_ahead_bytes / 1024) : Json(nullptr);
  const double rate = residency.drive_bytes_per_second;
  out["drive_mib_s"] = rate > 0 ? Json(rate / 1048576.0) : Json(nullptr);
  const AccountInput input = account_input(context, meters);
  out["bound"] = to_string(judge(input).bound);
  out["account"] = account(input);
  if (engine.profile().timed()) out["ops"] = ops_json(engine);
  out["prefill"] = phase_json(meters.prompt(), has_cache(status));
  out["decode"] = phase_json(meters.decode(), has_cache(status));
  out["layers"] = layers_json(context, meters, has_cache(status));
  out["unmeasured"] = reasons(context, total, status, memory, process);
  return out;
}

AccountInput account_input(Context& context, const RunMeters& meters) {
  Engine& engine = context.engine();
  const Residency& residency = engine.residency();
  const StoreStatus status = status_of(context);
  const RunMeters::Phase& phase = meters.decode().tokens > 0 ? meters.decode() : meters.prompt();
  const Cost& c = phase.cost;
  AccountInput in;
  in.mode = status.mode;
  in.dense = residency.dense;
  in.has_experts = engine.store() != nullptr;
  in.cached = has_cache(status);
  in.overlap = engine.options().residency.overlap;
  in.tokens = phase.tokens;
  in.wall = c.wall_seconds;
  in.read_wait = c.store.read_wait_seconds;
  in.compute = c.compute_seconds();
  in.bytes_read = c.counters.bytes_read;
  in.device_bytes = c.device_bytes;
  if (has_cache(status)) {
    const auto percent =
        hit_percent(c.counters.hits + c.counters.large_hits, c.counters.misses + c.counters.large_misses);
    if (percent) in.hit_share = *percent / 100;
  }
  in.major_faults = c.faults.major;
  in.swapped_in = c.swapped_in_bytes;
  in.budget = status.budget_bytes;
  in.bank = engine.store() != nullptr ? engine.store()->map().total_bytes() : 0;
  in.available = memory_state().available;
  in.floor = residency.plan.floor;
  in.drive_rate = residency.drive_bytes_per_second;
  in.threads = engine.options().cpu.threads;
  in.cpus = available_cpus();
  in.other_cpu_share = c.other_cpu_share();
  return in;
}

std::vector<std::string> residency_lines(Context& context, const RunMeters& meters, bool verbose) {
  std::vector<std::string> lines;
  ExpertStore* store = context.engine().store();
  if (store == nullptr) return lines;
  const StoreStatus status = store->status();
  const StoreCounters total = store->counters();
  if (has_cache(status)) {
    // Of decoding where there was any: a prompt asks for each entry once.
    const StoreCounters& decode = meters.decode().cost.counters;
    const bool decoded = decode.hits + decode.misses > 0;
    const auto percent = decoded ? hit_percent(decode.hits, decode.misses)
                                 : hit_percent(total.hits + total.large_hits, total.misses + total.large_misses);
    lines.push_back(fmt::format("moe-cache: {}% hit, resident {:.1f} MiB",
                                percent ? fmt::format("{:.1f}", *percent) : "no", mib(store->resident_bytes())));
  }
  if (verbose && has_cache(status)) {
    lines.push_back(
        fmt::format("moe-cache: ubatches of up to {} tokens: {} hits, {} misses; larger ones: {} hits, {} misses; {} "
                    "hits from the profile",
                    kFewRows, total.few_hits, total.few_misses, total.hits + total.large_hits - total.few_hits,
                    total.misses + total.large_misses - total.few_misses, total.hits_profile));
    std::vector<double> rates;
    for (const LayerEntries& layer : store->map().layers) {
      const StoreCounters c = store->counters(layer.layer);
      if (const auto percent = hit_percent(c.hits, c.misses); percent) rates.push_back(*percent);
    }
    if (!rates.empty()) {
      std::sort(rates.begin(), rates.end());
      lines.push_back(fmt::format("moe-cache: hit rate per layer from {:.1f}% to {:.1f}%, median {:.1f}%",
                                  rates.front(), rates.back(), rates[rates.size() / 2]));
    }
    if (status.policy == "adaptive") lines.push_back(fmt::format("adaptive: {} experts swapped in", total.swaps));
  }
  if (verbose && status.advising) {
    const StoreMeters& m = store->meters();
    lines.push_back(fmt::format("moe-advise: {} hints for {}, {} failed, {}", m.advise_calls,
                                format_bytes(m.advise_bytes), m.advise_failures, format_seconds(m.advise_seconds)));
  }
  return lines;
}

}  // namespace moetier
