#include "experts/slots.h"

#include <algorithm>

#include "base/error.h"

namespace moetier {
namespace {

class ByteSlots final : public Slots {
 public:
  ByteSlots(std::span<const LayerShape> shapes, uint64_t budget) : budget_(budget) {
    for (const LayerShape& shape : shapes) {
      entry_bytes_.push_back(shape.entry_bytes);
      widest_ = std::max(widest_, shape.entry_bytes);
    }
  }
  int classes() const override { return 1; }
  int class_of(int) const override { return 0; }
  std::optional<uint64_t> take(int layer, int32_t) override {
    const uint64_t bytes = entry_bytes_[static_cast<size_t>(layer)];
    if (bytes > budget_ - taken_) return std::nullopt;
    taken_ += bytes;
    ++held_;
    return 0;
  }
  void give_back(int layer, uint64_t) override {
    taken_ -= entry_bytes_[static_cast<size_t>(layer)];
    --held_;
  }
  uint64_t capacity_bytes() const override { return budget_; }
  uint64_t taken_bytes() const override { return taken_; }
  int64_t count() const override { return held_ + free_count(0); }
  int64_t free_count(int) const override {
    return widest_ == 0 ? 0 : static_cast<int64_t>((budget_ - taken_) / widest_);
  }
  int64_t convert_needs(int) const override { return 0; }
  bool convert(int, int, std::vector<Relocation>&) override { return false; }

  void resize(uint64_t budget, std::span<const Owner> hottest_first, std::vector<Relocation>&,
              std::vector<int32_t>& evicted) override {
    budget_ = budget;
    uint64_t kept = 0;
    for (const Owner& owner : hottest_first) {
      const uint64_t bytes = entry_bytes_[static_cast<size_t>(owner.layer)];
      if (bytes <= budget - kept) {
        kept += bytes;
      } else {
        evicted.push_back(owner.owner);
        --held_;
      }
    }
    taken_ = kept;
  }

 private:
  std::vector<uint64_t> entry_bytes_;
  uint64_t budget_, taken_ = 0, widest_ = 0;
  int64_t held_ = 0;
};

}  // namespace

std::unique_ptr<Slots> make_byte_slots(std::span<const LayerShape> shapes, uint64_t budget) {
  return std::make_unique<ByteSlots>(shapes, budget);
}

}  // namespace moetier
