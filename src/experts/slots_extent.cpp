// The arena as extents: each is cut into slots of one size class at a time.
#include <algorithm>

#include "base/error.h"
#include "experts/slot_classes.h"
#include "experts/slots.h"

namespace moetier {
namespace {

constexpr int32_t kFree = -1;

struct Extent {
  int size_class = -1;  // -1: none yet
  int64_t used = 0;
  std::vector<int32_t> owners;  // by slot
};

class ExtentSlots final : public Slots {
 public:
  ExtentSlots(std::span<const LayerShape> shapes, uint64_t budget, uint64_t max_bytes)
      : classes_(shapes), max_bytes_(max_bytes), free_(classes_.slot_bytes.size()), slots_(classes_.slot_bytes.size()) {
    set_capacity(budget);
    if (classes_.extent_bytes == 0) return;
    extents_.resize(all_extents());
    unassigned_ = static_cast<int64_t>(extents_.size());
    reserve();
  }

  int classes() const override { return static_cast<int>(classes_.slot_bytes.size()); }
  int class_of(int layer) const override { return classes_.class_of[static_cast<size_t>(layer)]; }

  std::optional<uint64_t> take(int layer, int32_t owner) override {
    const auto c = static_cast<size_t>(class_of(layer));
    if (free_[c].empty() && !give_extent(c)) return std::nullopt;
    const uint64_t slot = free_[c].back();
    free_[c].pop_back();
    own(c, slot, owner);
    taken_ += classes_.slot_bytes[c];
    return slot;
  }

  void give_back(int layer, uint64_t slot) override {
    const auto c = static_cast<size_t>(class_of(layer));
    disown(c, slot);
    free_[c].push_back(slot);
    taken_ -= classes_.slot_bytes[c];
  }

  uint64_t capacity_bytes() const override { return capacity_; }
  uint64_t taken_bytes() const override { return taken_; }

  int64_t count() const override {
    int64_t n = 0;
    for (const int64_t s : slots_) n += s;
    for (size_t i = 0; i < extents_.size(); ++i) {  // those without a class count as the widest
      if (extents_[i].size_class < 0 && !classes_.slot_bytes.empty()) n += slots_in(i, 0);
    }
    return n;
  }

  int64_t free_count(int size_class) const override {
    const auto c = static_cast<size_t>(size_class);
    auto n = static_cast<int64_t>(free_[c].size());
    for (size_t i = 0; i < extents_.size() && unassigned_ > 0; ++i) {
      if (extents_[i].size_class < 0) n += slots_in(i, c);
    }
    return n;
  }

  int64_t convert_needs(int from) const override {
    const auto c = static_cast<size_t>(from);
    const int64_t whole = static_cast<int64_t>(classes_.extent_bytes / classes_.slot_bytes[c]);
    return std::min(whole, slots_[c]);
  }

  bool convert(int from, int to, std::vector<Relocation>& relocations) override {
    const auto c = static_cast<size_t>(from);
    size_t best = extents_.size();
    for (size_t i = 0; i < extents_.size(); ++i) {
      if (extents_[i].size_class != from || slots_in(i, static_cast<size_t>(to)) == 0) continue;
      if (best == extents_.size() || extents_[i].used < extents_[best].used) best = i;
    }
    if (best == extents_.size()) return false;
    const int64_t elsewhere = static_cast<int64_t>(free_[c].size()) -
                              (static_cast<int64_t>(extents_[best].owners.size()) - extents_[best].used);
    if (elsewhere < extents_[best].used) return false;
    empty(best, relocations);
    unassign(best);
    assign(best, static_cast<size_t>(to));
    return true;
  }

  void resize(uint64_t budget, std::span<const Owner> hottest_first, std::vector<Relocation>& relocations,
              std::vector<int32_t>& evicted) override;

