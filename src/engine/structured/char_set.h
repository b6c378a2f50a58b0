// Sets of characters, and the automaton that reads their UTF-8 byte by byte.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace moetier {

/// Code points as sorted ranges that neither touch nor overlap.
class CharSet {
 public:
  struct Range {
    char32_t first = 0, last = 0;  ///< both included
    auto operator<=>(const Range&) const = default;
  };

  /// Every character that UTF-8 can write.
  static CharSet all();
  /// Ranges are added in any order and may overlap; normalize() must follow.
  void add(char32_t first, char32_t last) { ranges_.push_back({first, last}); }
  /// Sorts, merges, and drops what UTF-8 can't write (surrogates, beyond U+10FFFF).
  void normalize();
  /// All other characters. The set must be normalized.
  CharSet complement() const;
  const std::vector<Range>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  auto operator<=>(const CharSet&) const = default;

 private:
  std::vector<Range> ranges_;
};

/// One automaton for many sets: reading a byte leads from a node to another one, to kAccept (a character of the set is
/// whole) or to kDead. Bytes that no node tells apart share a class.
class Utf8Automaton {
 public:
  static constexpr uint32_t kDead = 0, kAccept = 1;  ///< nodes too, with nothing behind them

  uint32_t step(uint32_t node, uint32_t byte_class) const { return table_[node * classes_ + byte_class]; }
  uint32_t byte_class(uint8_t byte) const { return class_of_[byte]; }
  uint32_t classes() const { return classes_; }

 private:
  friend class Utf8AutomatonBuilder;
  std::array<uint8_t, 256> class_of_{};
  uint32_t classes_ = 1;
  std::vector<uint32_t> table_;  // [node][class]
};

class Utf8AutomatonBuilder {
 public:
  static constexpr size_t kMaxNodes = 40'000;

  Utf8AutomatonBuilder() : nodes_(2) {}
  /// The node where reading a character of the set begins; the same for equal sets, kDead for an empty one. A usage
  /// error if there come to be more than kMaxNodes.
  uint32_t add(const CharSet& set);
  Utf8Automaton build() const;

 private:
  struct Edge {
    uint8_t first, last;
    uint32_t target;
    auto operator<=>(const Edge&) const = default;
  };
  /// What is left to read of some characters: a range for each byte.
  struct Sequence {
    std::array<uint8_t, 4> first, last;
    int bytes;
  };
  static void split(char32_t first, char32_t last, std::vector<Sequence>& out);
  uint32_t node(const std::vector<Sequence>& sequences, int at);
  uint32_t intern(std::vector<Edge> edges);

  std::vector<std::vector<Edge>> nodes_;
  std::map<std::vector<Edge>, uint32_t> by_edges_;
  std::map<CharSet, uint32_t> by_set_;
};

}  // namespace moetier
