// check-api: both sides of the socket in one process, or a server that runs.
#include <fmt/format.h>

#include "base/error.h"
#include "cli/check_api.h"
#include "cli/command.h"
#include "cli/local_server.h"
#include "cli/support.h"

namespace moetier::cli {
namespace {

constexpr int64_t kContext = 1024;
constexpr const char* kKey = "check-api";

int report(ApiCheck& check) {
  check_apis(check);
  print_out(fmt::format("{} ok, {} failed, {} absent, {} unclear\n", check.count(Outcome::passed), check.failed(),
                        check.count(Outcome::absent), check.count(Outcome::unclear)));
  if (check.failed() > 0) fail("{} checks of the APIs failed", check.failed());
  return 0;
}

int check_running(const Settings& settings) {
  ApiTarget target;
  target.url = parse_server_url(settings.text("url"));
  target.key = settings.text("api-key");
  target.complete = settings.flag("complete");
  target.max_tokens = settings.integer("max-tokens");
  ApiCheck check(std::move(target));
  return report(check);
}

/// The log of --moe-cache-audit, if it was asked for.
std::unique_ptr<AuditLog> open_log(const Settings& settings, const EngineOptions& options, Context& context) {
  if (!settings.is_set("moe-cache-audit")) return nullptr;
  AuditParams params;
  params.cache_mib = settings.integer("cache-mib");
  params.threads = options.cpu.threads;
  params.profile = options.residency.profile;
  return std::make_unique<AuditLog>(settings.text("moe-cache-audit"), context, params);
}

}  // namespace

int run_check_api(const Settings& settings) {
  if (settings.is_set("url")) {
    for (const char* other : {"model", "moe-cache-audit"})
      if (settings.is_set(other)) usage_error("--url asks a server that runs; leave out --{}, or --url", other);
    return check_running(settings);
  }
  refuse_overwriting(settings, "moe-cache-audit", {"model", "profile"});
  EngineOptions options;
  options.cpu.threads = thread_count(settings);
  options.overrides = settings.texts("override-kv");
  options.residency.mode = ExpertMode::stream;
  options.residency.cache_bytes = static_cast<uint64_t>(settings.integer("cache-mib")) << 20;
  options.residency.profile = settings.text("profile");
  const auto engine = Engine::load(need(settings, "model"), options);
  ContextOptions wanted;
  wanted.context = kContext;
  const LocalServer server(*engine, wanted, 0, kKey,
                           [&](Context& context) { return open_log(settings, options, context); });
  ApiCheck check({.url = parse_server_url(server.url()),
                  .key = kKey,
                  .complete = true,
                  .own = true,
                  .cached = engine->store() != nullptr,
                  .max_tokens = settings.integer("max-tokens")});
  return report(check);
}

}  // namespace moetier::cli
