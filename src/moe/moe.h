// The MoE operation: router logits -> picks -> fetch -> experts as they become ready -> weighted sum.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "compute/compute.h"
#include "experts/store.h"

namespace moetier {

/// Factors of each expert's products, as NVFP4 files have them; empty = none.
struct ExpertScales {
  std::vector<float> gate, up, down;
};

/// One MoE layer as a model describes it.
struct MoeLayer {
  int layer = 0;               ///< the model's layer number: the store's key
  Tensor router;               ///< [columns, experts]
  Tensor router_bias = {};     ///< f32 [experts], optional
  Tensor selection_bias = {};  ///< f32 [experts], optional
  RouteParams route;
  ExpertFfn ffn;
  ExpertScales scales = {};  ///< [experts] each; not for fused gate and up
};

/// What a layer's router chose, before anything is fetched.
struct RoutedPicks {
  int layer = 0;  ///< the model's layer number
  int64_t rows = 0;
  std::span<const int32_t> ids;      ///< [top_k x rows]
  std::span<const float> weights;    ///< of each pick
  std::span<const uint8_t> dropped;  ///< of each pick: 1 if drop_cold() leaves it out; empty if none is
};
/// Called after routing and before the fetch: for traces and tests.
using PickObserver = void (*)(void* user, const RoutedPicks& picks);

/// Called with the picks that will be computed: without those that drop_cold() leaves out.
using UseObserver = void (*)(void* user, int layer, std::span<const int32_t> ids);

/// Puts other picks in place of the router's, [top_k x rows] as above: for replaying what was recorded elsewhere. Ids
/// must be of the layer's experts.
using PickSource = void (*)(void* user, int layer, std::span<int32_t> ids, std::span<float> weights, int64_t rows);

/// Called with what the next MoE layer's router would choose on this layer's router input: `layer` is that next layer,
/// ids are [width x rows], best first. A layer is guessed for from the second time on that it runs.
using GuessObserver = void (*)(void* user, int layer, int64_t rows, std::span<const int32_t> ids);

class NextRouter;

/// Owns the scratch for picks, allocated once. Not thread-safe: one per context.
class MoeOperation {
 public:
  /// Sized for `max_rows` rows of `max_experts` experts and `max_top_k` picks. Both must outlive it.
  MoeOperation(Compute& compute, ExpertStore& store, int64_t max_rows, int max_experts, int max_top_k);
  ~MoeOperation();
  /// out [columns, n] = experts(x [columns, n]); out must not overlap x. Errors name the layer: more rows, experts or
  /// picks than it was sized for, or a description that does not match the store's entries.
  void run(const MoeLayer& layer, const Tensor& x, const Tensor& out) { run(layer, x, x, out); }
  /// The same with a router that sees another input than the experts.
  void run(const MoeLayer& layer, const Tensor& x, const Tensor& router_in, const Tensor& out) {
    run(layer, x, router_in, out, {});
  }
  /// The same with picks i32 [top_k, n] that do not come from the router, but are weighed by it.
  void run(const MoeLayer& layer, const Tensor& x, const Tensor& router_in, const Tensor& out, const Tensor& chosen);
  /// More rows than before, if need be. Not during run().
  void reserve(int64_t max_rows);
  /// Once `*flag` is true, run() throws Cancelled at the next entry that is ready, whatever is still being read;
  /// nullptr (as at first): never.
  void cancel_on(const std::atomic<bool>* flag);
  void observe(PickObserver observer, void* user);
  void observe_use(UseObserver observer, void* user);
  void replace_picks(PickSource source, void* user);
  /// `width` guesses for each row (at most as many as a layer has experts), at the cost of a second router in each
  /// layer; nullptr ends it.
  void observe_guesses(GuessObserver observer, void* user, int width);
  /// Lossy: in calls of one row, a pick that the store does not hold is left out if its weight is below `share` of the
  /// row's mean weight (its sum / top_k); the row's heaviest pick stays, and the others' weights grow so that their sum
  /// stays the same. 0 = off.
  void drop_cold(float share);
  float drop_share() const;
  struct Meters {
    double wait_seconds = 0;     ///< asking for entries and waiting for them
    double compute_seconds = 0;  ///< computing experts
    uint64_t picks = 0;          ///< (row, expert) pairs that the router chose
    uint64_t dropped = 0;        ///< of them left out by drop_cold()
  };
  const Meters& meters() const;
  void reset_meters();
  /// Bytes of scratch it holds.
  uint64_t scratch_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moetier
