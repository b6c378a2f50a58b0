// Where in an arena entries lie. No memory is touched here: slots are byte offsets.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace moetier {

/// Hands out places for entries within a budget. Layers whose slot sizes lie within 12.5 % share a size class.
class Slots {
 public:
  virtual ~Slots() = default;
  virtual int classes() const = 0;
  virtual int class_of(int layer) const = 0;
  /// A free slot for an entry of the class; nullopt if there is none now.
  virtual std::optional<uint64_t> take(int size_class) = 0;
  virtual void give_back(int size_class, uint64_t slot) = 0;
  virtual uint64_t capacity_bytes() const = 0;  ///< of all slots, never above the budget
  virtual int64_t count() const = 0;            ///< slots there are now, free ones included
};

}  // namespace moetier
