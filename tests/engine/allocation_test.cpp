// In steady state a token allocates nothing. This file counts every `operator new` of the test program.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/fixtures.h"
#include "engine/sampler.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MOETIER_COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MOETIER_COUNTS_ALLOCATIONS 0
#endif
#endif
#ifndef MOETIER_COUNTS_ALLOCATIONS
#define MOETIER_COUNTS_ALLOCATIONS 1
#endif

#if MOETIER_COUNTS_ALLOCATIONS

namespace {
std::atomic<int64_t> g_allocations{0};

void* counted(size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  void* p = std::malloc(bytes == 0 ? 1 : bytes);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
}  // namespace

void* operator new(size_t bytes) {
  return counted(bytes);
}
void* operator new[](size_t bytes) {
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

namespace moetier {
namespace {

using namespace testing_support;

TEST(Allocation, ATokenAllocatesNothing) {
  for (const char* model : {"mini-qwen3moe-q8_0", "small-qwen3moe-q4_k_m", "mini-qwen2moe-f32", "mini-qwen3-f32"}) {
    const auto engine = load(model, 2);
    Context context(*engine, small_context(TensorType::f16, 32));
    SequenceState sequence = context.new_sequence();
    SamplerOptions options;
    options.repeat_penalty = 1.1f;
    Sampler sampler(options);
    std::vector<BatchRow> prompt;
    for (const TokenId t : some_tokens(*engine, 40, 1)) prompt.push_back({t, &sequence, false});
    prompt.back().want_logits = true;
    context.decode(prompt);
    const auto step = [&] {
      const TokenId token = sampler.sample(context.logits(0));
      sampler.accept(token);
      const BatchRow row{token, &sequence, true};
      context.decode({&row, 1});
    };
    for (int i = 0; i < 100; ++i) step();  // the penalties' window fills, and tokens are seen for the first time
    const int64_t before = g_allocations.load();
    for (int i = 0; i < 100; ++i) step();  // over a page's border
    EXPECT_EQ(g_allocations.load() - before, 0) << model;
  }
}

TEST(Allocation, TheCounterCounts) {
  const int64_t before = g_allocations.load();
  const std::vector<int> some(100, 1);
  EXPECT_EQ(some.back(), 1);
  EXPECT_GT(g_allocations.load(), before);
}

}  // namespace
}  // namespace moetier

#else

TEST(Allocation, ATokenAllocatesNothing) {
  GTEST_SKIP() << "a sanitizer keeps the allocator to itself.";
}

#endif
