// Where in an arena entries lie. No memory is touched here: slots are byte offsets.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "experts/layer_shape.h"

namespace moetier {

/// An entry that must be copied within the arena.
struct Relocation {
  int32_t owner = 0;
  uint64_t from = 0, to = 0, bytes = 0;
};

/// Hands out places for entries within a budget. Layers whose slot sizes lie within 12.5 % share a size class. An owner
/// is the number of an entry, 0 or more.
class Slots {
 public:
  virtual ~Slots() = default;
  virtual int classes() const = 0;
  virtual int class_of(int layer) const = 0;

  /// A free slot for an entry of the layer; nullopt if there is none now.
  virtual std::optional<uint64_t> take(int layer, int32_t owner) = 0;
  virtual void give_back(int layer, uint64_t slot) = 0;

  virtual uint64_t capacity_bytes() const = 0;  ///< of the arena, never above the budget
  virtual uint64_t taken_bytes() const = 0;     ///< of the slots that are taken
  virtual int64_t count() const = 0;            ///< slots there are now, free ones included
  /// Slots that take() could give to layers of the class now.
  virtual int64_t free_count(int size_class) const = 0;

  /// How many slots of `from` must be free for convert(); 0: never possible.
  virtual int64_t convert_needs(int from) const = 0;
  /// Turns an extent of one class into one of another. Appends what must be copied. False, and nothing done, if `from`
  /// has too few free slots.
  virtual bool convert(int from, int to, std::vector<Relocation>& relocations) = 0;

  /// Another budget. `hottest_first`: all owners with their layers. Those for whom there is no room any more are
  /// appended to `evicted` and have no slot; those who must move to `relocations`, to be copied in that order.
  struct Owner {
    int32_t owner = 0;
    int layer = 0;
    uint64_t slot = 0;
  };
  virtual void resize(uint64_t budget, std::span<const Owner> hottest_first, std::vector<Relocation>& relocations,
                      std::vector<int32_t>& evicted) = 0;
};

/// Counts payload only: an entry fits while the sum of entry_bytes keeps to the budget. Slots have no place (0).
std::unique_ptr<Slots> make_byte_slots(std::span<const LayerShape> shapes, uint64_t budget);

/// The arena of an engine: extents of equal size, the last one cut to the budget, each of one size class at a time.
/// Offsets stay below `max_bytes`, also after resize.
std::unique_ptr<Slots> make_extent_slots(std::span<const LayerShape> shapes, uint64_t budget, uint64_t max_bytes);

/// The capacity with which extent slots hold every entry of every layer.
uint64_t whole_bank_bytes(std::span<const LayerShape> shapes);

}  // namespace moetier
