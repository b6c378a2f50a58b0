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

  Checkpoint(KvPool* owner, std::vector<int32_t> held, int64_t positions)
      : pool(owner), pages(std::move(held)), length(positions) {
    for (const int32_t page : pages) pool->retain(page);
  }
  ~Checkpoint() {
    for (const int32_t page : pages) pool->release(page);
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
  length_ = 0;
}

SequenceState::SequenceState(SequenceState&& other) noexcept
    : pool_(other.pool_), pages_(std::exchange(other.pages_, {})), length_(std::exchange(other.length_, 0)) {}

SequenceState& SequenceState::operator=(SequenceState&& other) noexcept {
  if (this != &other) {
    clear();
    pool_ = other.pool_;
    pages_ = std::exchange(other.pages_, {});
    length_ = std::exchange(other.length_, 0);
  }
  return *this;
}

SequenceState SequenceState::fork() const {
  SequenceState child(*pool_);
  child.pages_ = pages_;  // may throw, so before the references
  for (const int32_t page : pages_) pool_->retain(page);
  child.length_ = length_;
  return child;
}

void SequenceState::truncate(int64_t length) {
  if (length < 0 || length > length_) fail("a sequence of {} positions cannot be cut to {}", length_, length);
  const auto keep = static_cast<size_t>(pages_for(length));
  while (pages_.size() > keep) {
    pool_->release(pages_.back());
    pages_.pop_back();
  }
  length_ = length;
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
  length_ += n;
  return first;
}

std::shared_ptr<const SequenceState::Checkpoint> SequenceState::checkpoint() const {
  return std::make_shared<const Checkpoint>(pool_, pages_, length_);
}

void SequenceState::rollback(const std::shared_ptr<const Checkpoint>& point) {
  if (point == nullptr) fail("there is no checkpoint to roll back to");
  if (point->pool != pool_)
    fail("the checkpoint belongs to another context's KV cache, so it cannot be rolled back to");
  std::vector<int32_t> pages = point->pages;
  for (const int32_t page : pages) pool_->retain(page);
  clear();
  pages_ = std::move(pages);
  length_ = point->length;
}

}  // namespace moetier
