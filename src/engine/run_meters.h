// What a run costs, phase by phase: readings of everything that counts up, and differences between them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/context.h"
#include "engine/generate.h"
#include "io/memory.h"

namespace moetier {

/// Counters that only grow, read at one moment. nullopt: the system does not tell.
struct Reading {
  StoreCounters counters;
  StoreMeters store;
  double batch_seconds = 0;     ///< in Context::decode()
  double moe_wait_seconds = 0;  ///< of these, asking for entries and waiting for them
  double moe_compute_seconds = 0;
  uint64_t rows = 0;
  uint64_t weight_bytes = 0;  ///< of the engine: weights that were multiplied with
  uint64_t picks = 0, dropped = 0;  ///< chosen by the router; of them left out because they were cold
  Faults faults;
  std::optional<double> cpu_seconds;         ///< of this process
  std::optional<double> busy_cpu_seconds;    ///< of the whole machine
  std::optional<uint64_t> device_bytes;      ///< fetched from drives for this process, page faults and read-ahead too
  std::optional<uint64_t> swapped_in_bytes;  ///< of the whole machine
};

/// What passed between two readings.
struct Cost : Reading {
  double wall_seconds = 0;
  double sampling_seconds = 0;
  /// Batches outside of the waits for entries: both are measured. Page faults of mapped weights are in it.
  double compute_seconds() const { return batch_seconds - moe_wait_seconds; }
  /// Wall time minus batches and sampling: text, logs, the loop itself.
  double loop_seconds() const { return wall_seconds - batch_seconds - sampling_seconds; }
  /// Share of the machine's CPUs that other processes took; nullopt of times too short to tell.
  std::optional<double> other_cpu_share() const;
  void add(const Cost& other);
};

/// `everything`: also what takes a file of /proc to know.
Reading read_meters(Context& context, bool everything);
Cost cost_between(const Reading& before, const Reading& after);

/// Sorts what a run costs into prompts and decoding, and keeps both per layer. Give it to generate() as the watcher, or
/// call mark_prompt() and mark_decode() after work of that kind.
class RunMeters : public GenerateWatcher {
 public:
  struct Phase {
    Cost cost;
    uint64_t tokens = 0;                ///< prompt: rows computed; decode: tokens sampled
    std::vector<StoreCounters> layers;  ///< in the order of the store's map
  };
  explicit RunMeters(Context& context);
  /// What passed since the last mark was a prompt of `rows` rows.
  void mark_prompt(uint64_t rows, double wall_seconds);
  /// What passed since the last mark was decoding `tokens` tokens.
  void mark_decode(uint64_t tokens, double wall_seconds, double sampling_seconds = 0);

  /// Wall seconds of the first tokens of the run, at most kFirstTokens: those of the first answer, unless they are
  /// given here (before any is metered).
  void give_first_tokens(std::vector<double> seconds);
  const std::vector<double>& first_tokens() const { return first_tokens_; }
  static constexpr size_t kFirstTokens = 5;

  /// What passed since the last mark belongs to neither.
  void skip();

  void started() override { skip(); }
  void prompt_done(int64_t computed, double seconds) override;
  void token_done(TokenId token, const TokenTimes& times) override;
  void finished() override;

  const Phase& prompt() const { return prompt_; }
  const Phase& decode() const { return decode_; }
  Context& context() const { return context_; }

 private:
  void mark(Phase& phase, uint64_t tokens, double wall, double sampling);
  Context& context_;
  Reading last_;
  std::vector<StoreCounters> last_layers_;
  Phase prompt_, decode_;
  std::vector<double> first_tokens_;
  bool first_known_ = false;
  uint64_t pending_tokens_ = 0;  // decoded since the last mark
  double pending_wall_ = 0, pending_sampling_ = 0;
};

/// What of a phase could not be measured, by the names that records use, and why.
std::vector<std::pair<std::string, std::string>> unmeasured(const Cost& cost);

/// There is a cache and it may hold something: a stream without a cache (0 bytes) has none.
inline bool has_cache(const StoreStatus& status) {
  return status.cached && status.budget_bytes > 0;
}

}  // namespace moetier
