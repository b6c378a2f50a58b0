// simulate: what cache policies would hit on a recorded trace.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/model_rates.h"
#include "cli/simulate_report.h"
#include "cli/support.h"
#include "experts/belady.h"
#include "experts/policy_spec.h"
#include "experts/profile.h"
#include "experts/simulator.h"
#include "experts/slot_layout.h"
#include "experts/tier_plan.h"
#include "model/model.h"

namespace moetier::cli {
namespace {

constexpr uint64_t kMostMiB = uint64_t{1} << 24;
constexpr size_t kMostSizes = 64;
constexpr std::array<std::string_view, 8> kPolicies = {"lru",     "heat",   "cycle",    "reuse",
                                                       "default", "pinned", "adaptive", "belady"};
constexpr std::string_view kBelady = "belady";

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
  EntryOrder profile;   ///< what fills the cache first
  double pinned = 1;    ///< share of the cache that it may fill
  std::optional<GgufFile> file;
  EntryMap map;            ///< of the file
  double trace_dense = 0;  ///< bytes of dense weights, as the trace tells them
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

/// The layer numbers that the places of a run stand for: the trace's own, or of a shape the places themselves.
std::vector<int> layer_numbers(const RoutingTrace& trace, size_t places, bool own) {
  std::vector<int> layers;
  for (size_t l = 0; l < places; ++l) layers.push_back(static_cast<int>(l));
  if (!own) return layers;
  std::vector<char> seen(static_cast<size_t>(trace.n_layer), 0);
  for (const Routing& r : trace.routings) seen[static_cast<size_t>(r.layer)] = 1;
  size_t place = 0;
  for (size_t l = 0; l < seen.size() && place < places; ++l) {
    if (seen[l] != 0) layers[place++] = static_cast<int>(l);
  }
  return layers;
}

bool same_entries(std::span<const LayerShape> a, std::span<const LayerShape> b) {
  return std::ranges::equal(a, b, {}, &LayerShape::n_expert, &LayerShape::n_expert);
}

Job job_of(const Settings& settings) {
  const std::string &path = need(settings, "trace"), &model = settings.text("model"), &shape = settings.text("shape");
  if (!model.empty() && !shape.empty()) usage_error("--shape stands for a model, so it cannot be given with --model");
  const RoutingTrace trace = read_prompted_trace(path, settings);
  TraceRunOptions options{static_cast<int>(settings.integer("layers")), settings.integer("ubatch"),
                          settings.flag("prompt"), settings.flag("token-by-token")};
  Job job;
  std::vector<int> layers;  // by place: the model's layer number
  if (!model.empty()) {
    job.file = GgufFile::open(model);
    job.map = EntryMap::from_gguf(*job.file, trace.top_k, read_layers(*job.file));
    if (job.map.layers.empty()) fail("{} has no experts, so no cache of them can be simulated", model);
    for (const LayerEntries& layer : job.map.layers) layers.push_back(layer.layer);
  }
  const auto play = [&](const RoutingTrace& its, const std::string& name) {
    if (!model.empty()) return run_on(its, name, model_shapes(job.map), options);
    return shape.empty() ? run_of(its, name, options) : run_on(its, name, shape_of(shape, its.top_k), options);
  };
  job.run = play(trace, path);
  if (job.run.decode_tokens == 0 && !settings.is_set("token-by-token")) {
    log::info("{} has no decoded tokens, so its prompt is played as if it had been decoded (--token-by-token)", path);
    options.text_as_decoded = true;
    job.run = play(trace, path);
  }
  for (const uint64_t bytes : trace.dense_bytes) job.trace_dense += static_cast<double>(bytes);
  if (layers.empty()) layers = layer_numbers(trace, job.run.shapes.size(), shape.empty());
  job.engine = !model.empty() || !shape.empty();
  job.pinned = 1 - settings.real("pin-reserve");
  if (const std::string& file = settings.text("moe-cache-profile"); !file.empty()) {
    if (settings.is_set("train"))
      usage_error("--train makes a profile, so it cannot be given with --moe-cache-profile");
    job.profile = profile_of(file, layers, job.run.shapes.front().n_expert);
  } else if (settings.is_set("train")) {
    std::vector<TraceRun> runs;
    for (const std::string& name : settings.texts("train")) runs.push_back(play(read_trace(name), name));
    for (const TraceRun& run : runs) {
      if (!same_entries(run.shapes, job.run.shapes))
        fail("the traces of --train are of another model than {}: its layers and experts differ", path);
    }
    job.profile = rank_picks(runs);
  }
  return job;
}

std::unique_ptr<Policy> policy_of(const std::string& text, const Job& job, const EntryOrder& profile) {
  if (text == kBelady) return make_belady_policy(job.run);
  return make_policy(parse_policy_spec(text), job.run.shapes, profile);
}

/// As much of the profile as may fill its share of the cache.
EntryOrder pinned_part(const Job& job, uint64_t bytes) {
  if (job.pinned >= 1) return job.profile;
  EntryOrder part;
  double left = job.pinned * static_cast<double>(bytes);
  for (const std::pair<int, int>& entry : job.profile) {
    const LayerShape& shape = job.run.shapes[static_cast<size_t>(entry.first)];
    left -= static_cast<double>(job.engine ? shape.slot_bytes : shape.entry_bytes);
    if (left < 0) break;
    part.push_back(entry);
  }
  return part;
}

SimulationResult run_one(const Job& job, const std::string& policy, uint64_t mib) {
  const uint64_t budget = mib << 20;
  const uint64_t bytes = job.engine ? engine_cache_bytes(job.run.shapes, budget) : budget;
  auto slots = job.engine ? make_extent_slots(job.run.shapes, bytes, bytes) : make_byte_slots(job.run.shapes, bytes);
  const EntryOrder profile = pinned_part(job, bytes);
  return simulate(job.run, policy_of(policy, job, profile), std::move(slots), profile);
}

std::vector<std::string> policies_of(const Settings& settings, const Job& job) {
  std::vector<std::string> policies;
  for (const std::string& given : settings.texts("policy")) {
    for (const std::string_view name : split(given, ',')) {
      if (name == "all") {
        policies.assign(kPolicies.begin(), kPolicies.end());
        if (job.profile.empty()) std::erase(policies, "pinned");  // it would be lru
        return policies;
      }
      if (std::ranges::find(kPolicies, name.substr(0, name.find(':'))) == kPolicies.end())
        usage_error("--policy takes {} or all, not '{}'", fmt::join(kPolicies, ", "), name);
      if (name != kBelady) parse_policy_spec(name);  // refuses what is wrong before any work
      if (std::ranges::find(policies, name) == policies.end()) policies.emplace_back(name);
    }
  }
  return policies;
}

/// What the trace itself or the model says about dense weights; 0 if neither does.
double dense_of(const Job& job) {
  if (job.file) return static_cast<double>(dense_token_bytes(*job.file, job.map));
  return job.trace_dense;
}

}  // namespace

int run_simulate(const Settings& settings) {
  refuse_overwriting(settings, "svg", {"trace", "train", "model", "moe-cache-profile"});
  const std::vector<uint64_t> sizes = cache_sizes(settings);
  const Job job = job_of(settings);
  SimulateReport report{settings.text("trace"), job.run, job.engine, "", 0, 0, 0, {}, "", {}};
  if (settings.is_set("train")) report.train = fmt::format("{}", fmt::join(settings.texts("train"), ", "));
  report.profile_entries = job.profile.size();
  report.compulsory = compulsory_misses(job.run);
  report.dense_bytes = dense_of(job);
  const MeasuredRates measured = rates_of(settings, job.file ? &*job.file : nullptr, job.map);
  report.rates = measured.rates;
  report.how = measured.how;
  for (const std::string& policy : policies_of(settings, job)) {
    for (const uint64_t mib : sizes) report.runs.push_back({policy, mib, run_one(job, policy, mib)});
  }
  if (settings.is_set("svg")) write_svg(settings.text("svg"), report.charts());
  if (settings.flag("json")) {
    print_json(report.json());
  } else {
    print_out(report.text());
  }
  return 0;
}

}  // namespace moetier::cli
