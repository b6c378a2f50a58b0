// A KV cache of q8_0 in whole models: the same bits everywhere, next to no loss, and states that come back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "compute/cpu/isa.h"
#include "engine/fixtures.h"
#include "engine/sanitized.h"
#include "support/error_of.h"

namespace moetier {
namespace {

using namespace testing_support;

constexpr const char* kModel = "small-qwen3moe-q4_k_m";  // heads of 64

TEST(KvQ8_0, LogitsDoNotDependOnThreadsUbatchOrInstructions) {
  const auto plain = load(kModel, 1, Isa::portable);
  Context first(*plain, small_context(TensorType::q8_0));
  const std::vector<TokenId> tokens = some_tokens(*plain, 150, 4);
  SequenceState state = first.new_sequence();
  const std::vector<float> want = feed(first, state, tokens);
  for (const Isa isa : available_isas()) {
    for (const auto& [threads, ubatch] : {std::pair{1, 1}, {2, 7}, {3, 32}, {8, 512}}) {
      if (kSanitized && threads != 2) continue;
      const auto engine = load(kModel, threads, isa);
      Context context(*engine, small_context(TensorType::q8_0, ubatch));
      SequenceState sequence = context.new_sequence();
      EXPECT_TRUE(same_bits(feed(context, sequence, tokens), want)) << engine->compute().name() << ", " << ubatch;
    }
  }
}

/// The mean Kullback-Leibler divergence of b from a over rows of logits.
double mean_divergence(const std::vector<float>& a, const std::vector<float>& b, size_t vocab) {
  double sum = 0;
  for (size_t row = 0; row < a.size(); row += vocab) {
    const auto log_sum = [&](const std::vector<float>& v) {
      double total = 0;
      for (size_t i = row; i < row + vocab; ++i) total += std::exp(static_cast<double>(v[i]));
      return std::log(total);
    };
    const double la = log_sum(a), lb = log_sum(b);
    for (size_t i = row; i < row + vocab; ++i) {
      const double pa = static_cast<double>(a[i]) - la, pb = static_cast<double>(b[i]) - lb;
      sum += std::exp(pa) * (pa - pb);
    }
  }
  return sum / static_cast<double>(a.size() / vocab);
}

TEST(KvQ8_0, StaysNearF16OnTheDemoModel) {
  EngineOptions options;
  options.cpu.threads = 2;
  const auto engine = Engine::load(std::string(MOETIER_SOURCE_DIR) + "/models/fairytale-moe-q8_0.gguf", options);
  const std::vector<TokenId> tokens = some_tokens(*engine, 200, 1);
  const auto logits = [&](TensorType type) {
    Context context(*engine, small_context(type));
    SequenceState sequence = context.new_sequence();
    return feed(context, sequence, tokens);
  };
  const std::vector<float> half = logits(TensorType::f16), eighth = logits(TensorType::q8_0);
  const auto vocab = static_cast<size_t>(engine->model().hparams().vocab);
  const double divergence = mean_divergence(half, eighth, vocab);
  RecordProperty("divergence", std::to_string(divergence));
  EXPECT_GT(divergence, 0);
  EXPECT_LT(divergence, 1e-3);  // measured: 4.0e-4, with tokens drawn at random
}

TEST(KvQ8_0, SavedForkedAndRolledBackStatesGoOnAlike) {
  const auto engine = load(kModel, 2);
  Context context(*engine, small_context(TensorType::q8_0, 512, 4));
  const std::vector<TokenId> tokens = some_tokens(*engine, 100, 2), more = some_tokens(*engine, 10, 3);
  SequenceState sequence = context.new_sequence();
  feed(context, sequence, tokens);
  const std::string saved = sequence.save();
  EXPECT_EQ(saved.size(), sequence.saved_bytes());
  const auto point = sequence.checkpoint();
  SequenceState twin = sequence.fork();
  const std::vector<float> want = feed(context, sequence, more);
  EXPECT_TRUE(same_bits(feed(context, twin, more), want));
  sequence.rollback(point);
  EXPECT_TRUE(same_bits(feed(context, sequence, more), want));
  Context other(*engine, small_context(TensorType::q8_0, 7));
  SequenceState loaded = other.new_sequence();
  loaded.load(saved);
  EXPECT_EQ(loaded.save(), saved);
  EXPECT_TRUE(same_bits(feed(other, loaded, more), want));
  Context half(*engine, small_context(TensorType::f16));
  SequenceState wrong = half.new_sequence();
  EXPECT_THAT(error_of([&] { wrong.load(saved); }), testing::HasSubstr("holds q8_0"));
}

TEST(KvQ8_0, TakesAboutHalfOfF16) {
  const auto engine = load(kModel);
  const HParams& h = engine->model().hparams();
  EXPECT_EQ(KvPool::page_bytes(h, TensorType::q8_0) * 32, KvPool::page_bytes(h, TensorType::f16) * 17);
}

TEST(KvQ8_0, RefusesHeadsThatAreNotWholeBlocks) {
  const auto engine = load("mini-qwen3moe-q8_0");  // heads of 16
  EXPECT_THAT(error_of([&] { Context context(*engine, small_context(TensorType::q8_0)); }),
              testing::AllOf(testing::HasSubstr("multiples of 32"), testing::HasSubstr("16")));
}

}  // namespace
}  // namespace moetier
