// An engine: everything loaded from one model file. A context: runs batches of any mix of sequences through it, layer
// by layer.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "compute/compute.h"
#include "compute/cpu/cpu_compute.h"
#include "compute/op_profile.h"
#include "engine/expert_use.h"
#include "engine/state.h"
#include "experts/residency.h"
#include "experts/store.h"
#include "gguf/reader.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace moetier {

/// The most positions that a context gets when nobody says how many.
inline constexpr int64_t kDefaultContext = 8192;

/// Positions per sequence that a context gets when nobody says how many: the model's own, at most kDefaultContext, and
/// no more than lets `sequences` of them take a quarter of `memory` bytes (0 = unknown) as KV cache; at least one page.
int64_t default_context(const HParams& hparams, TensorType kv_type, int sequences, uint64_t memory);

/// So that a streamed prompt reads each entry once, up to this length.
inline constexpr int64_t kStreamGroupRows = 4096;

struct ContextOptions {
  /// Positions per sequence; 0 = default_context() of the memory this process may use (a warning says if memory bites).
  int64_t context = 0;
  int sequences = 1;     ///< the KV pool holds `sequences` full contexts
  int64_t ubatch = 512;  ///< rows computed at once
  TensorType kv_type = TensorType::f16;
  /// Rows that pass a layer together before the next layer begins, rounded up to whole ubatches: experts are asked for
  /// once for all of them. 0 = one ubatch, or kStreamGroupRows where entries are streamed. Needs memory for some
  /// activations of so many rows, once a prompt is that long. The answer does not depend on it.
  int64_t group_rows = 0;
};

/// What a context of these options takes at most, before there is one: an upper bound, for sizing a cache beside it.
struct ContextBytes {
  uint64_t kv = 0;       ///< all pages
  uint64_t buffers = 0;  ///< Context::buffer_bytes() of a prompt as long as the context, if its last logits are wanted
  uint64_t kernels = 0;  ///< what the kernels keep of it
};
ContextBytes context_bytes(const HParams& hparams, const ContextOptions& options, bool streaming);

struct Residency;

struct EngineOptions {
  CpuOptions cpu;
  bool profile_ops = false;            ///< time every operation (Engine::profile())
  std::vector<std::string> overrides;  ///< KEY=TYPE:VALUE
  /// How entries and dense weights are kept. The answer does not depend on it.
  ResidencyOptions residency;
  /// What the contexts made from it will be like, so that a cache sized from memory leaves them room.
  ContextOptions planned;
  /// Survive a model file that is cut short or unreadable while it is used, by a handler for SIGBUS
  /// (io/mapped_faults.h). Without it, such a file ends the process unless the program handles SIGBUS.
  bool survive_faults = true;
};

/// Everything loaded from one model file; shared by contexts and to outlive them. Contexts of one engine may be used
/// from different threads: their batches are computed one after another.
class Engine {
 public:
  /// Errors: an unreadable or malformed file, an unknown architecture, an override that does not parse. A vocabulary
  /// this program cannot read is not one: tokenizer() tells it when it is wanted.
  static std::unique_ptr<Engine> load(const std::string& path, const EngineOptions& options = {});
  ~Engine();
  const GgufFile& file() const;
  Compute& compute();
  ExpertStore* store();                ///< nullptr for dense models
  const Residency& residency() const;  ///< what was decided at load (engine/residency.h)
  const Model& model() const;
  const Tokenizer& tokenizer() const;  ///< an error if the file has no vocabulary, or one that this program cannot read
  bool has_tokenizer() const;
  double load_seconds() const;
  /// What the operations of all contexts read and, if it was asked for, cost.
  OpProfile& profile();
  /// When the first logits were there; 0 before.
  struct FirstToken {
    double after_load = 0, after_start = 0;  ///< seconds since load() returned, and since the process began
  };
  const FirstToken& first_token() const;
  void note_token();  ///< logits are there; the first call counts
  const EngineOptions& options() const;
  std::mutex& run_mutex();  ///< held while a batch is computed
  /// An error, which names the file, once a page of the model's files could not be read: nothing computed since is
  /// right, and nothing will be until the model is loaded anew.
  void check_intact() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// One row of a batch. The row's position is the sequence's length as rows are appended, in order.
struct BatchRow {
  TokenId token;
  SequenceState* sequence;
  bool want_logits = false;
};

/// Receives the logits of a wanted row: its number among the wanted rows, and [vocab] numbers that are valid during the
/// call.
using LogitsSink = std::function<void(int64_t index, std::span<const float> logits)>;

/// Not thread-safe: one thread at a time, the calls of its sequences included.
class Context {
 public:
  /// Errors: options out of range, memory that cannot be had.
  Context(Engine& engine, const ContextOptions& options);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Engine& engine();
  const ContextOptions& options() const;  ///< as resolved: context is never 0
  KvPool& kv();
  SequenceState new_sequence();

  /// Appends all rows to their sequences and computes them, in ubatches. Afterwards logits(i) is the i-th wanted row.
  /// On an error (full pool, token out of range, context full, a model file that was cut short, ...) every sequence is
  /// as it was before and there are no logits. A single row allocates nothing in steady state.
  void decode(std::span<const BatchRow> rows);
  /// The same, but logits go to `sink` as they are computed and are not kept. What it throws undoes the batch.
  void decode(std::span<const BatchRow> rows, const LogitsSink& sink);
  /// The same, but `sink` receives the last hidden state of the wanted rows, [width] numbers each, and no logits are
  /// computed. Errors: a family that gives none (usage).
  void embed(std::span<const BatchRow> rows, const LogitsSink& sink);
  /// Once `*flag` is true, decode() throws Cancelled before the next layer or ubatch is computed, or at the next expert
  /// that is read, and leaves things as on an error. nullptr (as at first): never.
  void cancel_on(const std::atomic<bool>* flag);
  const std::atomic<bool>* cancelled_by() const;
  int64_t logits_count() const;
  std::span<const float> logits(int64_t index) const;  ///< [vocab]; until the next decode()

  MoeOperation* moe();  ///< nullptr for dense models
  /// Sees every layer's picks, for traces and tests (use this and not moe()->observe(), which the context needs
  /// itself).
  void observe_picks(PickObserver observer, void* user);
  const ExpertUse& expert_use() const;  ///< of picks that were computed
  /// What the store did since this context was made, for whichever context: by layer of the store's map; empty for a
  /// dense model.
  std::vector<StoreCounters> store_counters() const;

  struct Meters {
    double seconds = 0;  ///< in decode(), of batches that failed too
    uint64_t rows = 0, ubatches = 0;
  };
  const Meters& meters() const;
  void reset_meters();            ///< these, the MoE operation's, and the experts used
  uint64_t buffer_bytes() const;  ///< scratch and logits, without KV

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Gives a context a cancel flag for as long as it lives; nullptr leaves the one that it has.
class CancelScope {
 public:
  CancelScope(Context& context, const std::atomic<bool>* flag) : context_(context), before_(context.cancelled_by()) {
    if (flag != nullptr) context.cancel_on(flag);
  }
  ~CancelScope() { context_.cancel_on(before_); }
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

 private:
  Context& context_;
  const std::atomic<bool>* before_;
};

}  // namespace moetier
