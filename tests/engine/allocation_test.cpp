// In steady state a token allocates nothing.
#include <gtest/gtest.h>

#include "engine/fixtures.h"
#include "engine/sampler.h"
#include "support/allocations.h"

namespace moetier {
namespace {

using namespace testing_support;

TEST(Allocation, ATokenAllocatesNothing) {
  for (const char* model : {"mini-qwen3moe-q8_0", "small-qwen3moe-q4_k_m", "mini-qwen2moe-f32", "mini-qwen3-f32",
                            "mini-deepseek2-q5_0", "mini-qwen3next-q8_0", "mini-lfm2moe-q8_0",
                            "mini-nemotron_h_moe-q8_0", "mini-deepseek4-q5_0", "mini-gpt-oss-mxfp4_moe",
                            "mini-gemma4-q8_0", "mini-llama4-q8_0", "mini-bailingmoe3-q5_0", "mini-qwen35moe-q4_0"}) {
    const auto engine = load(model, 2);
    ContextOptions shape = small_context(TensorType::f16, 32);
    shape.context = 512;
    Context context(*engine, shape);
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
    // The penalties' window fills, tokens are seen for the first time, and attention begins to split the context.
    for (int i = 0; i < 300; ++i) step();
    const int64_t before = allocations();
    for (int i = 0; i < 100; ++i) step();  // over two pages' borders
    EXPECT_EQ(allocations() - before, 0) << model;
  }
}

TEST(Allocation, TheCounterCounts) {
  const int64_t before = allocations();
  const std::vector<int> some(100, 1);
  EXPECT_EQ(some.back(), 1);
  EXPECT_GT(allocations(), before);
}

}  // namespace
}  // namespace moetier
