// plan: which bytes go to which tier on this machine, and what that will give.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/model_rates.h"
#include "cli/support.h"
#include "engine/dense_memory.h"
#include "experts/pick_counts.h"
#include "experts/profile.h"
#include "experts/sizing.h"
#include "experts/slot_layout.h"
#include "experts/tier_plan.h"
#include "io/memory.h"
#include "model/model.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

uint64_t gib(double n) {
  return static_cast<uint64_t>(std::llround(n * 1073741824.0));
}

/// The model's numbers, and what the traces say about it.
struct Job {
  GgufFile file;
  EntryMap map;
  std::vector<LayerShape> shapes;
  int layers = 0;  // that are run
  uint64_t dense = 0;
  std::vector<TraceRun> runs;           // of the traces, on the model's layers
  std::vector<TraceRun> first, second;  // halves of them: to rank by one, and to measure on the other
  std::string order;                    // where the order of entries comes from
};

RoutingTrace half_of(RoutingTrace trace, bool second) {
  const int64_t middle = trace.tokens / 2;
  std::erase_if(trace.routings, [&](const Routing& r) { return (r.token >= middle) != second; });
  return trace;
}

void check_shards(const Settings& settings, const GgufFile& file) {
  for (const std::string& path : settings.texts("shards")) {
    const bool its = std::ranges::any_of(file.shards(), [&](const GgufFile::Shard& shard) {
      std::error_code absent;
      return std::filesystem::equivalent(shard.path, path, absent);
    });
    if (!its) usage_error("{} is no shard of {}; plan takes one model at a time", path, file.path());
  }
}

void read_traces(const Settings& settings, Job& job) {
  uint64_t picks = 0;
  for (const std::string& path : settings.texts("trace")) {
    const RoutingTrace trace = read_trace(path);
    const TraceRunOptions options{.text_as_decoded = true};
    job.runs.push_back(run_on(trace, path, job.shapes, options));
    picks += job.runs.back().picks.size();
    if (trace.tokens < 2) continue;
    for (const bool second : {false, true})
      (second ? job.second : job.first).push_back(run_on(half_of(trace, second), path, job.shapes, options));
  }
  job.order = job.runs.empty()
                  ? "no trace: the first experts of every layer before the second ones, and so on; hit rates as if "
                    "every expert were as likely as any other"
                  : fmt::format("{} picks of {}", picks, fmt::join(settings.texts("trace"), ", "));
}

Job job_of(const Settings& settings) {
  Job job{open_model_file(settings), {}, {}, 0, 0, {}, {}, {}, ""};
  check_shards(settings, job.file);
  job.layers = read_layers(job.file);
  job.map = EntryMap::from_gguf(job.file, read_top_k(job.file), job.layers);
  if (job.map.layers.empty()) fail("{} has no experts, so there is nothing to plan", job.file.path());
  job.shapes = model_shapes(job.map);
  job.dense = dense_bytes(job.file, job.map);
  read_traces(settings, job);
  return job;
}

/// What a run would decide about memory: the engine's own sizing.
SizingPlan size_memory(const Settings& settings, const Job& job, bool dense_on_device) {
  SizingInput in;
  if (settings.is_set("ram-gib")) {
    in.available = gib(settings.real("ram-gib"));
    in.group_limit = *in.available;  // as under a limit of that size
  } else {
    const MemoryState memory = memory_state();
    in.available = memory.available;
    in.group_limit = memory.group_limit;
  }
  in.bank = job.map.total_bytes();
  in.dense = dense_on_device ? 0 : job.dense;
  try {
    ContextOptions context;
    context.context = settings.integer("ctx");
    context.ubatch = settings.integer("ubatch");
    context.kv_type = find_type(settings.text("kv-type"))->type;
    const ContextBytes bytes = context_bytes(architecture_of(job.file).read(job.file), context, true);
    in.kv = bytes.kv;
    in.buffers = bytes.buffers + bytes.kernels;
  } catch (const Error& error) {
    log::warn("memory for the KV cache is not counted: {}", error.what());
  }
  ResidencyOptions options;
  if (settings.is_set("cache-mb")) options.cache_bytes = static_cast<uint64_t>(settings.integer("cache-mb")) << 20;
  return plan_residency(options, in);
}