 private:
  void set_capacity(uint64_t budget) {
    const uint64_t extent = classes_.extent_bytes;
    if (extent == 0) return;
    capacity_ = std::min(budget, max_bytes_);
    const uint64_t smallest = classes_.slot_bytes.back();
    uint64_t whole = capacity_ / extent;
    tail_ = capacity_ % extent;
    if (tail_ < smallest) tail_ = 0;
    // More than the bank needs is never used.
    uint64_t most = 0;
    for (size_t c = 0; c < classes_.slot_bytes.size(); ++c) {
      const uint64_t in_extent = extent / classes_.slot_bytes[c];
      most += (classes_.bank_slots[c] + in_extent - 1) / in_extent;
    }
    if (whole >= most) {
      whole = most;
      tail_ = 0;
    }
    capacity_ = whole * extent + tail_;
  }
  /// So that slots come and go, and extents change their class, without an allocation.
  void reserve() {
    for (Extent& e : extents_) e.owners.reserve(classes_.extent_bytes / classes_.slot_bytes.back());
    for (size_t c = 0; c < free_.size(); ++c)
      free_[c].reserve(extents_.size() * (classes_.extent_bytes / classes_.slot_bytes[c]));
  }
  size_t whole_extents() const { return static_cast<size_t>(capacity_ / classes_.extent_bytes); }
  size_t all_extents() const { return whole_extents() + (tail_ > 0 ? 1 : 0); }

  int64_t slots_in(size_t extent, size_t c) const {
    const uint64_t bytes = extent == whole_extents() ? tail_ : classes_.extent_bytes;
    return static_cast<int64_t>(bytes / classes_.slot_bytes[c]);
  }
  uint64_t offset(size_t extent, size_t c, size_t index) const {
    return extent * classes_.extent_bytes + index * classes_.slot_bytes[c];
  }
  /// The owner of a slot that the class has.
  int32_t& owner_of(size_t c, uint64_t slot) {
    const size_t extent = slot / classes_.extent_bytes, index = slot % classes_.extent_bytes / classes_.slot_bytes[c];
    if (extent >= extents_.size() || extents_[extent].size_class != static_cast<int>(c) ||
        index >= extents_[extent].owners.size())
      fail("there is no slot at byte {} of the cache; this is a fault of the program", slot);
    return extents_[extent].owners[index];
  }
  void own(size_t c, uint64_t slot, int32_t owner) {
    int32_t& place = owner_of(c, slot);
    if (place != kFree) fail("a slot was given twice; this is a fault of the program");
    place = owner;
    ++extents_[slot / classes_.extent_bytes].used;
  }
  void disown(size_t c, uint64_t slot) {
    int32_t& place = owner_of(c, slot);
    if (place == kFree) fail("a slot was given back that nobody holds; this is a fault of the program");
    place = kFree;
    --extents_[slot / classes_.extent_bytes].used;
  }

  /// The next extent without a class; the shorter last one only when no other is left.
  bool give_extent(size_t c) {
    if (unassigned_ == 0) return false;
    for (size_t i = 0; i < extents_.size(); ++i) {
      if (extents_[i].size_class >= 0 || slots_in(i, c) == 0) continue;
      assign(i, c);
      return true;
    }
    return false;
  }

  void assign(size_t i, size_t c) {
    const int64_t n = slots_in(i, c);
    extents_[i].size_class = static_cast<int>(c);
    extents_[i].used = 0;
    extents_[i].owners.assign(static_cast<size_t>(n), kFree);
    --unassigned_;
    slots_[c] += n;
    for (size_t k = static_cast<size_t>(n); k-- > 0;) free_[c].push_back(offset(i, c, k));
  }

  /// An empty extent has no class any more.
  void unassign(size_t i) {
    const auto c = static_cast<size_t>(extents_[i].size_class);
    const uint64_t begin = i * classes_.extent_bytes, end = begin + classes_.extent_bytes;
    std::erase_if(free_[c], [&](uint64_t slot) { return slot >= begin && slot < end; });
    slots_[c] -= static_cast<int64_t>(extents_[i].owners.size());
    extents_[i].size_class = -1;
    extents_[i].used = 0;
    extents_[i].owners.clear();
    ++unassigned_;
  }

