// simulate: what cache policies would hit on a recorded trace.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/support.h"
#include "experts/belady.h"
#include "experts/profile.h"
#include "experts/simulator.h"
#include "experts/slot_layout.h"
#include "model/model.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMostMiB = uint64_t{1} << 24;
constexpr size_t kMostSizes = 64;
constexpr std::array<std::string_view, 7> kPolicies = {"lru",    "heat",     "cycle", "default",
                                                       "pinned", "adaptive", "belady"};

uint64_t number(std::string_view text, uint64_t most, std::string_view flag, std::string_view whole) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > most)
    usage_error("--{} {} is not understood: '{}' is not a whole number up to {}", flag, whole, text, most);
  return value;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::vector<uint64_t> cache_sizes(const Settings& settings) {
  std::vector<uint64_t> sizes;
  for (const std::string& given : settings.texts("cache-mb")) {
    for (const std::string_view part : split(given, ',')) sizes.push_back(number(part, kMostMiB, "cache-mb", given));
  }
  if (sizes.empty()) usage_error("--cache-mb is missing: give one or more sizes in MiB");
  if (sizes.size() > kMostSizes) usage_error("--cache-mb takes at most {} sizes", kMostSizes);
  return sizes;
}

std::vector<LayerShape> shape_of(const std::string& text, int top_k) {
  const std::vector<std::string_view> parts = split(text, 'x');
  if (parts.size() != 3) usage_error("--shape {} is not understood: write LAYERSxEXPERTSxBYTES", text);
  const auto layers = number(parts[0], 4096, "shape", text), experts = number(parts[1], 65536, "shape", text);
  const auto bytes = number(parts[2], uint64_t{1} << 40, "shape", text);
  if (layers == 0 || experts == 0 || bytes == 0) usage_error("--shape {} has a 0 in it", text);
  if (layers * experts > (uint64_t{1} << 22)) usage_error("--shape {} has too many entries", text);
  return std::vector<LayerShape>(layers, {static_cast<int>(experts), top_k, bytes, (bytes + 4095) / 4096 * 4096});
}

/// What is replayed, on what, and from which profile.
struct Job {
  TraceRun run;
  bool engine = false;  ///< with a run's slots and homes in transit
  std::vector<std::pair<int, int>> profile;
};

std::vector<std::pair<int, int>> profile_of(const std::string& path, const std::vector<int>& layers, int experts) {
  const Profile profile = read_profile(path, layers.back() + 1, experts);
  if (!profile.problem.empty()) log::warn("{}", profile.problem);
  std::vector<std::pair<int, int>> placed;
  for (const auto& [layer, expert] : profile.ranked) {
    const auto at = std::ranges::lower_bound(layers, layer);
    if (at != layers.end() && *at == layer) placed.emplace_back(static_cast<int>(at - layers.begin()), expert);
  }
  return placed;
}

Job job_of(const Settings& settings) {
  const std::string &path = need(settings, "trace"), &model = settings.text("model"), &shape = settings.text("shape");
  if (!model.empty() && !shape.empty()) usage_error("--shape stands for a model, so it cannot be given with --model");
  const RoutingTrace trace = read_trace(path, settings.integer("prompt-tokens"));
  const TraceRunOptions options{static_cast<int>(settings.integer("layers")), settings.integer("ubatch"),
                                settings.flag("prompt")};
  Job job;
  std::vector<int> layers;  // by place: the model's layer number
  if (!model.empty()) {
    const GgufFile file = GgufFile::open(model);
    const EntryMap map = EntryMap::from_gguf(file, trace.top_k, read_layers(file));
    if (map.layers.empty()) fail("{} has no experts, so no cache of them can be simulated", model);
    for (const LayerEntries& layer : map.layers) layers.push_back(layer.layer);
    job.run = run_on(trace, path, model_shapes(map), options);
  } else {
    job.run = shape.empty() ? run_of(trace, path, options) : run_on(trace, path, shape_of(shape, trace.top_k), options);
    for (size_t l = 0; l < job.run.shapes.size(); ++l) layers.push_back(static_cast<int>(l));
  }
  job.engine = !model.empty() || !shape.empty();
  if (const std::string& file = settings.text("moe-cache-profile"); !file.empty())
    job.profile = profile_of(file, layers, job.run.shapes.front().n_expert);
  return job;
}

std::unique_ptr<Policy> policy_of(std::string_view name, const Job& job) {
  if (name == "belady") return make_belady_policy(job.run);
  for (const CachePolicy kind : {CachePolicy::standard, CachePolicy::lru, CachePolicy::heat, CachePolicy::cycle,
                                 CachePolicy::pinned, CachePolicy::adaptive}) {
    if (to_string(kind) == name) return make_policy(kind, job.run.shapes, job.profile);
  }
  usage_error("there is no policy {}", name);
}

