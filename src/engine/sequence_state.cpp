#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/state.h"

namespace moetier {
namespace {
constexpr size_t kReservedPages =
    4096;  // ids a page list has room for from the start, so that growing does not allocate
}  // namespace

struct SequenceState::Checkpoint {
  KvPool* pool = nullptr;
  std::vector<int32_t> pages;
  int64_t length = 0;
  int32_t slot = -1;

  Checkpoint(KvPool* owner, std::vector<int32_t> held, int64_t positions, int32_t state)
      : pool(owner), pages(std::move(held)), length(positions), slot(state) {
    for (const int32_t page : pages) pool->retain(page);
    if (slot >= 0) pool->states().retain(slot);
  }
  ~Checkpoint() {
    for (const int32_t page : pages) pool->release(page);
    if (slot >= 0) pool->states().release(slot);
  }
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;
};

SequenceState::~SequenceState() {
  clear();
}

void SequenceState::clear() noexcept {
  for (const int32_t page : pages_) pool_->release(page);
  pages_.clear();
  while (!kept_.empty()) drop_kept(kept_.size() - 1);
  if (slot_ >= 0) pool_->states().release(slot_);
  slot_ = -1;
  after_prompt_ = false;
  length_ = 0;
}

void SequenceState::drop_kept(size_t index) noexcept {
  pool_->states().release(kept_[index].slot);
  kept_.erase(kept_.begin() + static_cast<ptrdiff_t>(index));
}

/// Sees to it that a slot is free for an append, if need be by forgetting states to which the sequence could be cut
/// back. An error if that is not enough.
void SequenceState::check_slot() {
  // Of those kept, the one before the last append has served, if it stands behind no prompt.
  if (!kept_.empty() && !kept_.back().after_prompt) drop_kept(kept_.size() - 1);
  while (kept_.size() > kKeptPrompts - (after_prompt_ ? 1 : 0)) drop_kept(0);
  while (pool_->states().free() == 0 && !kept_.empty()) drop_kept(0);
  if (pool_->states().free() == 0)
    fail("there is no room for the state of the sequence's recurrent layers: all {} slots are in use",
         pool_->states().capacity());
}

/// A new slot for the state after `rows` more positions; the one before is kept.
void SequenceState::next_slot(int64_t rows) {
  if (slot_ >= 0) kept_.push_back({length_, slot_, after_prompt_});
  slot_ = pool_->states().acquire();  // cannot fail: checked before
  after_prompt_ = rows > 1;
}

/// Goes back to the newest state that is kept at or before `length`, and tells of which position it is.
int64_t SequenceState::cut_state(int64_t length) noexcept {
  pool_->states().release(slot_);
  slot_ = -1;
  after_prompt_ = false;
  while (!kept_.empty() && kept_.back().length > length) drop_kept(kept_.size() - 1);
  if (kept_.empty()) return 0;
  const Kept back = kept_.back();
  kept_.pop_back();  // its reference is ours now
  slot_ = back.slot;
  after_prompt_ = back.after_prompt;
  return back.length;
}

SequenceState::SequenceState(SequenceState&& other) noexcept
    : pool_(other.pool_),
      pages_(std::exchange(other.pages_, {})),
      length_(std::exchange(other.length_, 0)),
      slot_(std::exchange(other.slot_, -1)),
      after_prompt_(std::exchange(other.after_prompt_, false)),
      kept_(std::exchange(other.kept_, {})) {}

SequenceState& SequenceState::operator=(SequenceState&& other) noexcept {
  if (this != &other) {
    clear();
    pool_ = other.pool_;
    pages_ = std::exchange(other.pages_, {});
    length_ = std::exchange(other.length_, 0);
    slot_ = std::exchange(other.slot_, -1);
    after_prompt_ = std::exchange(other.after_prompt_, false);
    kept_ = std::exchange(other.kept_, {});
  }
  return *this;
}

SequenceState SequenceState::fork() const {
  SequenceState child(*pool_);
  child.pages_ = pages_;  // may throw, so before the references
  std::vector<Kept> kept = kept_;
  for (const int32_t page : pages_) pool_->retain(page);
  for (const Kept& k : kept) pool_->states().retain(k.slot);
  if (slot_ >= 0) pool_->states().retain(slot_);
  child.kept_ = std::move(kept);
  child.slot_ = slot_;
  child.after_prompt_ = after_prompt_;
  child.length_ = length_;
  return child;
}

int64_t SequenceState::truncate(int64_t length) {
  if (length < 0 || length > length_) fail("a sequence of {} positions cannot be cut to {}", length_, length);
  if (slot_ >= 0 && length < length_) length = cut_state(length);
  const auto keep = static_cast<size_t>(pages_for(length));
  while (pages_.size() > keep) {
    pool_->release(pages_.back());
    pages_.pop_back();
  }
  length_ = length;
  return length;
}

int64_t SequenceState::append(int64_t n) {
  const int64_t first = length_;
  const int64_t limit = int64_t{pool_->capacity()} * kPagePositions;
  if (n < 0 || n > limit - length_) {
    fail("a sequence of {} positions cannot grow by {}: the KV cache holds {} in all", length_, n, limit);
  }
  if (n == 0) return first;
  const auto want = static_cast<size_t>(pages_for(length_ + n));
  // A partial page that others hold too would be written under their eyes.
  const bool copy = length_ % kPagePositions != 0 && pool_->references(pages_.back()) > 1;
  const size_t missing = want - pages_.size() + (copy ? 1 : 0);
  if (missing > static_cast<size_t>(pool_->free_pages())) {
    fail("the KV cache is full: {} more pages of {} positions are needed and {} of {} are free", missing,
         kPagePositions, pool_->free_pages(), pool_->capacity());
  }
  if (want > pages_.capacity()) {
    const auto most = static_cast<size_t>(pool_->capacity());
    pages_.reserve(std::max({want, pages_.capacity() * 2, std::min(most, kReservedPages)}));
  }
  const bool recurrent = !pool_->states().none();
  if (recurrent) {
    kept_.reserve(kKeptPrompts + 2);
    check_slot();
  }
  if (copy) {
    const int32_t fresh = pool_->acquire();
    try {
      pool_->copy(pages_.back(), fresh);
    } catch (...) {
      pool_->release(fresh);
      throw;
    }
    pool_->release(pages_.back());
    pages_.back() = fresh;
  }
  while (pages_.size() < want) pages_.push_back(pool_->acquire());  // cannot fail: counted above
  if (recurrent) next_slot(n);
  length_ += n;
  return first;
}

std::shared_ptr<const SequenceState::Checkpoint> SequenceState::checkpoint() const {
  return std::make_shared<const Checkpoint>(pool_, pages_, length_, slot_);
}

void SequenceState::rollback(const std::shared_ptr<const Checkpoint>& point) {
  if (point == nullptr) fail("there is no checkpoint to roll back to");
  if (point->pool != pool_)
    fail("the checkpoint belongs to another context's KV cache, so it cannot be rolled back to");
  std::vector<int32_t> pages = point->pages;
  for (const int32_t page : pages) pool_->retain(page);
  const int32_t slot = point->slot;
  if (slot >= 0) pool_->states().retain(slot);
  clear();
  pages_ = std::move(pages);
  length_ = point->length;
  slot_ = slot;
  after_prompt_ = slot >= 0;  // so that it is kept when the sequence goes on
}

}  // namespace moetier
