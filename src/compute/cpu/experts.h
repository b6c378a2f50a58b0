// The routed experts of a layer on the CPU: gate, up, activation and down of every expert that is ready.
#pragma once

#include <memory>
#include <span>

#include "base/thread_pool.h"
#include "compute/compute.h"
#include "compute/cpu/cpu_compute.h"

namespace moetier {

/// Compute's experts_begin, experts_run and experts_finish on the CPU. Not for several threads at once. Scratch grows
/// to the largest pass seen and stays: without `sums`, per pick of the pass one output row of `columns` floats and one
/// of `width`; with `sums`, for kBatchPicks picks.
class CpuExperts {
 public:
  /// `pool` must outlive this.
  /// `chunk`: weight rows that a thread takes at once; 0 = an equal share for each.
  CpuExperts(ThreadPool& pool, Isa isa, int64_t chunk = kExpertChunk);
  ~CpuExperts();
  CpuExperts(const CpuExperts&) = delete;
  CpuExperts& operator=(const CpuExperts&) = delete;

  /// x f32 [columns, n], weights f32 [top_k, n], sums f32 [columns, n] or empty; all must stay as they are until
  /// finish(). Shapes that do not fit, or a type without kernels, are errors.
  void begin(const ExpertFfn& ffn, const Tensor& x, const Tensor& weights, const Tensor& sums = {});
  /// Computes the picks of these groups. All groups of a call share the threads, so hand over what is ready at once.
  void run(std::span<const ExpertGroup> groups, ExpertStage stage = ExpertStage::whole);
  /// ids i32 [top_k, n], out f32 [columns, n]; out may be x, or is the pass's sums. Every pick must have been run.
  void finish(const Tensor& ids, const Tensor& out);
  /// Adds gate and up, and down, as lines of their own; nullptr: no more.
  void profile(OpProfile* profile);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moetier
