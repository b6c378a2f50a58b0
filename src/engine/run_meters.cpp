#include "engine/run_meters.h"

#include <algorithm>

#include "engine/machine.h"

namespace moetier {
namespace {

/// b - a where both are known.
template <typename T>
std::optional<T> between(const std::optional<T>& a, const std::optional<T>& b) {
  return a && b ? std::optional<T>(*b - *a) : std::nullopt;
}

/// Sums what is known of both; what one does not know, the sum does not.
template <typename T>
void accumulate(std::optional<T>& sum, const std::optional<T>& more, bool first) {
  if (first) {
    sum = more;
  } else {
    sum = sum && more ? std::optional<T>(*sum + *more) : std::nullopt;
  }
}

std::vector<StoreCounters> layer_counters(Context& context) {
  std::vector<StoreCounters> all;
  ExpertStore* store = context.engine().store();
  if (store == nullptr) return all;
  for (const LayerEntries& layer : store->map().layers) all.push_back(store->counters(layer.layer));
  return all;
}

}  // namespace

std::optional<double> Cost::other_cpu_share() const {
  constexpr double kLeastTime = 0.1;  // the kernel counts in ticks of 10 ms
  if (!busy_cpu_seconds || !cpu_seconds || wall_seconds < kLeastTime) return std::nullopt;
  const double cpus = static_cast<double>(machine_cpus());
  return std::clamp((*busy_cpu_seconds - *cpu_seconds) / (wall_seconds * cpus), 0.0, 1.0);
}

void Cost::add(const Cost& other) {
  const bool first = wall_seconds == 0 && rows == 0 && batch_seconds == 0;
  counters += other.counters;
  store += other.store;
  batch_seconds += other.batch_seconds;
  moe_wait_seconds += other.moe_wait_seconds;
  moe_compute_seconds += other.moe_compute_seconds;
  rows += other.rows;
  weight_bytes += other.weight_bytes;
  picks += other.picks;
  dropped += other.dropped;
  faults.major += other.faults.major;
  faults.minor += other.faults.minor;
  accumulate(cpu_seconds, other.cpu_seconds, first);
  accumulate(busy_cpu_seconds, other.busy_cpu_seconds, first);
  accumulate(device_bytes, other.device_bytes, first);
  accumulate(swapped_in_bytes, other.swapped_in_bytes, first);
  wall_seconds += other.wall_seconds;
  sampling_seconds += other.sampling_seconds;
}

Reading read_meters(Context& context, bool everything) {
  Reading r;
  if (ExpertStore* store = context.engine().store(); store != nullptr) {
    r.counters = store->counters();
    r.store = store->meters();
  }
  r.batch_seconds = context.meters().seconds;
  r.rows = context.meters().rows;
  r.weight_bytes = context.engine().profile().weight_bytes();
  if (MoeOperation* moe = context.moe(); moe != nullptr) {
    r.moe_wait_seconds = moe->meters().wait_seconds;
    r.moe_compute_seconds = moe->meters().compute_seconds;
    r.picks = moe->meters().picks;
    r.dropped = moe->meters().dropped;
  }
  r.faults = process_faults();
  r.cpu_seconds = process_cpu_seconds();
  if (!everything) return r;
  r.busy_cpu_seconds = busy_cpu_seconds();
  r.device_bytes = process_device_bytes();
  r.swapped_in_bytes = swapped_in();
  return r;
}

Cost cost_between(const Reading& before, const Reading& after) {
  Cost cost;
  cost.counters = after.counters - before.counters;
  cost.store = after.store - before.store;
  cost.batch_seconds = after.batch_seconds - before.batch_seconds;
  cost.moe_wait_seconds = after.moe_wait_seconds - before.moe_wait_seconds;
  cost.moe_compute_seconds = after.moe_compute_seconds - before.moe_compute_seconds;
  cost.rows = after.rows - before.rows;
  cost.weight_bytes = after.weight_bytes - before.weight_bytes;
  cost.picks = after.picks - before.picks;
  cost.dropped = after.dropped - before.dropped;
  cost.faults = {after.faults.major - before.faults.major, after.faults.minor - before.faults.minor};
  cost.cpu_seconds = between(before.cpu_seconds, after.cpu_seconds);
  cost.busy_cpu_seconds = between(before.busy_cpu_seconds, after.busy_cpu_seconds);
  cost.device_bytes = between(before.device_bytes, after.device_bytes);
  cost.swapped_in_bytes = between(before.swapped_in_bytes, after.swapped_in_bytes);
  return cost;
}

RunMeters::RunMeters(Context& context)
    : context_(context), last_(read_meters(context, true)), last_layers_(layer_counters(context)) {
  prompt_.layers.resize(last_layers_.size());
  decode_.layers.resize(last_layers_.size());
}

void RunMeters::mark(Phase& phase, uint64_t tokens, double wall, double sampling) {
  const Reading now = read_meters(context_, true);
  Cost cost = cost_between(last_, now);
  cost.wall_seconds = wall;
  cost.sampling_seconds = sampling;
  phase.cost.add(cost);
  phase.tokens += tokens;
  std::vector<StoreCounters> layers = layer_counters(context_);
  for (size_t i = 0; i < layers.size(); ++i) phase.layers[i] += layers[i] - last_layers_[i];
  last_ = now;
  last_layers_ = std::move(layers);
}

void RunMeters::mark_prompt(uint64_t rows, double wall_seconds) {
  mark(prompt_, rows, wall_seconds, 0);
}

void RunMeters::mark_decode(uint64_t tokens, double wall_seconds, double sampling_seconds) {
  mark(decode_, tokens, wall_seconds, sampling_seconds);
}

void RunMeters::prompt_done(int64_t computed, double seconds) {
  mark_prompt(static_cast<uint64_t>(computed), seconds);
}

void RunMeters::token_done(TokenId, const TokenTimes& times) {
  if (!first_known_) first_tokens_.push_back(times.wall);
  first_known_ = first_known_ || first_tokens_.size() >= kFirstTokens;
  ++pending_tokens_;
  pending_wall_ += times.wall;
  pending_sampling_ += times.sampling;
}

void RunMeters::give_first_tokens(std::vector<double> seconds) {
  first_tokens_ = std::move(seconds);
  first_tokens_.resize(std::min(first_tokens_.size(), kFirstTokens));
  first_known_ = true;
}

void RunMeters::finished() {
  first_known_ = first_known_ || !first_tokens_.empty();  // those of another answer are not the first
  if (pending_tokens_ > 0) mark_decode(pending_tokens_, pending_wall_, pending_sampling_);
  pending_tokens_ = 0;
  pending_wall_ = pending_sampling_ = 0;
}

void RunMeters::skip() {
  last_ = read_meters(context_, true);
  last_layers_ = layer_counters(context_);
}

std::vector<std::pair<std::string, std::string>> unmeasured(const Cost& cost) {
  std::vector<std::pair<std::string, std::string>> out;
  if (!cost.cpu_seconds) out.emplace_back("cpu_s", "the system does not tell this process's CPU time");
  if (!cost.other_cpu_share())
    out.emplace_back("other_cpu_pct", "/proc/stat cannot be read, or the time was too short to tell");
  if (!cost.device_bytes) out.emplace_back("device_read_mib", "/proc/self/io cannot be read");
  if (!cost.swapped_in_bytes) out.emplace_back("swapped_in_mib", "/proc/vmstat does not tell it");
  return out;
}

}  // namespace moetier
