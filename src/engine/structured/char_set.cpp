#include "engine/structured/char_set.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace moetier {
namespace {

constexpr char32_t kLast = 0x10FFFF, kSurrogateFirst = 0xD800, kSurrogateLast = 0xDFFF;

}  // namespace

CharSet CharSet::all() {
  CharSet set;
  set.add(0, kLast);
  set.normalize();
  return set;
}

void CharSet::normalize() {
  std::vector<Range> given;
  for (const Range& r : ranges_) {
    const char32_t last = std::min(r.last, kLast);
    // Cut around the surrogates.
    if (r.first < kSurrogateFirst && r.first <= last)
      given.push_back({r.first, std::min(last, char32_t{kSurrogateFirst - 1})});
    if (last > kSurrogateLast && r.first <= last)
      given.push_back({std::max(r.first, char32_t{kSurrogateLast + 1}), last});
  }
  std::sort(given.begin(), given.end());
  ranges_.clear();
  for (const Range& r : given) {
    if (!ranges_.empty() && r.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, r.last);
    } else {
      ranges_.push_back(r);
    }
  }
}

CharSet CharSet::complement() const {
  CharSet out;
  char32_t next = 0;
  for (const Range& r : ranges_) {
    if (r.first > next) out.add(next, r.first - 1);
    next = r.last + 1;
  }
  if (next <= kLast) out.add(next, kLast);
  out.normalize();
  return out;
}

/// Cuts a range of code points into products of byte ranges: all of the same length, and where a byte may differ, all
/// behind it are free.
void Utf8AutomatonBuilder::split(char32_t first, char32_t last, std::vector<Sequence>& out) {
  for (const char32_t end : {char32_t{0x7F}, char32_t{0x7FF}, char32_t{0xFFFF}}) {
    if (first <= end && last > end) {
      split(first, end, out);
      split(end + 1, last, out);
      return;
    }
  }
  for (int shift = 6; shift <= 18 && last > 0x7F; shift += 6) {
    const char32_t low = (char32_t{1} << shift) - 1;
    if ((first & ~low) == (last & ~low)) break;
    if ((first & low) != 0) {
      split(first, first | low, out);
      split((first | low) + 1, last, out);
      return;
    }
    if ((last & low) != low) {
      split(first, (last & ~low) - 1, out);
      split(last & ~low, last, out);
      return;
    }
  }
  std::string from, to;
  append_utf8(from, first);
  append_utf8(to, last);
  Sequence s{};
  s.bytes = static_cast<int>(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    s.first[i] = static_cast<uint8_t>(from[i]);
    s.last[i] = static_cast<uint8_t>(to[i]);
  }
  out.push_back(s);
}

uint32_t Utf8AutomatonBuilder::intern(std::vector<Edge> edges) {
  const auto [found, fresh] = by_edges_.try_emplace(edges, static_cast<uint32_t>(nodes_.size()));
  if (fresh) {
    if (nodes_.size() >= kMaxNodes) {
      usage_error("the grammar uses too many different characters: it needs more than {} states to read them",
                  kMaxNodes);
    }
    nodes_.push_back(std::move(edges));
  }
  return found->second;
}

/// The node for sequences whose bytes before `at` are read. They come from disjoint ranges, in order: those that share
/// a first byte have the same range of it.
uint32_t Utf8AutomatonBuilder::node(const std::vector<Sequence>& sequences, int at) {
  const auto i = static_cast<size_t>(at);
  std::vector<Edge> edges;
  for (size_t begin = 0; begin < sequences.size();) {
    const Sequence& s = sequences[begin];
    size_t end = begin + 1;
    while (end < sequences.size() && sequences[end].first[i] == s.first[i]) ++end;
    uint32_t target = Utf8Automaton::kAccept;
    if (s.bytes > at + 1) {
      target = node(
          {sequences.begin() + static_cast<ptrdiff_t>(begin), sequences.begin() + static_cast<ptrdiff_t>(end)}, at + 1);
    }
    if (!edges.empty() && edges.back().target == target && edges.back().last + 1 == s.first[i]) {
      edges.back().last = s.last[i];
    } else {
      edges.push_back({s.first[i], s.last[i], target});
    }
    begin = end;
  }
  return intern(std::move(edges));
}

uint32_t Utf8AutomatonBuilder::add(const CharSet& set) {
  if (set.empty()) return Utf8Automaton::kDead;
  const auto known = by_set_.find(set);
  if (known != by_set_.end()) return known->second;
  std::vector<Sequence> sequences;
  for (const CharSet::Range& r : set.ranges()) split(r.first, r.last, sequences);
  const uint32_t begin = node(sequences, 0);
  by_set_.emplace(set, begin);
  return begin;
}

Utf8Automaton Utf8AutomatonBuilder::build() const {
  std::array<bool, 257> border{};
  for (const auto& edges : nodes_) {
    for (const Edge& e : edges) border[e.first] = border[e.last + size_t{1}] = true;
  }
  Utf8Automaton out;
  uint32_t current = 0;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && border[byte]) ++current;
    out.class_of_[byte] = static_cast<uint8_t>(current);
  }
  out.classes_ = current + 1;
  out.table_.assign(nodes_.size() * out.classes_, Utf8Automaton::kDead);
  for (size_t n = 0; n < nodes_.size(); ++n) {
    for (const Edge& e : nodes_[n]) {
      for (size_t c = out.class_of_[e.first]; c <= out.class_of_[e.last]; ++c) {
        out.table_[n * out.classes_ + c] = e.target;
      }
    }
  }
  return out;
}

}  // namespace moetier
