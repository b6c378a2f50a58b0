// serve: the model over HTTP.
#include <fmt/format.h>

#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/command_line.h"
#include "cli/residency_params.h"
#include "cli/run_audit.h"
#include "cli/sampling.h"
#include "cli/serve_fit.h"
#include "cli/stop_signals.h"
#include "cli/support.h"
#include "engine/dense_memory.h"
#include "experts/entry_map.h"
#include "io/memory.h"
#include "server/api_server.h"
#include "server/http/listen.h"
#include "server/http/tls.h"
#include "server/notify.h"
#include "server/session_file.h"

namespace moetier::cli {
namespace {

using server::ApiServer;
using server::HttpOptions;
using server::ServedModel;
using server::ServiceOptions;

/// --margin-mib is what stays free, unless the cache's own flag says it.
void apply_margin(Settings& settings) {
  if (!settings.is_set("cache-floor-mb")) settings.resolve("cache-floor-mb", settings.text("margin-mib"));
}

ServeFit fit(const Settings& settings) {
  const GgufFile file = open_model_file(settings);
  const Architecture& architecture = architecture_of(file);
  const int top_k = read_top_k(file);
  const EntryMap map = top_k > 0 ? EntryMap::from_gguf(file, top_k, read_layers(file)) : EntryMap{};
  const MemoryState memory = memory_state();
  FitInput in;
  in.hparams = architecture.read(file);
  in.kv_type = find_type(settings.text("kv-type"))->type;
  in.parallel = static_cast<int>(settings.integer("parallel"));
  in.saves_prompts = settings.is_set("prompt-cache-dir");
  in.group_rows = settings.integer("prompt-rows");
  if (settings.text("ctx") != "auto" && settings.integer("ctx") > 0) in.context = settings.integer("ctx");
  if (settings.text("ubatch") != "auto") in.ubatch = settings.integer("ubatch");
  in.favor_prompt = settings.text("favor") == "prompt";
  in.min_cache = static_cast<uint64_t>(settings.integer("min-cache-mib")) << 20;
  in.bank = map.total_bytes();
  in.dense = dense_bytes(file, map);
  in.available = memory.available;
  in.group_limit = memory.group_limit;
  in.residency = residency_options(settings);
  return fit_serve(in);
}

std::string model_name(const Settings& settings) {
  if (settings.is_set("alias")) return settings.text("alias");
  return std::filesystem::path(settings.text("model")).stem().string();
}

/// The cache's size in MiB. A cache that holds all experts still does.
uint64_t cache_mib(const SizingPlan& plan) {
  constexpr uint64_t kMib = uint64_t{1} << 20;
  const uint64_t whole = plan.budget / kMib;
  if (plan.budget % kMib == 0) return whole;
  return plan.budget >= plan.input.bank || whole == 0 ? whole + 1 : whole;
}

/// The command that asks for the plan by number, with everything else that was given but the keys.
std::string planned_command(const Settings& settings, const ServeFit& fit) {
  std::string text = fmt::format("moetier serve -m {} --parallel {} --ctx {} --ubatch {} --experts {}",
                                 shell_word(settings.text("model")), settings.integer("parallel"), fit.context,
                                 fit.ubatch, to_string(fit.plan.mode));
  const ParamList& params = find_command("serve")->params;
  if (fit.plan.mode != ExpertMode::stream) {
    return text +
           given_flags(params, settings, {"model", "parallel", "ctx", "ubatch", "experts", "dry-run", "api-key"});
  }
  const uint64_t mib = cache_mib(fit.plan);
  text += fmt::format(" --cache-mb {}", mib);
  if ((mib > 0 && mib < kLeastCache >> 20) || settings.flag("force-cache")) text += " --force-cache";
  // The floor and the ceiling have done their work.
  return text + given_flags(params, settings,
                            {"model", "parallel", "ctx", "ubatch", "experts", "dry-run", "api-key", "cache-mb",
                             "force-cache", "cache-floor-mb", "cache-ceil-mb"});
}

/// The plan for people; the last line is the command that asks for it by number.
void print_plan(const Settings& settings, const ServeFit& fit) {
  std::string text = fmt::format("model: {}\n", settings.text("model"));
  if (const auto& available = fit.plan.input.available)
    text += fmt::format("memory available: {}\n", format_bytes(*available));
  for (const std::string& why : fit.why) text += why + "\n";
  std::string why = fit.plan.why;
  const std::string mode = fmt::format("experts {}: ", to_string(fit.plan.mode));
  if (why.starts_with(mode)) why.erase(0, mode.size());  // it is told before
  text += fmt::format("experts: {}{}\n", to_string(fit.plan.mode), why.empty() ? "" : "; " + why);
  text += fmt::format("threads: {}\n", thread_count(settings));
  if (settings.is_set("api-key")) text += "the API keys are not printed: the command needs --api-key again\n";
  print_out(text + planned_command(settings, fit) + "\n");
}

HttpOptions http_options(const Settings& settings) {
  HttpOptions http;
  http.host = settings.text("host");
  http.port = static_cast<int>(settings.integer("port"));
  http.certificate_file = settings.text("ssl-cert-file");
  http.key_file = settings.text("ssl-key-file");
  if (http.certificate_file.empty() != http.key_file.empty()) {
    usage_error("--ssl-cert-file and --ssl-key-file belong together; give both, or none");
  }
  http.limits.body_bytes = static_cast<size_t>(settings.integer("max-body-mib")) << 20;
  http.limits.body_seconds = http.limits.write_seconds = settings.real("timeout");
  http.limits.header_seconds = std::min(http.limits.header_seconds, settings.real("timeout"));
  http.limits.connections = static_cast<int>(settings.integer("max-connections"));
  return http;
}

/// Keys separated by commas.
void add_keys(std::string_view list, server::ApiKeys& keys) {
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    keys.add(list.substr(at, comma - at));
    at = comma + 1;
  }
}

/// Errors (usage): what no browser sends as an Origin.
void check_origin(const std::string& origin) {
  const size_t scheme = origin.find("://");
  const bool http = origin.starts_with("http://") || origin.starts_with("https://");
  const bool plain =
      http && origin.size() > scheme + 3 && origin.find_first_of("/?#@ ,*", scheme + 3) == std::string::npos;
  if (origin.empty() || origin == "null" || plain) return;
  usage_error("--cors-origin takes a page's origin, http://HOST[:PORT] or https://HOST[:PORT], or null, not '{}'",
              origin);
}

server::Json template_variables(const std::string& text) {
  auto json = server::Json::parse(text, nullptr, false);
  if (!json.is_object()) {
    usage_error("--chat-template-kwargs takes a JSON object, such as {{\"enable_thinking\": false}}, not '{}'", text);
  }
  return json;
}

ServiceOptions service_options(const Settings& settings) {
  ServiceOptions options;
  const GenerateOptions generation = generate_options(settings);
  options.defaults.sampler = generation.sampler;
  options.defaults.seeded = settings.text("seed") != "auto";
  options.defaults.max_tokens = generation.max_tokens;
  options.defaults.stop = generation.stop;
  options.defaults.ignore_eog = generation.ignore_eog;
  options.defaults.time_limit = settings.real("request-timeout");
  options.defaults.reasoning_budget = settings.integer("reasoning-budget");
  options.defaults.split_reasoning = settings.text("reasoning-format") != "none";
  if (settings.is_set("chat-template-kwargs")) {
    options.defaults.template_variables = template_variables(settings.text("chat-template-kwargs"));
  }
  for (const std::string& keys : settings.texts("api-key")) add_keys(keys, options.keys);
  if (settings.is_set("api-key-file")) options.keys.add_file(settings.text("api-key-file"));
  options.cors_origin = settings.text("cors-origin");
  check_origin(options.cors_origin);
  options.keep_alive_seconds = settings.real("keep-alive");
  options.log_prompts = settings.flag("log-prompts");
  options.pages = settings.flag("webui");
  return options;
}

SchedulerOptions scheduler_options(const Settings& settings) {
  SchedulerOptions options;
  options.parallel = static_cast<int>(settings.integer("parallel"));
  options.queue = static_cast<int>(settings.integer("queue"));
  options.prompt_slice = settings.integer("prompt-slice");
  options.stall_seconds = settings.real("timeout");
  options.prompt_cache_dir = settings.text("prompt-cache-dir");
  options.prompt_cache_bytes = static_cast<uint64_t>(settings.integer("prompt-cache-mb")) << 20;
  options.slot_save_path = settings.text("slot-save-path");
  return options;
}

/// As the flag says, or the model's own metadata (1 = mean, 2 = the first token's, 3 = the last).
server::Pooling pooling(const Settings& settings, const GgufFile& file) {
  std::string wanted = settings.text("pooling");
  if (wanted == "auto") {
    const auto own = file.get_int(file.need_string("general.architecture") + ".pooling_type");
    wanted = own == 1 ? "mean" : own == 2 ? "cls" : "last";
  }
  return wanted == "mean" ? server::Pooling::mean : wanted == "cls" ? server::Pooling::first : server::Pooling::last;
}

/// What /props tells of the settings.
nlohmann::ordered_json told_settings(const Settings& settings) {
  auto told = settings.json();
  if (told.contains("api-key")) told["api-key"]["value"] = "(hidden)";
  return told;
}

/// The text of --chat-template; empty if it is not given.
std::string template_text(const Settings& settings) {
  if (!settings.is_set("chat-template")) return "";
  const std::string& path = settings.text("chat-template");
  std::error_code absent;
  if (path != "-" && !std::filesystem::exists(path, absent)) {
    usage_error("--chat-template takes a file, and there is no file '{}'; names of built-in templates are not taken",
                path.substr(0, 80));
  }
  return read_input(path);
}

/// What starting would find out later.
void check_files(const Settings& settings, const HttpOptions& http) {
  if (!http.key_file.empty()) server::Tls(http.certificate_file, http.key_file);
  if (settings.is_set("moe-cache-profile")) {
    const std::string& profile = settings.text("moe-cache-profile");
    std::error_code absent;
    if (!std::filesystem::exists(profile, absent)) log::warn("there is no profile {}; the cache begins empty", profile);
  }
}

void warn_if_open(const HttpOptions& http, const ServiceOptions& service) {
  if (service.keys.empty() && !server::is_loopback(http.host)) {
    log::warn(
        "anyone who can reach {} can use this server: it has no API key; --api-key-file gives it some, --host "
        "127.0.0.1 "
        "closes it",
        http.host);
  }
  if (!service.keys.empty() && http.key_file.empty() && !server::is_loopback(http.host)) {
    log::warn("API keys and prompts travel unencrypted; --ssl-key-file and --ssl-cert-file encrypt them");
  }
}

/// However serving ends, no request outlives what it is served by.
struct StopAtEnd {
  ApiServer& api;
  ~StopAtEnd() { api.stop(); }
};

/// Serves until a signal, then lets what is under way end, and a second signal cut it off.
void serve_until_stopped(ApiServer& api, StopSignals& signals, double drain_seconds) {
  signals.serving();
  server::notify_manager("READY=1");
  signals.wait_for(1);
  server::notify_manager("STOPPING=1");
  log::info("stopping: requests under way have {} s to end; a second signal ends them at once", drain_seconds);
  std::thread impatient([&] {
    signals.wait_for(2);
    if (signals.came() >= 2) api.stop();
  });
  const bool ended = api.drain(drain_seconds);
  signals.forget();
  impatient.join();
  api.stop();
  log::info("{}", ended ? "stopped" : "stopped; requests that had not ended were cut off");
}

}  // namespace