SimulationResult run_one(const Job& job, std::string_view policy, uint64_t mib) {
  const uint64_t budget = mib << 20;
  const uint64_t bytes = job.engine ? engine_cache_bytes(job.run.shapes, budget) : budget;
  auto slots = job.engine ? make_extent_slots(job.run.shapes, bytes, bytes) : make_byte_slots(job.run.shapes, bytes);
  return simulate(job.run, policy_of(policy, job), std::move(slots), job.profile);
}

Json json_of(const Job& job, std::string_view policy, uint64_t mib, const SimulationResult& r) {
  const auto tokens = static_cast<uint64_t>(std::max<int64_t>(job.run.decode_tokens, 1));
  return {{"policy", policy},
          {"cache_mb", mib},
          {"decode_hit_pct", r.hit_percent()},
          {"hits", r.hits},
          {"misses", r.misses},
          {"prompt_hits", r.prompt_hits},
          {"prompt_misses", r.prompt_misses},
          {"evictions", r.evictions},
          {"bytes_per_token", (r.miss_bytes + r.swap_bytes) / tokens},
          {"miss_bytes", r.miss_bytes},
          {"prompt_miss_bytes", r.prompt_miss_bytes},
          {"swap_bytes", r.swap_bytes},
          {"slots", r.slots},
          {"slot_bytes", r.capacity_bytes}};
}

Json head_of(const Settings& settings, const Job& job) {
  constexpr double kMiB = 1048576.0;
  const TraceRun& run = job.run;
  return {{"trace", settings.text("trace")},
          {"layers", run.shapes.size()},
          {"n_expert", run.shapes.front().n_expert},
          {"top_k", run.shapes.front().top_k},
          {"prompt_tokens", run.prompt_tokens},
          {"decode_tokens", run.decode_tokens},
          {"sizes", job.engine ? "slots of a run, homes in transit included" : "bytes of entries"},
          {"cache_cycle_mb", static_cast<double>(run.cycle_bytes()) / kMiB},
          {"bank_mb", static_cast<double>(run.bank_bytes()) / kMiB},
          {"compulsory_misses", compulsory_misses(run)}};
}

std::string table_of(const Json& head, const std::vector<std::string_view>& policies,
                     const std::vector<uint64_t>& sizes, const std::vector<SimulationResult>& results) {
  std::string out =
      fmt::format("{}: {} layers x {} experts, top {}; {} prompt and {} decoded tokens\n",
                  head["trace"].get<std::string>(), head["layers"].get<size_t>(), head["n_expert"].get<int>(),
                  head["top_k"].get<int>(), head["prompt_tokens"].get<int64_t>(), head["decode_tokens"].get<int64_t>());
  out += fmt::format("token cycle {:.1f} MiB, all entries {:.0f} MiB; sizes are {}\n\n",
                     head["cache_cycle_mb"].get<double>(), head["bank_mb"].get<double>(),
                     head["sizes"].get<std::string>());
  out += fmt::format("{:<26}", "decode hits %, at MiB");
  for (const uint64_t mib : sizes) out += fmt::format(" {:>8}", mib);
  out += '\n';
  for (size_t p = 0; p < policies.size(); ++p) {
    out += fmt::format("{:<26}", policies[p]);
    for (size_t s = 0; s < sizes.size(); ++s)
      out += fmt::format(" {:>8.1f}", results[p * sizes.size() + s].hit_percent());
    out += '\n';
  }
  const SimulationResult& any = results.front();
  const double all = static_cast<double>(any.hits + any.misses);
  const double first = head["compulsory_misses"].get<double>();
  out += fmt::format("{:<26}", "an endless cache");
  for (size_t s = 0; s < sizes.size(); ++s) out += fmt::format(" {:>8.1f}", all > 0 ? 100 * (1 - first / all) : 0.0);
  return out + '\n';
}

}  // namespace

int run_simulate(const Settings& settings) {
  const std::vector<uint64_t> sizes = cache_sizes(settings);
  const Job job = job_of(settings);
  std::vector<std::string_view> policies = {settings.text("policy")};
  if (policies.front() == "all") policies.assign(kPolicies.begin(), kPolicies.end());
  if (policies.size() > 1 && job.profile.empty()) std::erase(policies, "pinned");  // it would be lru
  Json runs = Json::array();
  std::vector<SimulationResult> results;
  for (const std::string_view policy : policies) {
    for (const uint64_t mib : sizes) {
      results.push_back(run_one(job, policy, mib));
      runs.push_back(json_of(job, policy, mib, results.back()));
    }
  }
  Json head = head_of(settings, job);
  if (!settings.flag("json")) {
    print_out(table_of(head, policies, sizes, results));
    return 0;
  }
  if (runs.size() == 1) {
    head.update(runs.front());
  } else {
    head["runs"] = runs;
  }
  print_json(head);
  return 0;
}

}  // namespace moetier::cli
