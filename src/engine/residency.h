// Puts a model's weights where they are to live: sizes the cache, places the dense weights, makes the store.
#pragma once

#include <memory>
#include <string>

#include "engine/context.h"
#include "engine/dense_memory.h"
#include "experts/random_probe.h"
#include "experts/sizing.h"
#include "experts/store.h"
#include "gguf/reader.h"

namespace moetier {

/// What was decided at load, for the record. Nothing in it is automatic any more.
struct Residency {
  SizingPlan plan;
  DensePolicy dense = DensePolicy::mmap;
  uint64_t dense_bytes = 0;  ///< read or swept at load
  double dense_seconds = 0;
  double drive_bytes_per_second = 0;  ///< of direct reads of this model's slices, probed; 0 = not known
  uint64_t read_ahead_bytes = 0;      ///< of the model's device; 0 = not known
  RandomChoice random;                ///< of advise; `why` is empty in other modes
};

/// What would be decided for the file with the memory there is now: plan and dense, nothing is read. `map` is of the
/// layers that are executed.
Residency planned_residency(const GgufFile& file, const EntryMap& map, const EngineOptions& options);
/// The same from the bytes of entries and of dense weights, and what a context takes.
Residency planned_residency(uint64_t entries, uint64_t dense, const ContextBytes& context,
                            const EngineOptions& options);

/// Works in two steps around the loading of the graph: dense weights before it, the store after it.
class ResidencyMaker {
 public:
  /// Plans from the memory there is now. `file` must outlive it. Errors: options that exclude each other, a model that
  /// changed since it was mapped.
  ResidencyMaker(GgufFile& file, EntryMap map, const EngineOptions& options);
  ~ResidencyMaker();
  /// The memory must outlive the model.
  DenseMemory place_dense_weights();
  /// nullptr for a model without experts.
  std::unique_ptr<ExpertStore> make_store();
  const Residency& residency() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moetier
