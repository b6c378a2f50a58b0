// What a run was and what it cost, as JSON and as one line.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/context.h"
#include "engine/generate.h"
#include "engine/run_meters.h"

namespace moetier {

/// Times of one or more generations. The first decode step of a run is kept apart: it pays for what was not in memory
/// yet.
class RunTimes {
 public:
  void add(const GenerateResult& result);
  void add_prompt(int64_t computed, int64_t reused, double seconds);
  void add_decode_step(double seconds);

  int64_t prompt_computed() const { return prompt_computed_; }
  int64_t prompt_reused() const { return prompt_reused_; }
  int64_t decode_steps() const { return static_cast<int64_t>(steps_.size()) + (has_first_ ? 1 : 0); }
  double prompt_tok_s() const;  ///< 0 if no prompt was computed
  double decode_tok_s()
      const;  ///< over all steps but the first; over the first if it is the only one; 0 if there is none
  double decode_median_tok_s() const;  ///< of the same steps
  nlohmann::ordered_json json() const;

 private:
  std::vector<double> sorted_steps() const;
  int64_t prompt_computed_ = 0, prompt_reused_ = 0;
  double prompt_seconds_ = 0, first_step_ = 0;
  bool has_first_ = false;
  std::vector<double> steps_;  // seconds, all but the first
};

/// The run record (promise 3): resolved configuration, version, machine, model, times, memory, experts, warnings. Sizes
/// in bytes, times in seconds; the keys say so.
class RunRecord {
 public:
  /// `config`: every parameter with its resolved value, as the caller knows them.
  explicit RunRecord(Context& context, nlohmann::ordered_json config = nlohmann::ordered_json::object());
  RunTimes& times() { return times_; }
  const RunTimes& times() const { return times_; }
  RunMeters& meters() { return meters_; }
  const RunMeters& meters() const { return meters_; }
  nlohmann::ordered_json json() const;

 private:
  Context& context_;
  nlohmann::ordered_json config_;
  RunTimes times_;
  RunMeters meters_;
};

/// The facts of a loaded model that a record, a benchmark or a server tells.
nlohmann::ordered_json model_json(Engine& engine);
nlohmann::ordered_json machine_json();
/// Memory of the process and of the context, in bytes.
nlohmann::ordered_json memory_json(Context& context);
/// Entries used and picks; null for dense models.
nlohmann::ordered_json experts_json(Context& context);

/// The closing line of a run, e.g. "prompt 5 tokens at 81.0 tok/s, decode 64 at 38.2 tok/s, memory 61.2 MiB (KV
/// cache 1.50 MiB), experts 80 of 96 used".
std::string account_line(const RunTimes& times, Context& context);

}  // namespace moetier
