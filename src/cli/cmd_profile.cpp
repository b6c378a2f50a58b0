// profile: which entries of a model are the hottest; and show, merge, compare, validate for the files.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/run_audit.h"
#include "cli/support.h"
#include "cli/windows.h"
#include "experts/pick_counts.h"
#include "experts/profile.h"
#include "experts/profile_file.h"
#include "model/model.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Runs a text and counts what the router picks.
PickCounts count_text(const Settings& settings) {
  const std::string text = read_input(settings.text("file"));
  const auto engine = load_engine(settings, kUsualWindow);
  ExpertStore* store = engine->store();
  if (store == nullptr) fail("{} has no experts, so there is nothing to rank", settings.text("model"));
  const auto [layers, experts] = profile_shape(store->map(), engine->model().hparams().layers);
  PickCounts counts(layers, experts);
  const auto tokens = engine->tokenizer().encode(text, {.add_special = true, .parse_special = false});
  if (tokens.empty()) fail("{} holds no text to trace", settings.text("file"));
  Context context(*engine, context_options(settings, *engine, usual_window(*engine)));
  RunAudit audit(settings, context);
  apply_routing(settings, context);
  context.cancel_on(&interrupted());
  context.observe_picks(
      [](void* user, const RoutedPicks& picks) { static_cast<PickCounts*>(user)->add(picks.layer, picks.ids); },
      &counts);
  Stopwatch watch;
  run_windows(context, tokens, "profile");
  audit.measure_prompt(tokens.size(), watch.lap());
  return counts;
}

/// The shape that a profile of these traces is for: the model's if there is one, else what the traces say.
std::pair<int, int> shape_for(const Settings& settings, const std::vector<RoutingTrace>& traces) {
  if (settings.is_set("model")) {
    const GgufFile file = open_model_file(settings);
    const int layers = read_layers(file);
    return profile_shape(EntryMap::from_gguf(file, read_top_k(file), layers), layers);
  }
  int layers = 0, experts = 0;
  for (size_t i = 0; i < traces.size(); ++i) {
    if (!traces[i].told) {
      usage_error("{} does not tell how many layers and experts its model has; give the model",
                  settings.texts("trace")[i]);
    }
    layers = std::max(layers, traces[i].n_layer);
    experts = std::max(experts, traces[i].n_expert);
  }
  return {layers, experts};
}

PickCounts count_traces(const Settings& settings) {
  std::vector<RoutingTrace> traces;
  for (const std::string& path : settings.texts("trace")) traces.push_back(read_trace(path));
  const auto [layers, experts] = shape_for(settings, traces);
  PickCounts counts(layers, experts);
  for (size_t i = 0; i < traces.size(); ++i) counts.add(traces[i], settings.texts("trace")[i]);
  return counts;
}

std::string out_path(const Settings& settings) {
  if (settings.is_set("out")) return settings.text("out");
  if (!settings.is_set("model")) usage_error("--out is needed; see --help");
  return std::filesystem::path(settings.text("model")).stem().string() + ".strp";
}

Json shape_json(const std::string& path, const ProfileFile& p) {
  return {
      {"profile", path},           {"n_layers", p.n_layer},
      {"n_expert", p.n_expert},    {"slots", p.slots},
      {"ranked", p.ranked.size()}, {"entries", static_cast<uint64_t>(p.n_layer) * static_cast<uint64_t>(p.n_expert)}};
}

/// How many of the `n` hottest each layer has.
std::vector<size_t> by_layer(const ProfileFile& p, size_t n) {
  std::vector<size_t> counts(static_cast<size_t>(p.n_layer), 0);
  for (size_t i = 0; i < std::min(n, p.ranked.size()); ++i) ++counts[static_cast<size_t>(p.ranked[i].first)];
  return counts;
}

constexpr int kTenths[] = {1, 2, 3, 5, 10};

size_t tenths_of(size_t n, int tenths) {
  return (n * static_cast<size_t>(tenths) + 9) / 10;
}

}  // namespace

int run_profile(const Settings& settings) {
  const bool from_traces = settings.is_set("trace");
  if (from_traces == settings.is_set("file"))
    usage_error("a profile is made from a text (MODEL TEXT) or from traces (--trace), one of them");
  const std::string out = out_path(settings);
  refuse_overwriting(settings, "out", {"model", "file", "trace", "moe-cache-profile"});
  const PickCounts counts = from_traces ? count_traces(settings) : count_text(settings);
  const std::vector<std::pair<int, int>> ranked = counts.ranked();
  const int64_t slots = settings.integer("slots");
  write_profile(out, counts.n_layer(), counts.n_expert(), ranked,
                static_cast<uint32_t>(slots > 0 ? slots : static_cast<int64_t>(ranked.size())));
  log::info("{}: {} entries of {} layers x {} experts ranked by {} picks", out, ranked.size(), counts.n_layer(),
            counts.n_expert(), counts.total());
  return 0;
}