  /// Moves what an extent holds to free slots of its class in other extents, of which there must be enough.
  void empty(size_t i, std::vector<Relocation>& relocations) {
    const auto c = static_cast<size_t>(extents_[i].size_class);
    const uint64_t begin = i * classes_.extent_bytes, end = begin + classes_.extent_bytes;
    size_t at = free_[c].size();
    for (size_t k = 0; k < extents_[i].owners.size(); ++k) {
      const int32_t owner = extents_[i].owners[k];
      if (owner == kFree) continue;
      do {
        if (at == 0) fail("an extent of the cache cannot be emptied; this is a fault of the program");
        --at;
      } while (free_[c][at] >= begin && free_[c][at] < end);
      const uint64_t from = offset(i, c, k), to = free_[c][at];
      relocations.push_back({owner, from, to, classes_.slot_bytes[c]});
      own(c, to, owner);
      disown(c, from);
      free_[c][at] = from;
    }
  }

  std::vector<int64_t> keep_what_fits(std::span<const Owner> hottest_first, std::vector<int32_t>& evicted);
  std::vector<int> choose_classes(const std::vector<int64_t>& wanted, size_t whole, std::vector<size_t>& order) const;
  void lay_out(const std::vector<Extent>& before, size_t c, std::vector<Relocation>& relocations);

  SlotClasses classes_;
  uint64_t max_bytes_, capacity_ = 0, tail_ = 0, taken_ = 0;
  std::vector<Extent> extents_;
  int64_t unassigned_ = 0;
  std::vector<std::vector<uint64_t>> free_;  // by class
  std::vector<int64_t> slots_;               // by class
};

/// Walks the owners from the hottest and gives back the slots of those who find no room in the new extents. The result:
/// whole extents that each class needs.
std::vector<int64_t> ExtentSlots::keep_what_fits(std::span<const Owner> hottest_first, std::vector<int32_t>& evicted) {
  const auto whole = static_cast<int64_t>(whole_extents());
  std::vector<int64_t> extents(slots_.size(), 0), room(slots_.size(), 0);
  if (tail_ > 0) {
    const int c = extents_[static_cast<size_t>(whole)].size_class;
    if (c >= 0) room[static_cast<size_t>(c)] = slots_in(static_cast<size_t>(whole), static_cast<size_t>(c));
  }
  int64_t left = whole;
  for (const Owner& owner : hottest_first) {
    const auto c = static_cast<size_t>(class_of(owner.layer));
    if (room[c] == 0 && left > 0) {
      --left;
      ++extents[c];
      room[c] = static_cast<int64_t>(classes_.extent_bytes / classes_.slot_bytes[c]);
    }
    if (room[c] > 0) {
      --room[c];
      continue;
    }
    disown(c, owner.slot);
    taken_ -= classes_.slot_bytes[c];
    evicted.push_back(owner.owner);
  }
  return extents;
}

/// Which class each of the new extents has. `order`: first the classes that get no extent, then those that do: what the
/// former give away is empty by then.
std::vector<int> ExtentSlots::choose_classes(const std::vector<int64_t>& wanted, size_t whole,
                                             std::vector<size_t>& order) const {
  std::vector<int> chosen(whole + (tail_ > 0 ? 1 : 0));
  std::vector<int64_t> has(wanted.size(), 0);
  std::vector<size_t> spare;
  for (size_t i = 0; i < chosen.size(); ++i) {
    chosen[i] = extents_[i].size_class;
    if (i >= whole) continue;
    if (chosen[i] < 0) {
      spare.push_back(i);
    } else {
      ++has[static_cast<size_t>(chosen[i])];
    }
  }
  std::vector<size_t> emptiest;
  for (size_t i = 0; i < whole; ++i) {
    if (chosen[i] >= 0) emptiest.push_back(i);
  }
  std::ranges::stable_sort(emptiest, [&](size_t a, size_t b) { return extents_[a].used < extents_[b].used; });
  for (const size_t i : emptiest) {
    const auto c = static_cast<size_t>(chosen[i]);
    if (has[c] <= wanted[c]) continue;
    --has[c];
    spare.push_back(i);
  }
  size_t next = 0;
  for (size_t c = 0; c < wanted.size(); ++c) {
    if (has[c] >= wanted[c]) order.push_back(c);
  }
  for (size_t c = 0; c < wanted.size(); ++c) {
    if (has[c] >= wanted[c]) continue;
    order.push_back(c);
    for (; has[c] < wanted[c]; ++has[c]) chosen[spare[next++]] = static_cast<int>(c);
  }
  return chosen;
}

/// Brings what a class holds into its new extents.
void ExtentSlots::lay_out(const std::vector<Extent>& before, size_t c, std::vector<Relocation>& relocations) {
  std::vector<uint64_t> free;
  slots_[c] = 0;
  for (size_t i = 0; i < extents_.size(); ++i) {
    Extent& e = extents_[i];
    if (e.size_class != static_cast<int>(c)) continue;
    const bool same = i < before.size() && before[i].size_class == e.size_class;
    e.owners.assign(static_cast<size_t>(slots_in(i, c)), kFree);
    if (same)
      std::copy_n(before[i].owners.begin(), std::min(before[i].owners.size(), e.owners.size()), e.owners.begin());
    for (size_t k = 0; k < e.owners.size(); ++k) {
      if (e.owners[k] == kFree) free.push_back(offset(i, c, k));
    }
    e.used = static_cast<int64_t>(e.owners.size()) - std::ranges::count(e.owners, kFree);
    slots_[c] += static_cast<int64_t>(e.owners.size());
  }
  free_[c].assign(free.rbegin(), free.rend());
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i].size_class != static_cast<int>(c)) continue;
    const bool same = i < extents_.size() && extents_[i].size_class == before[i].size_class;
    for (size_t k = same ? extents_[i].owners.size() : 0; k < before[i].owners.size(); ++k) {
      const int32_t owner = before[i].owners[k];
      if (owner == kFree) continue;
      if (free_[c].empty()) fail("a smaller cache has no room for what it keeps; this is a fault of the program");
      const uint64_t to = free_[c].back();
      free_[c].pop_back();
      own(c, to, owner);
      relocations.push_back({owner, offset(i, c, k), to, classes_.slot_bytes[c]});
    }
  }
}

