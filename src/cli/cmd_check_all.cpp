// check-all: what must hold on this machine with this model, one check after another, and a summary.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "base/stopwatch.h"
#include "cli/command.h"
#include "cli/self_run.h"
#include "cli/support.h"
#include "experts/pick_counts.h"
#include "experts/profile.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace moetier::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

/// A folder for what checks write, removed with it.
class Workshop {
 public:
  Workshop() : path_((fs::temp_directory_path() / "moetier-check-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) fail("cannot make a folder in {}", fs::temp_directory_path().string());
  }
  ~Workshop() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;
  std::string file(std::string_view name) const { return fmt::format("{}/{}", path_, name); }

 private:
  std::string path_;
};

/// What the checks share.
struct Subject {
  std::string model, profile;
  Workshop work;
  EntryMap map;
  int layers = 0;
  int64_t vocab = 0;
  uint64_t cache_mib = 0;  ///< half of the entries, or less
  std::string no_text;     ///< why text cannot go in; empty if it can

  Words with_model(std::string_view command, const Words& more) const {
    Words words = {std::string(command), "-m", model, "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Words streaming(const std::string& mib) const { return {"--experts", "stream", "--cache-mb", mib, "--force-cache"}; }
};

struct Check {
  std::string name;
  std::string skipped;                  ///< why it is not made; empty = it is
  std::function<std::string()> action;  ///< one line about what held; throws what did not
};

Words joined(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string check_file(const Subject& s) {
  run_self({"inspect", s.model, "--check", "--quiet"});
  return "every block's scales are finite numbers";
}

std::string check_logits(const Subject& s) {
  std::string ids;
  for (int64_t i = 0; i < 24; ++i) ids += fmt::format("{}{}", i == 0 ? "" : ",", (i * 7919 + 13) % s.vocab);
  const auto logits = [&](const Words& flags) {
    const std::string out = s.work.file("logits.f32");
    run_self(s.with_model("logits", joined({"--tokens", ids, "-o", out}, flags)));
    return read_file(out);
  };
  const std::string mib = std::to_string(s.cache_mib);
  const std::vector<std::pair<const char*, Words>> ways = {
      {"one thread", {"--experts", "mmap", "--threads", "1"}},
      {"ubatches of 5", {"--experts", "mmap", "--ubatch", "5"}},
      {"streaming without a cache", {"--experts", "stream", "--cache-mb", "0"}},
      {"streaming with a cache", s.streaming(mib)},
      {"streaming without overlap", joined(s.streaming(mib), {"--no-overlap"})},
      {"streaming with lru", joined(s.streaming(mib), {"--cache-policy", "lru"})}};
  const std::string reference = logits({"--experts", "mmap"});
  for (const auto& [name, flags] : ways) {
    if (logits(flags) != reference) fail("the logits differ with {}", name);
  }
  return fmt::format("{} ways give the same bits", ways.size() + 1);
}

std::string check_simulator(const Subject& s) {
  const std::string trace = s.work.file("trace.csv"), stats = s.work.file("stats.json");
  const std::string mib = std::to_string(s.cache_mib);
  for (const char* const policy : {"default", "lru"}) {
    run_self(s.with_model(
        "run", joined(s.streaming(mib), {"-p", "Once upon a time", "-n", "24", "--temp", "0", "--ignore-eos",
                                         "--cache-policy", policy, "--route-trace", trace, "--stats-json", stats})));
    const Json engine = parse_json(read_file(stats), stats);
    const Json model = parse_json(
        run_self({"simulate", s.model, "--trace", trace, "--cache-mb", mib, "--policy", policy, "--json", "--quiet"}),
        "what simulate printed");
    const auto compare = [&](const char* what, const Json& its, const Json& simulated) {
      if (its != simulated)
        fail("{}: the engine counted {} {}, the simulator {}", policy, its.dump(), what, simulated.dump());
    };
    compare("hits", engine.at("decode").at("cache_hits"), model.at("hits"));
    compare("misses", engine.at("decode").at("cache_misses"), model.at("misses"));
    compare("evictions", engine.at("cache_evictions"), model.at("evictions"));
  }
  return "hits, misses and evictions are the simulator's";
}

std::string check_profile(const Subject& s) {
  const std::string path = s.profile.empty() ? s.work.file("made.strp") : s.profile;
  if (s.profile.empty()) {
    const auto [layers, experts] = profile_shape(s.map, s.layers);
    std::vector<std::pair<int, int>> first;
    for (const LayerEntries& layer : s.map.layers) first.emplace_back(layer.layer, 0);
    write_profile(path, layers, experts, first, static_cast<uint32_t>(first.size()));
  }
  run_self({"profile", "validate", path, s.model, "--quiet"});
  const Json run =
      parse_json(run_self(s.with_model("bench", joined(s.streaming(std::to_string(s.cache_mib)),
                                                       {"-p", "0", "-n", "1", "-r", "1", "--no-read-bandwidth",
                                                        "--moe-cache-profile", path, "--json"}))),
                 "what bench printed");
  const Json& filled = run.at("stats").at("cache_prefilled");
  if (filled == 0) fail("the cache was not filled from {}", path);
  return fmt::format("{} entries came in from it", filled.dump());
}

/// A check that is a command of its own.
Check command_check(std::string_view command, Words arguments) {
  Check check{std::string(command), "", {}};
  if (find_command(command) == nullptr) check.skipped = "this build has no such command";
  check.action = [words = joined({std::string(command)}, arguments)] {
    run_self(words);
    return std::string("passed");
  };
  return check;
}

std::vector<Check> checks_of(const Subject& s, bool cpu_only) {
  std::vector<Check> checks = {{"file", "", [&s] { return check_file(s); }},
                               {"logits", "", [&s] { return check_logits(s); }}};
  const std::string dense = s.map.layers.empty() ? "the model has no experts" : "";
  checks.push_back({"simulator", dense.empty() ? s.no_text : dense, [&s] { return check_simulator(s); }});
  checks.push_back({"profile", dense, [&s] { return check_profile(s); }});
  const std::string profile = s.profile.empty() ? s.work.file("made.strp") : s.profile;
  for (const std::string_view name : {"check-audit", "check-api"}) {
    checks.push_back(command_check(name, {s.model, profile, "--cache-mib", std::to_string(s.cache_mib)}));
    if (checks.back().skipped.empty()) checks.back().skipped = dense.empty() ? s.no_text : dense;
  }
  checks.push_back({"device", cpu_only ? "--cpu-only" : "this build computes on the CPU only", {}});
  return checks;
}

}  // namespace

int run_check_all(const Settings& settings) {
  Subject s{need(settings, "model"), settings.text("profile"), {}, {}, 0, 0, 0, ""};
  {
    const GgufFile file = open_model_file(settings);
    s.layers = read_layers(file);
    const int top_k = read_top_k(file);
    if (top_k > 0) s.map = EntryMap::from_gguf(file, top_k, s.layers);
    s.vocab = architecture_of(file).read(file).vocab;
    try {
      static_cast<void>(Tokenizer::load(file));
    } catch (const Error& error) {
      s.no_text = error.what();
    }
    const auto half = std::max<uint64_t>(s.map.total_bytes() / 2 >> 20, 1);
    s.cache_mib = settings.is_set("cache-mb") ? static_cast<uint64_t>(settings.integer("cache-mb"))
                                              : std::min<uint64_t>(half, 4096);
  }
  Json results = Json::array();
  int passed = 0, failed = 0, skipped = 0;
  for (const Check& check : checks_of(s, settings.flag("cpu-only"))) {
    if (interrupted()) fail("interrupted: the work is not complete");
    std::string state = "skipped", detail = check.skipped;
    Stopwatch watch;
    if (check.skipped.empty()) {
      try {
        detail = check.action();
        state = "passed";
      } catch (const Error& error) {
        detail = error.what();
        state = "FAILED";
      }
    }
    const double seconds = watch.lap();
    ++(state == "passed" ? passed : state == "skipped" ? skipped : failed);
    results.push_back({{"check", check.name}, {"state", state}, {"detail", detail}, {"seconds", seconds}});
    if (!settings.flag("json"))
      print_out(fmt::format("{:<12} {:<8} {:>6.1f} s  {}\n", check.name, state, seconds, detail));
  }
  if (settings.flag("json")) {
    print_json({{"passed", passed}, {"failed", failed}, {"skipped", skipped}, {"checks", results}});
  } else {
    print_out(fmt::format("{} passed, {} failed, {} skipped\n", passed, failed, skipped));
  }
  return failed > 0 ? 1 : 0;
}

}  // namespace moetier::cli
