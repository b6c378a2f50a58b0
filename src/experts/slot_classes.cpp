#include "experts/slot_classes.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace moetier {
namespace {

constexpr uint64_t kMostSlots = 16;           // of the smallest class in an extent
constexpr uint64_t kMostExtent = 256u << 20;  // bytes, unless one slot is longer
constexpr double kLengthCost = 0.001;         // a slot more per extent must save this share of the arena

/// The share of the arena that extents of this length lose, entries weighing by their bytes.
double loss(const SlotClasses& classes, uint64_t extent) {
  double lost = 0, all = 0;
  for (size_t c = 0; c < classes.slot_bytes.size(); ++c) {
    const auto bytes = static_cast<double>(classes.slot_bytes[c]) * static_cast<double>(classes.bank_slots[c]);
    lost += bytes * static_cast<double>(extent % classes.slot_bytes[c]) / static_cast<double>(extent);
    all += bytes;
  }
  return all > 0 ? lost / all : 0;
}

}  // namespace

SlotClasses::SlotClasses(std::span<const LayerShape> shapes) : class_of(shapes.size(), 0) {
  std::vector<size_t> order(shapes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return shapes[a].slot_bytes > shapes[b].slot_bytes; });
  for (const size_t layer : order) {
    const uint64_t bytes = shapes[layer].slot_bytes;
    if (bytes == 0) fail("layer {} has slots of no bytes; this is a fault of the program", layer);
    // The largest of a class is at most 1.125 of its smallest.
    if (slot_bytes.empty() || slot_bytes.back() - bytes > bytes / 8) {
      slot_bytes.push_back(bytes);
      bank_slots.push_back(0);
    }
    class_of[layer] = static_cast<int>(slot_bytes.size()) - 1;
    bank_slots.back() += static_cast<uint64_t>(std::max(shapes[layer].n_expert, 0));
  }
  if (slot_bytes.empty()) return;
  double best = 0;
  const uint64_t longest = std::max(kMostExtent, slot_bytes.front());
  for (const uint64_t slot : slot_bytes) {
    for (uint64_t n = 1; n <= kMostSlots && slot * n <= longest; ++n) {
      const uint64_t extent = slot * n;
      if (extent < slot_bytes.front()) continue;
      const double length = static_cast<double>(extent) / static_cast<double>(slot_bytes.front());
      const double cost = loss(*this, extent) + kLengthCost * length;
      if (extent_bytes != 0 && cost >= best) continue;
      best = cost;
      extent_bytes = extent;
    }
  }
}

}  // namespace moetier