void ExtentSlots::resize(uint64_t budget, std::span<const Owner> hottest_first, std::vector<Relocation>& relocations,
                         std::vector<int32_t>& evicted) {
  if (classes_.extent_bytes == 0) return;
  set_capacity(budget);
  const size_t now = all_extents();
  if (now > extents_.size()) extents_.resize(now);  // what is cut off stays until all has been moved out of it
  const std::vector<int64_t> wanted = keep_what_fits(hottest_first, evicted);
  std::vector<size_t> order;
  const std::vector<int> chosen = choose_classes(wanted, whole_extents(), order);
  const std::vector<Extent> before = extents_;
  extents_.resize(now);
  for (size_t i = 0; i < now; ++i) {
    extents_[i].size_class = chosen[i];
    if (chosen[i] >= 0 && slots_in(i, static_cast<size_t>(chosen[i])) == 0) extents_[i].size_class = -1;
    extents_[i].owners.clear();
    extents_[i].used = 0;
  }
  for (const size_t c : order) lay_out(before, c, relocations);
  unassigned_ = std::ranges::count(extents_, -1, &Extent::size_class);
  reserve();
}

}  // namespace

std::unique_ptr<Slots> make_extent_slots(std::span<const LayerShape> shapes, uint64_t budget, uint64_t max_bytes) {
  return std::make_unique<ExtentSlots>(shapes, budget, max_bytes);
}

uint64_t whole_bank_bytes(std::span<const LayerShape> shapes) {
  const SlotClasses classes(shapes);
  uint64_t bytes = 0;
  for (size_t c = 0; c < classes.slot_bytes.size(); ++c) {
    const uint64_t in_extent = classes.extent_bytes / classes.slot_bytes[c];
    bytes += (classes.bank_slots[c] + in_extent - 1) / in_extent * classes.extent_bytes;
  }
  return bytes;
}

}  // namespace moetier
