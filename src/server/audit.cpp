#include "server/audit.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/run_meters.h"
#include "server/model_id.h"

namespace moetier {
namespace {

using Json = nlohmann::ordered_json;

/// UTC, ISO 8601, to the millisecond.
std::string now_text() {
  const auto now = std::chrono::system_clock::now();
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  const auto seconds = static_cast<std::time_t>(millis / 1000);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                     utc.tm_hour, utc.tm_min, utc.tm_sec, millis % 1000);
}

/// The store if it has a cache that may hold something, else nullptr.
ExpertStore* cache_of(Context& context) {
  ExpertStore* store = context.engine().store();
  return store != nullptr && has_cache(store->status()) ? store : nullptr;
}

Json layers_json(Context& context) {
  Json layers = Json::array();
  ExpertStore* store = cache_of(context);
  if (store == nullptr) return layers;
  const std::vector<StoreCounters> passed = context.store_counters();
  for (size_t i = 0; i < passed.size(); ++i) {
    const int layer = store->map().layers[i].layer;
    const std::vector<int32_t> held = store->held(layer);
    layers.push_back({{"il", layer},
                      {"slots", held.size()},
                      {"hits", passed[i].hits},
                      {"hits_profile", passed[i].hits_profile},
                      {"misses", passed[i].misses},
                      {"resident", held}});
  }
  return layers;
}

Json cache_json(Context& context) {
  ExpertStore* store = cache_of(context);
  if (store == nullptr) return {{"slots", 0}, {"prefilled", 0}, {"bytes", 0}};
  const StoreStatus status = store->status();
  return {{"slots", status.slots}, {"prefilled", status.prefilled}, {"bytes", status.arena_bytes}};
}

Json profile_json(const std::string& path) {
  if (path.empty()) return nullptr;
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) return {{"path", path}, {"error", error.message()}};
  try {
    return {{"path", path}, {"bytes", bytes}, {"sha256", sha256_of_file(path)}};
  } catch (const Error& unreadable) {
    return {{"path", path}, {"error", unreadable.what()}};
  }
}

Json model_json(Engine& engine) {
  const HParams& h = engine.model().hparams();
  return {
      {"path", engine.file().path()}, {"bytes", engine.file().file_bytes()}, {"name", h.name}, {"n_layer", h.layers}};
}

Json params_json(Context& context, const AuditParams& p) {
  const ContextOptions& o = context.options();
  Json overrides = Json::array();
  for (const std::string& pattern : p.tensor_overrides) overrides.push_back(pattern);
  return {{"build", MOETIER_VERSION},     {"moe_cache_mib", p.cache_mib},
          {"moe_cache_hybrid", false},    {"moe_cache_adaptive", p.adaptive},
          {"n_gpu_layers", p.gpu_layers}, {"n_threads", p.threads},
          {"n_threads_batch", p.threads}, {"n_ctx", o.context * o.sequences},
          {"n_batch", o.group_rows},      {"n_ubatch", o.ubatch},
          {"tensor_overrides", overrides}};
}

double rate(int64_t n, double seconds) {
  return seconds > 0 ? static_cast<double>(n) / seconds : 0;
}

/// A pipe that nobody reads is an error, and one that is not read fast enough loses records: neither is waited for.
int open_log(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
}

double millis(double seconds) {
  return seconds * 1000;
}

}  // namespace

AuditLog::AuditLog(std::string path, Context& context, const AuditParams& params) : path_(std::move(path)) {
  const int fd = open_log(path_);
  if (fd < 0) fail("the audit log {} cannot be written: {}", path_, std::strerror(errno));
  ::close(fd);
  const std::lock_guard quiet(context.engine().run_mutex());
  Json json = record("load", context);
  json["model"] = model_json(context.engine());
  json["params"] = params_json(context, params);
  json["cache"] = cache_json(context);
  json["load_ms"] = millis(context.engine().load_seconds());
  json["devices"] = Json::array();
  json["profile"] = profile_json(params.profile);
  json["layers"] = layers_json(context);
  write(json);
}

Json AuditLog::record(std::string_view event, Context& context) const {
  StoreCounters c;
  if (cache_of(context) != nullptr) {
    for (const StoreCounters& layer : context.store_counters()) c += layer;
  }
  return {{"event", event},
          {"time", now_text()},
          {"pid", ::getpid()},
          {"hybrid", false},
          {"hits", c.hits},
          {"hits_profile", c.hits_profile},
          {"misses", c.misses},
          {"bytes_upload", c.bytes_read},
          {"bytes_cpu", 0},
          {"copies", c.large_hits},
          {"bytes_copy", c.large_hit_bytes},
          {"swaps", c.swaps}};
}

void AuditLog::write(const Json& json) const {
  const std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const int fd = open_log(path_);
  ssize_t written = -1;
  // One write: two processes' records never mix.
  if (fd >= 0) written = ::write(fd, line.data(), line.size());
  const int problem = errno;
  if (fd >= 0) ::close(fd);
  if (written == static_cast<ssize_t>(line.size())) return;
  log::warn("the audit log {} has lost records: {}", path_,
            written < 0 ? std::strerror(problem) : "no space is left on the device");
}

void AuditLog::ready(Context& context) {
  const std::lock_guard quiet(context.engine().run_mutex());
  write(record("ready", context));
}

void AuditLog::request(Context& context, const RequestResult& r) {
  perf_.n_prompt += r.computed_tokens;
  perf_.n_gen += std::max<int64_t>(r.sampled_tokens - 1, 0);  // the first comes with the prompt
  perf_.prompt_seconds += r.prompt_seconds;
  perf_.gen_seconds += r.decode_seconds;
  const std::lock_guard quiet(context.engine().run_mutex());
  Json json = record("request", context);
  json["slot"] = r.slot;
  json["task"] = r.task;
  json["n_prompt"] = r.prompt_tokens;
  json["n_gen"] = r.sampled_tokens;
  json["t_prompt_ms"] = millis(r.prompt_seconds);
  json["t_gen_ms"] = millis(r.decode_seconds);
  json["req_hits"] = r.hits;
  json["req_hits_profile"] = r.hits_profile;
  json["req_misses"] = r.misses;
  json["req_bytes_upload"] = r.bytes_read;
  json["req_bytes_cpu"] = 0;
  write(json);
}

void AuditLog::exit(Context& context) {
  exit(context, perf_);
}

void AuditLog::exit(Context& context, const AuditPerf& p) {
  const std::lock_guard quiet(context.engine().run_mutex());
  Json json = record("exit", context);
  json["layers"] = layers_json(context);
  json["perf"] = {{"n_prompt", p.n_prompt},
                  {"n_gen", p.n_gen},
                  {"t_prompt_ms", millis(p.prompt_seconds)},
                  {"t_gen_ms", millis(p.gen_seconds)},
                  {"prompt_tps", rate(p.n_prompt, p.prompt_seconds)},
                  {"gen_tps", rate(p.n_gen, p.gen_seconds)}};
  write(json);
}

}  // namespace moetier