int run_profile_show(const Settings& settings) {
  const std::string& path = need(settings, "profile");
  const ProfileFile p = read_profile_file(path);
  const auto top = std::min(static_cast<size_t>(settings.integer("top")), p.ranked.size());
  const size_t half = tenths_of(p.ranked.size(), 5);
  const std::vector<size_t> all = by_layer(p, p.ranked.size()), hot = by_layer(p, half);
  if (settings.flag("json")) {
    Json json = shape_json(path, p);
    json["ranked_by_layer"] = all;
    json["hotter_half_by_layer"] = hot;
    json["hottest"] = Json::array();
    for (size_t i = 0; i < top; ++i) json["hottest"].push_back({p.ranked[i].first, p.ranked[i].second});
    json["faults"] = p.faults;
    print_json(json);
    return 0;
  }
  std::string out =
      fmt::format("{}: {} of {} entries ranked ({} layers x {} experts), made for {} slots\n", path, p.ranked.size(),
                  all.size() * static_cast<size_t>(p.n_expert), p.n_layer, p.n_expert, p.slots);
  out += fmt::format("\n{:>5}  {:>8}  {:>16}\n", "layer", "ranked", "in hotter half");
  for (size_t l = 0; l < all.size(); ++l) {
    if (all[l] > 0) out += fmt::format("{:>5}  {:>8}  {:>16}\n", l, all[l], hot[l]);
  }
  out += fmt::format("\nthe {} hottest, as layer:expert\n", top);
  for (size_t i = 0; i < top; ++i)
    out += fmt::format("{}{}:{}", i == 0 ? "" : i % 12 == 0 ? "\n" : " ", p.ranked[i].first, p.ranked[i].second);
  print_out(out + "\n");
  for (const std::string& fault : p.faults) log::warn("{}", fault);
  return 0;
}

int run_profile_merge(const Settings& settings) {
  const std::string& out = need(settings, "out");
  refuse_overwriting(settings, "out", {"profile"});
  std::vector<ProfileFile> profiles;
  for (const std::string& path : settings.texts("profile")) profiles.push_back(read_profile_file(path));
  const std::vector<std::pair<int, int>> merged = merge_profiles(profiles);
  uint32_t slots = 0;
  for (const ProfileFile& p : profiles) slots = std::max(slots, p.slots);
  write_profile(out, profiles.front().n_layer, profiles.front().n_expert, merged, slots);
  log::info("{}: {} entries ranked from {} profiles", out, merged.size(), profiles.size());
  return 0;
}

int run_profile_compare(const Settings& settings) {
  const std::string &first = need(settings, "profile"), &second = need(settings, "other");
  const ProfileFile a = read_profile_file(first), b = read_profile_file(second);
  if (a.n_layer != b.n_layer || a.n_expert != b.n_expert) {
    fail("{} is for {} layers of {} experts and {} for {} of {}: they are of different models", first, a.n_layer,
         a.n_expert, second, b.n_layer, b.n_expert);
  }
  const size_t shorter = std::min(a.ranked.size(), b.ranked.size());
  const double cells = static_cast<double>(a.n_layer) * a.n_expert, correlation = rank_correlation(a, b);
  Json shares = Json::array();
  std::string table = fmt::format("{:>10}  {:>8}  {:>10}\n", "hottest", "shared", "by chance");
  for (const int tenths : kTenths) {
    const size_t n = tenths_of(shorter, tenths);
    const double share = 100 * shared_share(a, b, n), chance = 100 * static_cast<double>(n) / cells;
    shares.push_back({{"hottest", n}, {"shared_pct", share}, {"chance_pct", chance}});
    table += fmt::format("{:>10}  {:>6.1f} %  {:>8.1f} %\n", n, share, chance);
  }
  if (settings.flag("json")) {
    print_json({{"a", shape_json(first, a)},
                {"b", shape_json(second, b)},
                {"rank_correlation", correlation},
                {"shared", shares}});
    return 0;
  }
  print_out(fmt::format("{}: {} ranked; {}: {} ranked; rank correlation {:.3f}\n\n", first, a.ranked.size(), second,
                        b.ranked.size(), correlation) +
            table);
  return 0;
}

int run_profile_validate(const Settings& settings) {
  const std::string& path = need(settings, "profile");
  const ProfileFile p = read_profile_file(path);
  std::vector<std::string> faults = p.faults;
  if (settings.is_set("model")) {
    const GgufFile file = open_model_file(settings);
    const int run = read_layers(file);
    const EntryMap map = EntryMap::from_gguf(file, read_top_k(file), run);
    const auto [layers, experts] = profile_shape(map, run);
    const Profile of_model = read_profile(path, layers, experts);
    if (!of_model.problem.empty()) fail("{}", of_model.problem);
    const auto idle =
        std::ranges::count_if(p.ranked, [&](std::pair<int, int> e) { return map.find(e.first) == nullptr; });
    if (idle > 0) faults.push_back(fmt::format("{} ranks {} entries of layers without experts", path, idle));
  }
  if (!faults.empty()) {
    for (const std::string& fault : faults) print_out(fault + "\n");
    fail("{} breaks {} of the format's rules, though a cache can be filled from it", path, faults.size());
  }
  print_out(fmt::format("{}: valid, {} entries of {} layers x {} experts ranked\n", path, p.ranked.size(), p.n_layer,
                        p.n_expert));
  return 0;
}

}  // namespace moetier::cli
