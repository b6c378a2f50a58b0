// bench grid: modes x cache sizes x policies x threads, measured in turns.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/bench_grid.h"
#include "cli/command.h"
#include "cli/self_run.h"
#include "cli/support.h"
#include "experts/pick_counts.h"
#include "experts/profile.h"
#include "experts/residency.h"
#include "model/model.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

/// All values of a repeated parameter, commas taken apart, each once; `allowed` (if any) are the ones there are.
std::vector<std::string> list_of(const Settings& settings, std::string_view name,
                                 const std::vector<std::string_view>& allowed = {}) {
  std::vector<std::string> out;
  for (const std::string& given : settings.texts(name)) {
    for (size_t begin = 0; begin <= given.size();) {
      const size_t end = std::min(given.find(',', begin), given.size());
      std::string one = given.substr(begin, end - begin);
      begin = end + 1;
      const bool number = !one.empty() && one.size() < 9 && one.find_first_not_of("0123456789") == std::string::npos;
      if (allowed.empty() ? !number : std::ranges::find(allowed, one) == allowed.end()) {
        usage_error(
            "--{} does not take '{}'{}", name, one,
            allowed.empty() ? "; it takes whole numbers" : fmt::format("; it takes {}", fmt::join(allowed, ", ")));
      }
      if (std::ranges::find(out, one) == out.end()) out.push_back(std::move(one));
    }
  }
  return out;
}

std::vector<std::string> arguments_of(const Settings& settings, const GridCell& cell) {
  const bool text = settings.is_set("file");
  std::vector<std::string> words = {text ? "run" : "bench", "-m", settings.text("model"), "--json", "-n",
                                    settings.text("n")};
  const auto add = [&](std::initializer_list<std::string> more) { words.insert(words.end(), more); };
  if (text) {
    add({"-f", settings.text("file"), "--temp", "0", "--ignore-eos"});
  } else {
    add({"-p", settings.text("prompt-tokens"), "-r", "1", "--no-read-bandwidth"});
    if (settings.is_set("replay")) add({"--replay", settings.text("replay")});
  }
  add({"--experts", cell.experts});
  if (!cell.cache.empty()) {
    add({"--cache-mb", cell.cache, "--cache-policy", cell.policy});
    if (const int64_t mib = std::atoll(cell.cache.c_str()); mib > 0 && mib < 1500) add({"--force-cache"});
    if (settings.is_set("profile")) add({"--moe-cache-profile", settings.text("profile")});
  }
  if (cell.threads != "auto") add({"--threads", cell.threads});
  if (settings.is_set("ctx")) add({"--ctx", settings.text("ctx")});
  for (const std::string& spec : settings.texts("override-kv")) add({"--override-kv", spec});
  if (log::level() != log::Level::verbose) add({"--quiet"});
  return words;
}

/// The policies to measure: those asked for, and with --hybrid those that a miss changes nothing in.
std::vector<std::string> policies_of(const Settings& settings) {
  std::vector<std::string_view> known;
  for (const CachePolicy policy : kCachePolicies) known.push_back(to_string(policy));
  std::vector<std::string> policies = list_of(settings, "policies", known);
  const bool only = settings.flag("only-hybrid");
  if (only && (settings.is_set("policies") || settings.flag("hybrid")))
    usage_error("--only-hybrid says which policies to measure, so it cannot be given with --policies or --hybrid");
  if (only) policies.clear();
  if (only || settings.flag("hybrid")) {
    for (const CachePolicy policy : {CachePolicy::pinned, CachePolicy::adaptive}) {
      if (policy == CachePolicy::pinned && !settings.is_set("profile")) continue;  // it would be lru
      const std::string name(to_string(policy));
      if (std::ranges::find(policies, name) == policies.end()) policies.push_back(name);
    }
  }
  return policies;
}

/// Before anything is measured: outputs that would overwrite a file or each other, and a profile that the runs, which
/// are quiet, would only warn of.
void check_files(const Settings& settings) {
  constexpr std::array<std::string_view, 4> kOutputs = {"csv", "md", "svg", "out"};
  for (size_t i = 0; i < kOutputs.size(); ++i) {
    refuse_overwriting(settings, kOutputs[i], {"model", "file", "profile", "replay"});
    for (size_t other = 0; other < i; ++other) {
      if (settings.is_set(kOutputs[i]) && settings.is_set(kOutputs[other]) &&
          settings.text(kOutputs[i]) == settings.text(kOutputs[other]))
        usage_error("--{} and --{} name the same file; choose another for one of them", kOutputs[other], kOutputs[i]);
    }
  }
  if (!settings.is_set("profile")) return;
  const GgufFile file = open_model_file(settings);
  const int run = read_layers(file);
  const auto [layers, experts] = profile_shape(EntryMap::from_gguf(file, read_top_k(file), run), run);
  const Profile profile = read_profile(settings.text("profile"), layers, experts);
  if (!profile.problem.empty()) fail("{}", profile.problem);
}

void write_text(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace

int run_bench_grid(const Settings& settings) {
  need(settings, "model");
  check_files(settings);
  if (settings.is_set("file") && settings.is_set("replay"))
    usage_error("--replay stands for a text's routing, so it takes no TEXT");
  std::vector<std::string> modes = list_of(settings, "modes", {"resident", "mmap", "advise", "noop", "stream", "auto"});
  const std::vector<std::string> caches = list_of(settings, "cache-mib");
  if (caches.empty()) {
    if (std::ranges::find(modes, "stream") != modes.end())
      usage_error("--cache-mib is missing: give one or more sizes in MiB for the mode stream");
  }
  std::vector<std::string> threads = list_of(settings, "threads");
  if (std::ranges::find_if(threads, [](const std::string& n) { return std::stoi(n) == 0; }) != threads.end())
    usage_error("--threads does not take 0; leave it out for as many as there are cores");
  if (threads.empty()) threads = {"auto"};
  std::vector<GridCell> cells = grid_cells(modes, caches, policies_of(settings), threads);
  const auto runs = static_cast<size_t>(settings.integer("runs"));
  Json last;
  {
    Progress progress("grid");
    for (size_t run = 0; run < runs; ++run) {
      for (size_t c = 0; c < cells.size(); ++c) {
        if (interrupted()) fail("interrupted: the work is not complete");
        last = parse_json(run_self(arguments_of(settings, cells[c])), "what a run printed");
        add_run(cells[c], last);
        progress.update(run * cells.size() + c + 1, runs * cells.size());
      }
    }
  }
  const Json json = {{"kind", "bench grid"},
                     {"machine", last.value("machine", Json())},
                     {"model", last.value("model", Json())},
                     {"config", settings.json()},
                     {"runs", runs},
                     {"cells", grid_json(cells)}};
  if (settings.is_set("csv")) write_text(settings.text("csv"), grid_csv(cells));
  if (settings.is_set("md")) write_text(settings.text("md"), grid_markdown(cells));
  if (settings.is_set("out")) write_text(settings.text("out"), json.dump(2) + "\n");
  if (settings.is_set("svg")) write_svg(settings.text("svg"), grid_charts(cells));
  if (settings.flag("json")) {
    print_json(json);
  } else {
    print_out(grid_markdown(cells));
  }
  return 0;
}

}  // namespace moetier::cli