void write_order(const Settings& settings, const Job& job, const EntryOrder& order, const TierPlan& plan) {
  if (!settings.is_set("out")) return;
  std::vector<std::pair<int, int>> ranked;
  for (const auto& [place, expert] : order)
    ranked.emplace_back(job.map.layers[static_cast<size_t>(place)].layer, expert);
  const auto [layers, experts] = profile_shape(job.map, job.layers);
  const size_t slots = plan.device.empty() ? plan.host.size() : plan.device.size();
  write_profile(settings.text("out"), layers, experts, ranked, static_cast<uint32_t>(slots));
  log::info("{}: {} entries ranked, made for {} slots", settings.text("out"), ranked.size(), slots);
}

/// Hits of plans whose device entries were ranked by one half of the traces, on the other half; without a device, on
/// all of them.
TierHits hits_on_traces(const Job& job, const TierPlanInput& input, const TierPlan& plan) {
  const CachePolicy policy = CachePolicy::standard;
  const bool held_out = !plan.device.empty() && !job.second.empty();
  TierPlanInput half = input;
  if (held_out) half.order = whole_order(job.shapes, rank_picks(job.first));
  const TierPlan its = held_out ? plan_tiers(half) : plan;
  TierHits sum;
  double tokens = 0;
  for (const TraceRun& run : held_out ? job.second : job.runs) {
    const TierHits hits = expected_hits(run, half, its, policy);
    const auto n = static_cast<double>(run.decode_tokens);
    sum.device += n * hits.device;
    sum.host += n * hits.host;
    sum.file += n * hits.file;
    sum.read_bytes += n * hits.read_bytes;
    sum.compute_bytes += n * hits.compute_bytes;
    tokens += n;
  }
  if (tokens <= 0) fail("the traces have no tokens to measure on");
  for (double* part : {&sum.device, &sum.host, &sum.file, &sum.read_bytes, &sum.compute_bytes}) *part /= tokens;
  return sum;
}

struct Tier {
  const char* name;
  std::string budget;
  uint64_t dense, experts;
  size_t entries;
  double hits;
};

std::vector<Tier> tiers_of(const Job& job, const TierPlanInput& input, const TierPlan& plan, const TierHits& hits,
                           const SizingPlan& sizing) {
  std::vector<Tier> tiers;
  if (input.device)
    tiers.push_back({"device", format_bytes(*input.device), plan.dense_on_device ? job.dense : 0, plan.device_bytes,
                     plan.device.size(), hits.device});
  tiers.push_back({"host", input.resident ? "all" : format_bytes(sizing.budget), plan.dense_on_device ? 0 : job.dense,
                   plan.host_bytes, plan.host.size(), hits.host});
  tiers.push_back({"file", "", 0, plan.file_bytes, static_cast<size_t>(plan.file_entries), hits.file});
  return tiers;
}

std::string text_of(const Job& job, const std::vector<Tier>& tiers, const SizingPlan& sizing) {
  size_t all = 0;
  for (const LayerShape& shape : job.shapes) all += static_cast<size_t>(shape.n_expert);
  std::string out =
      fmt::format("{}: {} layers with experts, {} entries ({}), token cycle {}, dense weights {}\n{}\norder: {}\n\n",
                  job.file.path(), job.map.layers.size(), all, format_bytes(job.map.total_bytes()),
                  format_bytes(job.map.token_cycle_bytes()), format_bytes(job.dense), sizing.why, job.order);
  out += fmt::format("{:<7} {:>9} {:>9} {:>9} {:>9} {:>8} {:>12}\n", "tier", "budget", "dense", "experts", "entries",
                     "of all", "picks found");
  for (const Tier& t : tiers) {
    out += fmt::format("{:<7} {:>9} {:>9} {:>9} {:>9} {:>6.1f} % {:>10.1f} %\n", t.name, t.budget,
                       t.dense > 0 ? format_bytes(t.dense) : "-", t.experts > 0 ? format_bytes(t.experts) : "-",
                       t.entries, 100.0 * static_cast<double>(t.entries) / static_cast<double>(all), 100 * t.hits);
  }
  return out;
}

