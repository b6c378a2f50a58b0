// What a cache table keeps of every entry, and how an entry comes and goes. Of the table's own use.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "experts/cache_table.h"

namespace moetier {

inline constexpr int kUnknown = -2, kNone = -1;

struct Entry {
  uint64_t slot = 0;
  uint64_t stamp = 0;  ///< of the last visit that picked it
  bool held = false, of_profile = false, was_read = false;
};

class TableState : public CacheView {
 public:
  TableState(std::vector<LayerShape> shapes, std::unique_ptr<Policy> its_policy, std::unique_ptr<Slots> its_slots);

  Entry& at(int layer, int expert) { return entries_[static_cast<size_t>(id(layer, expert))]; }
  const Entry& at(int layer, int expert) const { return entries_[static_cast<size_t>(id(layer, expert))]; }
  int32_t id(int layer, int expert) const { return base_[static_cast<size_t>(layer)] + expert; }
  int layer_of(int32_t id) const;
  int expert_of(int32_t id) const { return id - base_[static_cast<size_t>(layer_of(id))]; }

  bool holds(int layer, int expert) const override;
  int held_in(int layer) const override { return held_by_layer[static_cast<size_t>(layer)]; }
  int64_t free_slots(int layer) const override { return slots->free_count(slots->class_of(layer)); }
  bool same_size(int layer, int other) const override { return slots->class_of(layer) == slots->class_of(other); }

  double worth(int layer, int expert) const {
    return policy->worth(layer, policy->keys(layer)[static_cast<size_t>(expert)]);
  }
  /// The entry of a layer that goes first, kNone if none may.
  int coldest(int layer);
  /// The layer of a size class whose coldest has the lowest value, kNone if none may go.
  int coldest_layer(int size_class);

  bool take(int layer, int expert);    ///< a free slot
  void unhold(int layer, int expert);  ///< its slot is no longer its own
  void drop(int layer, int expert);    ///< gives its slot back
  void evict(int layer, int expert);
  /// An extent of another class for a picked entry's, if all that must go there is worth less than what would go here.
  /// (In pieces, also if nothing here may go.)
  bool exchange(int layer, int expert);
  void note_moves(std::span<const Relocation> relocations);

  void clear_visit();
  void end_visit();
  void check_budget() const;

  std::vector<LayerShape> layers;
  std::unique_ptr<Policy> policy;
  std::unique_ptr<Slots> slots;
  std::vector<CacheCounters> counters;
  std::vector<int> held_by_layer;
  uint64_t held_bytes = 0;
  Visit visit;
  std::vector<Proposal> proposals;
  int last_layer = -1;
  int64_t last_rows = 0;
  int busy_layer = kNone;  ///< of the visit under way: its picked entries do not go
  uint64_t stamp = 0;      ///< of that visit
  /// A prompt passes a layer in several visits before the next layer: what the layer has read stays until it is
  /// through.
  bool in_pieces = false;
  uint64_t kept_from = 0;  ///< entries of the busy layer with this stamp or a later one do not go

 protected:
  std::vector<int> coldest_;  ///< by layer, kept from miss to miss

 private:
  struct Cold {
    double worth = 0;
    int32_t id = 0;
  };
  bool empty_extent(int from, int64_t evictions, double below);
  void gather(int size_class);

  std::vector<Entry> entries_;
  std::vector<int32_t> base_;      // by layer, and one more
  std::vector<int32_t> layer_of_;  // by entry
  std::vector<std::vector<int>> layers_of_class_;
  std::vector<Cold> cold_;
  std::vector<Relocation> relocations_;
  bool exchanged_ = false;  // in this visit
};

}  // namespace moetier
