// Which entries a tier holds, in which slots, and which give way: the whole bookkeeping of a cache. No byte moves here,
// so the engine's store and the simulator run this very code and count alike.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "experts/layer_shape.h"
#include "experts/policy.h"
#include "experts/slots.h"

namespace moetier {

enum class Outcome : uint8_t {
  hit,       ///< it is in its slot
  admitted,  ///< it has been given a slot, and its bytes must be read there
  bypassed,  ///< it gets no slot: compute it from a slot in transit
};
struct Placement {
  int32_t expert = 0;
  Outcome outcome = Outcome::hit;
  uint64_t slot = 0;  ///< byte offset in the arena; not for bypassed
};
/// An entry that a policy brings in between tokens, or that a profile puts there: to be read into its slot.
struct Fill {
  int32_t layer = 0, expert = 0;
  uint64_t slot = 0;
};
/// Bytes to be copied within the arena, in order, before anything is read: an extent changes its size class.
struct Move {
  uint64_t from = 0, to = 0, bytes = 0;
};
/// What must be done for a visit, in this order: moves, fills, placements.
struct Visit {
  std::vector<Move> moves;
  std::vector<Fill> fills;            ///< only at the beginning of a token
  std::vector<Placement> placements;  ///< distinct experts, ascending
};

/// Per layer; sums make the total. Counts distinct experts per visit.
struct CacheCounters {
  uint64_t hits = 0, misses = 0;          ///< visits of up to kSmallRows rows
  uint64_t few_hits = 0, few_misses = 0;  ///< of them: visits of up to kFewRows rows
  uint64_t hits_profile = 0;              ///< of hits: put there by the profile and never evicted since
  uint64_t copies = 0, copy_bytes = 0;    ///< hits of larger visits
  uint64_t large_misses = 0;              ///< misses of larger visits
  uint64_t evictions = 0;
  uint64_t rereads = 0;     ///< misses of entries that had been read before
  uint64_t swaps = 0;       ///< fills by the policy
  uint64_t miss_bytes = 0;  ///< payload of all misses and swaps
  CacheCounters& operator+=(const CacheCounters& other);
};

class CacheTable {
 public:
  CacheTable(std::vector<LayerShape> layers, std::unique_ptr<Policy> policy, std::unique_ptr<Slots> slots);
  ~CacheTable();

  /// Decides where each distinct expert among `picks` (ids, [top_k x rows] in pick order) comes from. The result is
  /// valid until the next call. Entries of the visit are not evicted before end_visit(). A token begins where the layer
  /// number falls. Where a layer is visited again at once, a prompt passes in pieces, layer by layer: until it has
  /// passed the last layer, entries are admitted over all that may give way, and those of a layer stay until the next
  /// layer, so that each is read once. Allocates nothing in steady state.
  const Visit& visit(int layer, std::span<const int32_t> picks, int64_t rows);
  void end_visit();
  /// The bytes of an admitted or filled entry did not come: it is not held. During or after the visit.
  void forget(int layer, int expert);

  /// Puts entries in slots, hottest first, each layer class until it is full. Once, before the first visit.
  const Visit& prefill(std::span<const std::pair<int, int>> hottest_first);
  /// Changes what slots may take and evicts at once. Not during a visit. The result has moves only.
  const Visit& resize(uint64_t bytes);
  /// At most `max_swaps` swaps of the policy now; not during a visit. The result has fills (and moves).
  const Visit& rebalance(int max_swaps);

  bool holds(int layer, int expert) const;
  std::vector<int32_t> held(int layer) const;  ///< ascending
  int64_t held_count() const;
  uint64_t held_bytes() const;  ///< payload of what is held
  const Slots& slots() const;
  const Policy& policy() const;
  const CacheCounters& counters(int layer) const;
  CacheCounters counters() const;
  uint64_t prefilled() const;

  /// The most entry bytes that one token (visits of one row) has asked for, and one layer of it.
  uint64_t token_demand_bytes() const;
  uint64_t layer_demand_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moetier