Json json_of(const Job& job, const std::vector<Tier>& tiers, const SizingPlan& sizing, const TierHits& hits,
             const TokenBytes& bytes, const MeasuredRates& measured) {
  Json list = Json::array();
  for (const Tier& t : tiers)
    list.push_back({{"tier", t.name},
                    {"dense_bytes", t.dense},
                    {"expert_bytes", t.experts},
                    {"entries", t.entries},
                    {"hit_pct", 100 * t.hits}});
  const TokenTime time = token_time(bytes, measured.rates);
  return {{"model", job.file.path()},
          {"layers", job.map.layers.size()},
          {"bank_bytes", job.map.total_bytes()},
          {"dense_bytes", job.dense},
          {"token_cycle_bytes", job.map.token_cycle_bytes()},
          {"order", job.order},
          {"mode", to_string(sizing.mode)},
          {"cache_bytes", sizing.budget},
          {"why", sizing.why},
          {"tiers", list},
          {"token",
           {{"dense_bytes", bytes.dense},
            {"expert_bytes", bytes.experts},
            {"read_bytes", hits.read_bytes},
            {"dense_bytes_per_second", measured.rates.dense},
            {"expert_bytes_per_second", measured.rates.experts},
            {"drive_bytes_per_second", measured.rates.drive},
            {"rest_seconds", time.rest},
            {"seconds", time.known ? Json(time.expected()) : Json(nullptr)},
            {"tok_s", time.known ? Json(1 / time.expected()) : Json(nullptr)},
            {"tok_s_least", time.known ? Json(1 / time.worst()) : Json(nullptr)},
            {"tok_s_most", time.known ? Json(1 / time.best()) : Json(nullptr)}}}};
}

}  // namespace

int run_plan(const Settings& settings) {
  refuse_overwriting(settings, "out", {"model", "shards", "trace"});
  const Job job = job_of(settings);
  TierPlanInput input;
  input.shapes = job.shapes;
  input.dense = job.dense;
  if (settings.is_set("vram-gib")) {
    const double reserve = settings.real("reserve-gib"), all = settings.real("vram-gib");
    if (all <= reserve)
      usage_error("--vram-gib {} leaves nothing over the --reserve-gib {} that is kept free", all, reserve);
    input.device = gib(all - reserve);
  } else if (settings.integer("whole-layers") > 0) {
    usage_error("--whole-layers puts layers on a device: give its memory with --vram-gib");
  }
  input.whole_layers = static_cast<int>(settings.integer("whole-layers"));
  const bool dense_on_device = input.device && job.dense <= *input.device;
  const SizingPlan sizing = size_memory(settings, job, dense_on_device);
  input.resident = sizing.mode == ExpertMode::resident;
  input.host = sizing.budget;
  input.order = whole_order(job.shapes, rank_picks(job.runs));
  const TierPlan plan = plan_tiers(input);
  const TierHits hits = job.runs.empty() ? even_hits(input, plan) : hits_on_traces(job, input, plan);
  const std::vector<Tier> tiers = tiers_of(job, input, plan, hits, sizing);
  const MeasuredRates measured = rates_of(settings, &job.file, job.map);
  const auto dense = static_cast<double>(dense_token_bytes(job.file, job.map));
  // What the device computes, layers' small work included, is not in the time.
  const TokenBytes bytes{plan.dense_on_device ? 0 : dense, hits.compute_bytes, hits.read_bytes,
                         plan.dense_on_device ? 0 : job.layers};
  if (settings.flag("json")) {
    print_json(json_of(job, tiers, sizing, hits, bytes, measured));
  } else {
    std::string out = text_of(job, tiers, sizing);
    if (input.device && !plan.dense_on_device)
      out += "the dense weights do not fit on the device, so it gets no entries either\n";
    if (plan.whole_layers < input.whole_layers)
      out += fmt::format("only {} of the {} whole layers fit on the device\n", plan.whole_layers, input.whole_layers);
    if (!measured.how.empty()) {
      out += fmt::format("\na token on the CPU{} ({})\n{}", input.device ? ", without what the device computes" : "",
                         measured.how, explain(bytes, measured.rates));
    }
    print_out(out);
  }
  write_order(settings, job, input.order, plan);
  return 0;
}

}  // namespace moetier::cli
