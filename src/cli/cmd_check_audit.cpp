// check-audit: whether an audit log is whole and its numbers agree.
#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/support.h"
#include "server/audit.h"
#include "server/audit_check.h"
#include "server/model_id.h"
#include "server/scheduler.h"

namespace moetier::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kPrompts[] = {"Once upon a time there was", "The three most important things are",
                                         "Once upon a time there was a king who"};
constexpr int64_t kTokens = 48;
constexpr int64_t kContext = 512;

/// A folder that goes with everything in it.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "moetier-check-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) fail("no folder can be made in {}", fs::temp_directory_path().string());
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string file(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

/// Serves some requests and writes the log; gives their texts.
std::vector<std::string> make_log(const Settings& settings, const std::string& log, bool overlap) {
  EngineOptions options;
  options.cpu.threads = thread_count(settings);
  options.overrides = settings.texts("override-kv");
  options.residency.mode = ExpertMode::stream;
  options.residency.cache_bytes = static_cast<uint64_t>(settings.integer("cache-mib")) << 20;
  options.residency.profile = settings.text("profile");
  options.residency.overlap = overlap;
  const auto engine = Engine::load(settings.text("model"), options);
  if (engine->store() == nullptr)
    fail("{} has no experts, so there is no cache whose log could be checked", settings.text("model"));
  ContextOptions context_options;
  context_options.context = kContext;
  Context context(*engine, context_options);
  AuditParams params;
  params.cache_mib = settings.integer("cache-mib");
  params.threads = options.cpu.threads;
  params.profile = options.residency.profile;
  AuditLog audit(log, context, params);
  {
    SequenceState warm_up = context.new_sequence();
    const BatchRow row{0, &warm_up, true};
    context.decode({&row, 1});
  }
  audit.ready(context);
  std::vector<std::string> texts;
  {
    SchedulerOptions serving;
    serving.audit = &audit;
    serving.log_requests = false;
    Scheduler scheduler(context, serving);
    for (const std::string_view prompt : kPrompts) {
      Request request;
      request.prompt = engine->tokenizer().encode(prompt);
      request.max_tokens = kTokens;
      request.sampler.temperature = 0;
      texts.push_back(scheduler.submit(std::move(request))->wait().text);
    }
  }
  audit.exit(context);
  return texts;
}

/// What a log that was just made holds besides what any log must.
void check_own(const std::string& log, const std::string& profile, AuditCheck& check) {
  const auto add = [&](const std::string& problem) { check.problems.push_back(problem); };
  if (check.runs != 1 || check.exits != 1 || check.requests != std::size(kPrompts))
    add(fmt::format("there are {} load, {} exit and {} request records, and there should be 1, 1 and {}", check.runs,
                    check.exits, check.requests, std::size(kPrompts)));
  if (check.sums != 1) add("the requests cannot be added up, since ready, exit or they are missing");
  const std::string text = read_file(log);
  const Json load = parse_json(text.substr(0, text.find('\n')), log);
  const Json& told = load["profile"];
  if (!told.is_object() || told.value("sha256", "") != sha256_of_file(profile))
    add("the profile's SHA-256 is not that of the file");
  if (load["cache"]["prefilled"] == 0) add("the profile filled no slot of the cache: does it belong to this model?");
  const std::string last = text.substr(text.rfind('\n', text.size() - 2) + 1);
  const Json exit = parse_json(last, log);
  if (exit["hits"].get<uint64_t>() + exit["misses"].get<uint64_t>() == 0) add("the cache's counters did not move");
}

void print_problems(const std::string& name, const AuditCheck& check) {
  for (const std::string& problem : check.problems) print_out(fmt::format("{}: {}\n", name, problem));
}

int check_file(const std::string& path) {
  const AuditCheck check = check_audit_log(read_file(path));
  print_problems(path, check);
  if (!check.good()) fail("{} is not a sound audit log: {} problems", path, check.problems.size());
  print_out(fmt::format("{}: {} records of {} runs ({} ended), {} requests; {} runs add up from ready to exit\n", path,
                        check.records, check.runs, check.exits, check.requests, check.sums));
  return 0;
}

}  // namespace

int run_check_audit(const Settings& settings) {
  if (settings.is_set("log")) {
    if (settings.is_set("model")) usage_error("--log checks a log that is there: leave the model out");
    return check_file(settings.text("log"));
  }
  if (!settings.is_set("model") || !settings.is_set("profile"))
    usage_error("check-audit needs a model and a profile to make a log, or --log FILE to check one");
  const Scratch scratch;
  size_t problems = 0;
  std::vector<std::string> texts[2];
  for (const bool overlap : {true, false}) {
    const std::string name = overlap ? "overlap" : "no overlap", log = scratch.file(overlap ? "on.jsonl" : "off.jsonl");
    texts[overlap ? 0 : 1] = make_log(settings, log, overlap);
    AuditCheck check = check_audit_log(read_file(log));
    if (check.good()) check_own(log, settings.text("profile"), check);
    print_problems(name, check);
    problems += check.problems.size();
    if (check.good()) print_out(fmt::format("{}: {} records, and they add up\n", name, check.records));
  }
  if (texts[0] != texts[1]) {
    print_out("the texts differ with and without overlap\n");
    ++problems;
  } else {
    print_out(fmt::format("{} texts are the same with and without overlap\n", texts[0].size()));
  }
  if (problems > 0) fail("{} problems with the audit log", problems);
  return 0;
}

}  // namespace moetier::cli
