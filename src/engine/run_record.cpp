#include "engine/run_record.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/units.h"
#include "engine/machine.h"
#include "engine/residency_report.h"

namespace moetier {
namespace {

using Json = nlohmann::ordered_json;

double rate(double count, double seconds) {
  return seconds > 0 ? count / seconds : 0;
}

double median_of(const std::vector<double>& sorted) {
  if (sorted.empty()) return 0;
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 != 0 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

}  // namespace

void RunTimes::add(const GenerateResult& result) {
  add_prompt(result.prompt_tokens - result.reused_tokens, result.reused_tokens, result.prompt_seconds);
  // The first token was sampled from the prompt's logits: no decode step made it.
  for (size_t i = 1; i < result.token_seconds.size(); ++i) add_decode_step(result.token_seconds[i]);
}

void RunTimes::add_prompt(int64_t computed, int64_t reused, double seconds) {
  prompt_computed_ += computed;
  prompt_reused_ += reused;
  prompt_seconds_ += seconds;
}

void RunTimes::add_decode_step(double seconds) {
  if (has_first_) {
    steps_.push_back(seconds);
  } else {
    has_first_ = true;
    first_step_ = seconds;
  }
}

double RunTimes::prompt_tok_s() const {
  return rate(static_cast<double>(prompt_computed_), prompt_seconds_);
}

/// All steps but the first; the first if it is the only one.
std::vector<double> RunTimes::sorted_steps() const {
  std::vector<double> sorted = steps_;
  if (sorted.empty() && has_first_) sorted.push_back(first_step_);
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

double RunTimes::decode_tok_s() const {
  const std::vector<double> steps = sorted_steps();
  double sum = 0;
  for (const double s : steps) sum += s;
  return rate(static_cast<double>(steps.size()), sum);
}

double RunTimes::decode_median_tok_s() const {
  return rate(1, median_of(sorted_steps()));
}

Json RunTimes::json() const {
  const std::vector<double> steps = sorted_steps();
  double sum = first_step_;
  for (const double s : steps_) sum += s;
  return {{"prompt_tokens", prompt_computed_ + prompt_reused_},
          {"prompt_reused", prompt_reused_},
          {"prompt_seconds", prompt_seconds_},
          {"prompt_tok_s", prompt_tok_s()},
          {"decode_steps", decode_steps()},
          {"decode_seconds", sum},
          {"first_step_seconds", first_step_},
          {"decode_tok_s", decode_tok_s()},
          {"decode_median_tok_s", decode_median_tok_s()},
          {"step_seconds_min", steps.empty() ? 0 : steps.front()},
          {"step_seconds_median", median_of(steps)},
          {"step_seconds_max", steps.empty() ? 0 : steps.back()}};
}

Json model_json(Engine& engine) {
  const HParams& h = engine.model().hparams();
  Json json{{"path", engine.file().path()},
            {"architecture", h.architecture},
            {"name", h.name},
            {"file_bytes", engine.file().file_bytes()},
            {"layers", h.layers},
            {"width", h.width},
            {"heads", h.heads},
            {"kv_heads", h.kv_heads},
            {"vocab", h.vocab},
            {"context_length", h.context_length},
            {"experts", h.experts},
            {"top_k", h.top_k},
            {"dense_bytes", engine.model().dense_bytes()}};
  if (ExpertStore* store = engine.store(); store != nullptr) {
    int64_t entries = 0;
    for (const LayerEntries& layer : store->map().layers) entries += layer.n_expert;
    json["entries"] = entries;
    json["entries_bytes"] = store->map().total_bytes();
    json["token_cycle_bytes"] = store->map().token_cycle_bytes();
  }
  return json;
}

Json machine_json() {
  const MachineFacts facts = machine_facts();
  return {{"cpu", facts.cpu},
          {"cpus", facts.cpus},
          {"memory_bytes", facts.memory_total},
          {"memory_limit_bytes", facts.memory_limit},
          {"kernel", facts.kernel}};
}

Json memory_json(Context& context) {
  const ProcessMemory memory = process_memory();
  Json json{{"resident_bytes", memory.resident},          {"peak_resident_bytes", memory.peak_resident},
            {"anonymous_bytes", memory.anonymous},        {"file_bytes", memory.file},
            {"kv_used_bytes", context.kv().used_bytes()}, {"kv_reserved_bytes", context.kv().reserved_bytes()},
            {"buffer_bytes", context.buffer_bytes()},     {"major_faults", memory.major_faults},
            {"minor_faults", memory.minor_faults}};
  if (ExpertStore* store = context.engine().store(); store != nullptr) {
    json["entries_resident_bytes"] = store->resident_bytes();
  }
  return json;
}

Json experts_json(Context& context) {
  ExpertStore* store = context.engine().store();
  if (store == nullptr) return nullptr;
  const ExpertUse& use = context.expert_use();
  const StoreCounters counters = store->counters();
  return {
      {"used", use.used()},    {"total", use.total()},      {"used_bytes", use.used_bytes()},   {"picks", use.picks()},
      {"hits", counters.hits}, {"misses", counters.misses}, {"bytes_read", counters.bytes_read}};
}

RunRecord::RunRecord(Context& context, Json config) : context_(context), config_(std::move(config)), meters_(context) {}

Json RunRecord::json() const {
  Engine& engine = context_.engine();
  const ContextOptions& options = context_.options();
  Json times = times_.json();
  times["load_seconds"] = engine.load_seconds();
  times["first_token_seconds"] = engine.first_token().after_start;
  times["first_token_after_load_seconds"] = engine.first_token().after_load;
  const Context::Meters& meters = context_.meters();
  Json waits{{"batch_seconds", meters.seconds}, {"rows", meters.rows}, {"ubatches", meters.ubatches}};
  if (context_.moe() != nullptr) {
    waits["moe_wait_seconds"] = context_.moe()->meters().wait_seconds;
    waits["moe_compute_seconds"] = context_.moe()->meters().compute_seconds;
  }
  return {{"program", "moetier"},
          {"version", MOETIER_VERSION},
          {"config", config_},
          {"machine", machine_json()},
          {"model", model_json(engine)},
          {"context",
           {{"compute", engine.compute().name()},
            {"positions", options.context},
            {"sequences", options.sequences},
            {"ubatch", options.ubatch},
            {"kv_type", type_name(options.kv_type)}}},
          {"times", times},
          {"meters", waits},
          {"memory", memory_json(context_)},
          {"experts", experts_json(context_)},
          {"residency", residency_json(context_)},
          {"stats", stats_json(context_, meters_)},
          {"warnings", log::warnings()}};
}

std::string account_line(const RunTimes& times, Context& context) {
  std::string line = fmt::format("prompt {} tokens", times.prompt_computed());
  if (times.prompt_computed() > 0) line += fmt::format(" at {:.1f} tok/s", times.prompt_tok_s());
  if (times.prompt_reused() > 0) line += fmt::format(" ({} reused)", times.prompt_reused());
  line += fmt::format(", decode {} steps", times.decode_steps());
  if (times.decode_steps() > 0) line += fmt::format(" at {:.1f} tok/s", times.decode_tok_s());
  const Engine::FirstToken& first = context.engine().first_token();
  if (log::level() == log::Level::verbose && first.after_load > 0) {
    line += fmt::format(", first token {} after the start ({} after a load of {})", format_seconds(first.after_start),
                        format_seconds(first.after_load), format_seconds(context.engine().load_seconds()));
  }
  line += fmt::format(", memory {} (KV cache {})", format_bytes(process_memory().resident),
                      format_bytes(context.kv().used_bytes()));
  const ExpertUse& use = context.expert_use();
  if (use.total() > 0) line += fmt::format(", experts {} of {} used, {} picks", use.used(), use.total(), use.picks());
  return line;
}

}  // namespace moetier
