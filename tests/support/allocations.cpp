#include "support/allocations.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> count{0};

void* counted(size_t bytes) noexcept {
  count.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes == 0 ? 1 : bytes);
}

void* counted_or_throw(size_t bytes) {
  if (void* p = counted(bytes)) return p;
  throw std::bad_alloc();
}

}  // namespace

namespace moetier::testing_support {

int64_t allocations() {
  return count.load(std::memory_order_relaxed);
}

}  // namespace moetier::testing_support

// All forms without an alignment, so that none meets a sanitizer's other half.
void* operator new(size_t bytes) {
  return counted_or_throw(bytes);
}
void* operator new[](size_t bytes) {
  return counted_or_throw(bytes);
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return counted(bytes);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return counted(bytes);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete[](void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, size_t) noexcept {
  std::free(p);
}
void operator delete(void* p, const std::nothrow_t&) noexcept {
  std::free(p);
}
void operator delete[](void* p, const std::nothrow_t&) noexcept {
  std::free(p);
}
