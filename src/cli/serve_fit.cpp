#include "cli/serve_fit.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"

namespace moetier::cli {
namespace {

constexpr int64_t kLeastContext = 2048;
constexpr int64_t kPromptUbatch = 2048, kUsualUbatch = 512, kLeastUbatch = 128;

std::vector<int64_t> contexts(const FitInput& in) {
  if (in.context) return {*in.context};
  const int64_t own = in.hparams.context_length > 0 ? in.hparams.context_length : kMostServeContext;
  std::vector<int64_t> all;
  for (int64_t n = std::min(own, kMostServeContext); n >= std::min(kLeastContext, own); n /= 2) all.push_back(n);
  return all;
}

std::vector<int64_t> ubatches(const FitInput& in) {
  if (in.ubatch) return {*in.ubatch};
  std::vector<int64_t> all;
  for (int64_t n = in.favor_prompt ? kPromptUbatch : kUsualUbatch; n >= kLeastUbatch; n /= 2) all.push_back(n);
  return all;
}

ServeFit plan(const FitInput& in, int64_t context, int64_t ubatch) {
  ServeFit fit{.context = context, .ubatch = ubatch, .bytes = {}, .plan = {}, .why = {}};
  ContextOptions options;
  options.context = context;
  options.sequences = in.parallel + (in.saves_prompts ? 1 : 0);
  options.ubatch = ubatch;
  options.kv_type = in.kv_type;
  options.group_rows = in.group_rows;
  fit.bytes = context_bytes(in.hparams, options, in.bank > 0);
  SizingInput sizing;
  sizing.available = in.available;
  sizing.group_limit = in.group_limit;
  sizing.bank = in.bank;
  sizing.kv = fit.bytes.kv;
  sizing.buffers = fit.bytes.buffers + fit.bytes.kernels;
  sizing.dense = in.dense;
  fit.plan = plan_residency(in.residency, sizing);
  return fit;
}

/// What the cache should get: a size that was asked for is neither more nor less.
uint64_t least_cache(const FitInput& in) {
  const uint64_t least = std::min(in.min_cache, in.bank);
  return in.residency.ceil_bytes > 0 ? std::min(least, in.residency.ceil_bytes) : least;
}

bool cache_is_short(const FitInput& in, const ServeFit& fit) {
  if (!in.available || in.bank == 0 || fit.plan.mode != ExpertMode::stream) return false;
  if (in.residency.cache_bytes) return fit.plan.reserved + fit.plan.budget > *in.available;
  return fit.plan.budget < least_cache(in);
}

bool good(const FitInput& in, const ServeFit& fit) {
  const bool long_enough = in.context || !in.available || fit.bytes.kv <= *in.available / 4;
  return long_enough && !cache_is_short(in, fit);
}

/// What is wrong with a plan that is the best one and not good.
std::string shortage(const FitInput& in, const ServeFit& fit) {
  if (!cache_is_short(in, fit)) {
    return fmt::format(
        "the KV cache takes more than a quarter of the {} available; fewer slots or a smaller --ctx help",
        format_bytes(*in.available));
  }
  if (in.residency.cache_bytes) {
    return fmt::format(
        "the expert cache of {} as asked for and the {} needed beside it are more than the {} available; "
        "a smaller --cache-mb or --ctx helps",
        format_bytes(fit.plan.budget), format_bytes(fit.plan.reserved), format_bytes(*in.available));
  }
  return fmt::format(
      "the expert cache would get {}, less than the {} of --min-cache-mib; more memory, fewer slots or a "
      "smaller --ctx help",
      format_bytes(fit.plan.budget), format_bytes(in.min_cache));
}

void explain(const FitInput& in, ServeFit& fit, bool met) {
  const std::string each = in.parallel > 1 ? fmt::format(" for each of {} slots", in.parallel) : "";
  const int64_t own = in.hparams.context_length;
  const char* reason = "as asked";
  if (!in.context) {
    reason = fit.context == own                 ? "the model's own"
             : fit.context == kMostServeContext ? "the most without --ctx"
                                                : "less than the model's own, to leave memory for the experts";
  }
  const auto slots = static_cast<uint64_t>(in.parallel);
  const uint64_t state = in.saves_prompts ? fit.bytes.kv / (slots + 1) : 0;
  fit.why.push_back(fmt::format(
      "context: {} positions{} ({}), a KV cache of {}{}", fit.context, each, reason, format_bytes(fit.bytes.kv - state),
      state > 0 ? fmt::format(", and {} for a state on its way to --prompt-cache-dir", format_bytes(state)) : ""));
  fit.why.push_back(fmt::format("ubatch: {} rows ({}), buffers of {}", fit.ubatch,
                                in.ubatch         ? "as asked"
                                : in.favor_prompt ? "--favor prompt"
                                                  : "--favor generation",
                                format_bytes(fit.bytes.buffers + fit.bytes.kernels)));
  if (!met) fit.why.push_back(shortage(in, fit));
}

}  // namespace

ServeFit fit_serve(const FitInput& in) {
  ServeFit last;
  for (const int64_t context : contexts(in)) {
    for (const int64_t ubatch : ubatches(in)) {
      last = plan(in, context, ubatch);
      if (!good(in, last)) continue;
      explain(in, last, true);
      return last;
    }
  }
  explain(in, last, false);
  return last;
}

}  // namespace moetier::cli
