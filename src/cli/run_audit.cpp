#include "cli/run_audit.h"

#include <charconv>
#include <numeric>

#include "base/error.h"
#include "base/log.h"
#include "cli/support.h"

namespace moetier::cli {
namespace {

/// A number in a text that other programs read, too; 0 if it is none.
int64_t number_in(const std::string& text) {
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

StoreCounters counted(Context& context) {
  StoreCounters sum;
  for (const StoreCounters& layer : context.store_counters()) sum += layer;
  return sum;
}

}  // namespace

AuditParams audit_params(const Settings& settings) {
  AuditParams p;
  p.threads = thread_count(settings);
  if (settings.text("cache-mb") != "auto") p.cache_mib = settings.integer("cache-mb");
  p.adaptive = settings.flag("moe-cache-adaptive") || settings.text("cache-policy") == "adaptive";
  if (settings.has("n-gpu-layers")) p.gpu_layers = number_in(settings.text("n-gpu-layers"));
  if (settings.has("cpu-moe") && settings.flag("cpu-moe")) p.tensor_overrides.emplace_back("--cpu-moe");
  if (settings.has("n-cpu-moe") && settings.is_set("n-cpu-moe"))
    p.tensor_overrides.push_back("--n-cpu-moe " + settings.text("n-cpu-moe"));
  if (settings.has("override-tensor")) {
    for (const std::string& pattern : settings.texts("override-tensor")) p.tensor_overrides.push_back(pattern);
  }
  p.profile = settings.text("moe-cache-profile");
  return p;
}

std::unique_ptr<AuditLog> open_audit(const Settings& settings, Context& context) {
  if (!settings.has("moe-cache-audit") || !settings.is_set("moe-cache-audit")) return nullptr;
  for (const std::string_view input : {"model", "file", "chat-template", "moe-cache-profile"}) {
    if (settings.has(input)) refuse_overwriting(settings, "moe-cache-audit", {input});
  }
  return std::make_unique<AuditLog>(settings.text("moe-cache-audit"), context, audit_params(settings));
}

RunAudit::~RunAudit() {
  if (log_ == nullptr) return;
  try {
    log_->exit(context_, perf_);
  } catch (const std::exception& error) {
    log::warn("the audit log has no exit record: {}", error.what());
  }
}

void RunAudit::measure(const RunMeters& meters) {
  perf_.n_prompt = static_cast<int64_t>(meters.prompt().tokens);
  perf_.prompt_seconds = meters.prompt().cost.wall_seconds;
  perf_.n_gen = static_cast<int64_t>(meters.decode().tokens);
  perf_.gen_seconds = meters.decode().cost.wall_seconds;
}

void RunAudit::measure(const GenerateResult& result) {
  perf_.n_prompt += result.prompt_tokens - result.reused_tokens;
  perf_.prompt_seconds += result.prompt_seconds;
  perf_.n_gen += static_cast<int64_t>(result.token_seconds.size());
  perf_.gen_seconds += std::accumulate(result.token_seconds.begin(), result.token_seconds.end(), 0.0);
}

void RunAudit::measure_prompt(size_t tokens, double seconds) {
  perf_.n_prompt = static_cast<int64_t>(tokens);
  perf_.prompt_seconds = seconds;
}

void RunAudit::ready() {
  if (log_ != nullptr) log_->ready(context_);
}

void RunAudit::begin_turn() {
  if (log_ != nullptr) before_ = counted(context_);
}

void RunAudit::end_turn(const GenerateResult& result) {
  if (log_ == nullptr) return;
  RequestResult r;
  r.slot = 0;
  r.task = ++turns_;
  r.prompt_tokens = result.prompt_tokens;
  r.cached_tokens = result.reused_tokens;
  r.computed_tokens = result.prompt_tokens - result.reused_tokens;
  r.sampled_tokens = static_cast<int64_t>(result.token_seconds.size());
  r.prompt_seconds = result.prompt_seconds;
  r.decode_seconds = std::accumulate(result.token_seconds.begin(), result.token_seconds.end(), 0.0);
  if (ExpertStore* store = context_.engine().store(); store != nullptr && has_cache(store->status())) {
    const StoreCounters passed = counted(context_) - before_;
    r.hits = passed.hits;
    r.hits_profile = passed.hits_profile;
    r.misses = passed.misses;
    r.bytes_read = passed.bytes_read;
  }
  log_->request(context_, r);
}

}  // namespace moetier::cli
