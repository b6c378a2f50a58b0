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
  options.sequences = in.parallel;
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

bool good(const FitInput& in, const ServeFit& fit) {
  if (!in.available) return true;
  if (!in.context && fit.bytes.kv > *in.available / 4) return false;
  return in.bank == 0 || fit.plan.mode != ExpertMode::stream || fit.plan.budget >= std::min(in.min_cache, in.bank);
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
  fit.why.push_back(fmt::format("context: {} positions{} ({}), a KV cache of {}", fit.context, each, reason,
                                format_bytes(fit.bytes.kv)));
  fit.why.push_back(fmt::format("ubatch: {} rows ({}), buffers of {}", fit.ubatch,
                                in.ubatch         ? "as asked"
                                : in.favor_prompt ? "--favor prompt"
                                                  : "--favor generation",
                                format_bytes(fit.bytes.buffers + fit.bytes.kernels)));
  if (!met) {
    fit.why.push_back(
        fmt::format("the expert cache would get {}, less than the {} of --min-cache-mib; more memory, "
                    "fewer slots or a smaller --ctx help",
                    format_bytes(fit.plan.budget), format_bytes(in.min_cache)));
  }
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
