#include "cli/support.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "base/cpu_topology.h"
#include "base/error.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "base/units.h"
#include "cli/residency_params.h"
#include "engine/run_meters.h"

namespace moetier::cli {
namespace {

std::atomic<bool> g_interrupted{false};

void on_interrupt(int) {
  g_interrupted = true;
  std::signal(SIGINT, SIG_DFL);  // a second Ctrl-C ends the process
}

void install_handler() {
  struct sigaction action {};
  if (::sigaction(SIGINT, nullptr, &action) == 0 && action.sa_handler == SIG_IGN)
    return;  // e.g. in a script's background
  action = {};
  action.sa_handler = on_interrupt;
  ::sigaction(SIGINT, &action, nullptr);  // no SA_RESTART: a blocked read of a chat line returns
}

constexpr std::string_view kSpaces = " \t\r\n";

TokenId parse_id(std::string_view word) {
  TokenId id = 0;
  const auto [stop, status] = std::from_chars(word.data(), word.data() + word.size(), id);
  if (status != std::errc() || stop != word.data() + word.size()) {
    usage_error("'{}' is not a token id; ids are whole numbers separated by commas", word.substr(0, 40));
  }
  return id;
}

}  // namespace

void print_out(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    fail("cannot write to standard output; is the disk full or the pipe closed?");
  }
}

void print_json(const nlohmann::ordered_json& json) {
  print_out(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

std::string read_input(const std::string& path) {
  if (path != "-") return read_file(path, kMaxInputBytes);
  std::string text;
  char chunk[1 << 16];
  size_t n = 0;
  while ((n = std::fread(chunk, 1, sizeof chunk, stdin)) > 0) {
    text.append(chunk, n);
    if (text.size() > kMaxInputBytes) fail("standard input holds more than {}", format_bytes(kMaxInputBytes));
  }
  if (std::ferror(stdin) != 0) fail("cannot read standard input");
  return text;
}

void refuse_overwriting(const Settings& settings, std::string_view out,
                        std::initializer_list<std::string_view> inputs) {
  if (!settings.is_set(out)) return;
  for (const std::string_view input : inputs) {
    if (!settings.is_set(input)) continue;
    for (const std::string& path : settings.texts(input)) {
      std::error_code absent;
      if (!std::filesystem::equivalent(path, settings.text(out), absent)) continue;
      usage_error("--{} and --{} name the same file; choose another for the output", out, input);
    }
  }
}

nlohmann::ordered_json parse_json(const std::string& text, const std::string& name) {
  using Json = nlohmann::ordered_json;
  const auto shallow = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxJsonDepth) fail("{} nests more than {} levels deep", name, kMaxJsonDepth);
    return true;
  };
  try {
    return Json::parse(text, shallow);
  } catch (const Json::parse_error& error) {
    fail("{} is not valid JSON: something is wrong at byte {}", name, error.byte);
  }
}

const std::string& need(const Settings& settings, std::string_view name) {
  if (!settings.is_set(name)) usage_error("--{} is needed; see --help", name);
  return settings.text(name);
}

RoutingTrace read_prompted_trace(const std::string& path, const Settings& settings) {
  const int64_t prompt = settings.integer("prompt-tokens");
  RoutingTrace trace = read_trace(path, prompt);
  if (prompt > static_cast<int64_t>(trace.tokens))
    usage_error("{} has {} tokens, so {} of them cannot be the prompt", path, trace.tokens, prompt);
  return trace;
}

std::vector<TokenId> parse_ids(std::string_view text) {
  std::vector<TokenId> ids;
  if (text.find_first_not_of(kSpaces) == std::string_view::npos) return ids;
  if (text[text.find_first_not_of(kSpaces)] == '[') {
    for (const auto& id : parse_json(std::string(text), "the array of ids")) ids.push_back(parse_id(id.dump()));
    return ids;
  }
  // A comma must stand between two ids; white space alone separates as well.
  size_t at = 0;
  bool comma = true;
  while ((at = text.find_first_not_of(kSpaces, at)) != std::string_view::npos) {
    if (text[at] == ',') {
      if (comma) usage_error("an id is missing before a comma");
      comma = true;
      ++at;
      continue;
    }
    const size_t end = std::min(text.find_first_of(" \t\r\n,", at), text.size());
    ids.push_back(parse_id(text.substr(at, end - at)));
    comma = false;
    at = end;
  }
  if (comma) usage_error("an id is missing after the last comma");
  return ids;
}