int run_serve(const Settings& given) {
  Settings settings = given;
  need(settings, "model");
  apply_margin(settings);
  const ServeFit fitted = fit(settings);
  HttpOptions http = http_options(settings);
  ServiceOptions service = service_options(settings);
  const std::string chat_template = template_text(settings);
  if (settings.flag("dry-run")) {
    check_files(settings, http);
    print_plan(settings, fitted);
    return 0;
  }
  settings.resolve("ctx", std::to_string(fitted.context));
  settings.resolve("ubatch", std::to_string(fitted.ubatch));
  settings.resolve("threads", std::to_string(thread_count(settings)));
  for (const std::string& why : fitted.why) log::verbose("{}", why);
  service.settings = told_settings(settings);
  StopSignals signals;
  warn_if_open(http, service);
  SchedulerOptions serving = scheduler_options(settings);
  // Told before minutes of loading.
  if (!serving.prompt_cache_dir.empty()) prepare_state_directory("the prompt cache", serving.prompt_cache_dir);
  if (!serving.slot_save_path.empty()) prepare_state_directory("saved slots", serving.slot_save_path);
  // It listens before the model is there: clients are told to wait, and a port that cannot be had costs no loading.
  ApiServer api(std::move(service), http, serving.parallel + serving.queue);
  api.start();
  // With port 0 nothing else tells where it is.
  if (http.port == 0 && log::level() < log::Level::info) fmt::print(stderr, "listening at {}\n", api.url());
  log::info("listening at {} while the model is loaded", api.url());
  const auto engine = load_engine(settings);
  Context context(*engine, context_options(settings, *engine));
  const auto audit = open_audit(settings, context);
  apply_routing(settings, context);
  ServedModel model(*engine, model_name(settings), chat_template);
  serving.audit = audit.get();
  Scheduler scheduler(context, serving);
  const StopAtEnd stop{api};
  if (audit != nullptr) audit->ready(context);
  api.ready(model, scheduler, pooling(settings, engine->file()));
  log::info("{} at {}: {} slot{} of {} positions", model.name(), api.url(), scheduler.options().parallel,
            scheduler.options().parallel == 1 ? "" : "s", context.options().context);
  serve_until_stopped(api, signals, settings.real("drain-timeout"));
  if (audit != nullptr) audit->exit(context);
  return 0;
}

}  // namespace moetier::cli
