// From a text to the token that is written so.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moetier {

/// Hashes texts with a seed of this process, so that a file can't be made whose tokens all collide.
struct SeededTextHash {
  size_t operator()(std::string_view text) const;
};

/// A hash table over a growing list of texts; a text's number is its place in the list. (Flat: a lookup touches one
/// slot and one text.)
class TokenIndex {
 public:
  /// `texts` must outlive the index and stay where it is; its elements must not change once they are inserted.
  explicit TokenIndex(const std::vector<std::string>& texts) : texts_(texts) {}

  /// Makes room for that many texts.
  void reserve(size_t count);
  /// Enters texts[id]. Returns the number under which the same text already stands, else `id`.
  int32_t insert(int32_t id);
  /// The number of `text`, or -1.
  int32_t find(std::string_view text) const;

 private:
  struct Slot {
    uint32_t tag = 0;  ///< upper half of the hash; the lower half says where to look
    int32_t id = -1;
  };
  size_t slot_of(std::string_view text, size_t hash) const;
  void grow(size_t slots);

  const std::vector<std::string>& texts_;
  std::vector<Slot> slots_;  ///< a power of two, at most half of them taken
  size_t taken_ = 0;
};

}  // namespace moetier