int thread_count(const Settings& settings) {
  return settings.text("threads") == "auto" ? default_threads() : static_cast<int>(settings.integer("threads"));
}

GgufFile open_model_file(const Settings& settings) {
  GgufFile file = GgufFile::open(need(settings, "model"));
  for (const std::string& spec : settings.texts("override-kv")) file.override_metadata(spec);
  return file;
}

namespace {

ContextOptions plain_context_options(const Settings& settings, int64_t wanted) {
  ContextOptions options;
  options.context = settings.integer("ctx");
  if (options.context == 0) options.context = wanted;
  options.ubatch = settings.integer("ubatch");
  options.kv_type = find_type(settings.text("kv-type"))->type;
  if (settings.has("parallel")) options.sequences = static_cast<int>(settings.integer("parallel"));
  return options;
}

/// The metadata to read otherwise: what --override-kv says, and how many experts a token uses.
std::vector<std::string> overrides(const Settings& settings, int64_t top_k) {
  std::vector<std::string> specs = settings.texts("override-kv");
  const bool asked = top_k == 0;
  const int64_t used = asked ? settings.integer("n-expert-used") : top_k;
  if (used == 0) return specs;
  const std::string_view flag = asked ? "--n-expert-used" : "--replay";
  const GgufFile file = open_model_file(settings);
  const std::string architecture = file.need_string("general.architecture");
  const int64_t experts = file.get_int(architecture + ".expert_count").value_or(0);
  if (experts == 0) usage_error("{} is for models with experts, and {} has none", flag, file.path());
  if (used > experts) {
    usage_error("{}: {} experts for a token are more than the {} that {} has in a layer", flag, used, experts,
                file.path());
  }
  specs.push_back(fmt::format("{}.expert_used_count=int:{}", architecture, used));
  return specs;
}

}  // namespace

std::unique_ptr<Engine> load_engine(const Settings& settings, int64_t wanted, int64_t top_k) {
  EngineOptions options;
  options.cpu.threads = thread_count(settings);
  options.cpu.isa = parse_isa(settings.text("isa"));
  options.cpu.expert_chunk = settings.integer("mmid-chunk");
  options.profile_ops = settings.flag("profile-ops") || settings.flag("profile-token");
  options.overrides = overrides(settings, top_k);
  options.residency = residency_options(settings);
  options.planned = plain_context_options(settings, wanted);
  // A state on its way to the disk takes what a slot does (server/prompt_store.h).
  if (settings.has("prompt-cache-dir") && settings.is_set("prompt-cache-dir")) ++options.planned.sequences;
  if (options.residency.mode == ExpertMode::stream || options.residency.mode == ExpertMode::automatic) {
    options.planned.group_rows = settings.integer("prompt-rows");
  }
  auto engine = Engine::load(need(settings, "model"), options);
  if (ExpertStore* store = engine->store(); store != nullptr) {
    const StoreStatus status = store->status();
    if (!has_cache(status)) note_unused_drop(settings, to_string(status.mode));
  }
  return engine;
}

ContextOptions context_options(const Settings& settings, Engine& engine, int64_t wanted) {
  ContextOptions options = plain_context_options(settings, wanted);
  ExpertStore* store = engine.store();
  if (store != nullptr && store->status().mode == ExpertMode::stream) {
    options.group_rows = settings.integer("prompt-rows");
  }
  return options;
}

void apply_routing(const Settings& settings, Context& context) {
  if (context.moe() != nullptr) context.moe()->drop_cold(static_cast<float>(settings.real("drop-cold-experts")));
}

const std::atomic<bool>& interrupted() {
  static const bool installed = [] {
    install_handler();
    return true;
  }();
  static_cast<void>(installed);
  return g_interrupted;
}

void forget_interrupt() {
  g_interrupted = false;
  install_handler();
}

}  // namespace moetier::cli
