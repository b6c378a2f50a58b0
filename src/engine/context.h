// A context: runs batches of any mix of sequences through a model, layer by layer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compute/compute.h"
#include "compute/cpu/cpu_compute.h"
#include "engine/state.h"
#include "experts/store.h"
#include "gguf/reader.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace moetier {

struct EngineOptions {
  CpuOptions cpu;
  std::vector<std::string> overrides;  ///< KEY=TYPE:VALUE
};

/// Everything loaded from one model file; shared by contexts.
class Engine {
 public:
  static std::unique_ptr<Engine> load(const std::string& path, const EngineOptions& options = {});
  ~Engine();
  const GgufFile& file() const;
  Compute& compute();
  ExpertStore* store();  ///< nullptr for dense models
  const Model& model() const;
  const Tokenizer& tokenizer() const;  ///< an error if the file has no vocabulary
  bool has_tokenizer() const;
  double load_seconds() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct ContextOptions {
  int64_t context = 0;     ///< positions per sequence; 0 = the model's own
  int sequences = 1;       ///< KV pool holds `sequences` full contexts
  int64_t ubatch = 512;    ///< rows computed at once
  TensorType kv_type = TensorType::f16;
};

/// One row of a batch. The row's position is the sequence's length as rows are appended, in order.
struct BatchRow {
  TokenId token;
  SequenceState* sequence;
  bool want_logits = false;
};

class Context {
 public:
  Context(Engine& engine, const ContextOptions& options);
  ~Context();
  Engine& engine();
  const ContextOptions& options() const;
  KvPool& kv();
  SequenceState new_sequence();

  /// Appends all rows to their sequences and computes them, in ubatches. Afterwards logits(i) is the i-th wanted row. On an error
  /// (full pool, token out of range, context full) every sequence is as it was before.
  void decode(std::span<const BatchRow> rows);
  int64_t logits_count() const;
  std::span<const float> logits(int64_t index) const;  ///< [vocab]

  MoeOperation* moe();  ///< nullptr for dense models
  struct Meters {
    double seconds = 0;  ///< in decode()
    uint64_t rows = 0, ubatches = 0;
  };
  const Meters& meters() const;
  void reset_meters();
  uint64_t buffer_bytes() const;  ///< scratch and logits, without KV

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moetier
