#include "engine/context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include <limits>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "engine/fixtures.h"
#include "support/error_of.h"

namespace moetier {
namespace {

using namespace testing_support;

class ContextTest : public testing::Test {
 protected:
  std::unique_ptr<Engine> engine = load("mini-qwen3moe-f32");
  Context context{*engine, small_context(TensorType::f32, 16, 2)};
};

TEST_F(ContextTest, EngineTellsWhatItLoaded) {
  EXPECT_EQ(engine->model().hparams().architecture, "qwen3moe");
  EXPECT_TRUE(engine->has_tokenizer());
  ASSERT_NE(engine->store(), nullptr);
  EXPECT_GT(engine->store()->map().total_bytes(), 0u);
  EXPECT_GT(engine->load_seconds(), 0.0);
  EXPECT_NE(context.moe(), nullptr);
  const auto dense = load("mini-qwen3-f32");
  EXPECT_EQ(dense->store(), nullptr);
  Context plain(*dense, small_context());
  EXPECT_EQ(plain.moe(), nullptr);
  EXPECT_EQ(plain.expert_use().total(), 0);
}

TEST_F(ContextTest, LoadErrorsNameTheFile) {
  EXPECT_THAT(error_of([] { Engine::load("/nowhere/m.gguf"); }), testing::HasSubstr("/nowhere/m.gguf"));
  EngineOptions o;
  o.overrides = {"nonsense"};
  EXPECT_THROW(Engine::load(model_path("mini-qwen3moe-f32"), o), Error);
  o.overrides = {"general.architecture=str:warp"};
  EXPECT_THAT(error_of([&] { Engine::load(model_path("mini-qwen3moe-f32"), o); }), testing::HasSubstr("warp"));
}

TEST_F(ContextTest, AnUnreadableVocabularyIsToldWhenItIsWanted) {
  EngineOptions o;
  o.overrides = {"tokenizer.ggml.model=str:runes"};
  const auto odd = Engine::load(model_path("mini-qwen3moe-f32"), o);
  EXPECT_FALSE(odd->has_tokenizer());
  EXPECT_THAT(error_of([&] { odd->tokenizer(); }), testing::HasSubstr("runes"));
  Context c(*odd, small_context());
  SequenceState s = c.new_sequence();
  EXPECT_FALSE(feed(c, s, some_tokens(*odd, 3, 1)).empty());
}

TEST_F(ContextTest, RefusesOptionsOutOfRange) {
  const auto refused = [&](auto change) {
    ContextOptions o;
    change(o);
    EXPECT_THROW(Context(*engine, o), Error);
  };
  refused([](ContextOptions& o) { o.context = -1; });
  refused([](ContextOptions& o) { o.context = int64_t{1} << 40; });
  refused([](ContextOptions& o) { o.sequences = 0; });
  refused([](ContextOptions& o) { o.ubatch = 0; });
  refused([](ContextOptions& o) { o.ubatch = 1 << 20; });
  refused([](ContextOptions& o) { o.group_rows = -1; });
  refused([](ContextOptions& o) { o.kv_type = TensorType::q4_0; });
  refused([](ContextOptions& o) {
    o.context = 1 << 24;
    o.sequences = std::numeric_limits<int>::max();
  });
}

TEST_F(ContextTest, ContextZeroIsTheModelsOwn) {
  Context c(*engine, {});
  EXPECT_EQ(c.options().context, std::min(engine->model().hparams().context_length, kDefaultContext));
}

TEST_F(ContextTest, SaysWhenTheContextIsLongerThanTheModelWasTrainedFor) {
  ContextOptions o = small_context();
  o.context = engine->model().hparams().context_length + 1;
  const Context c(*engine, o);
  EXPECT_THAT(
      log::warnings(),
      testing::Contains(testing::HasSubstr(fmt::format("the context of {} positions is longer than", o.context))));
}

// A file may have recurrent layers only: its pages have no bytes.
TEST_F(ContextTest, AModelWithoutAttentionLayersRuns) {
  EngineOptions o;
  o.overrides = {"qwen3next.block_count=int:1"};  // attention comes later
  const auto recurrent = Engine::load(model_path("mini-qwen3next-f32"), o);
  const HParams& h = recurrent->model().hparams();
  EXPECT_EQ(KvPool::page_bytes(h, TensorType::f16), 0u);
  EXPECT_EQ(default_context(h, TensorType::f16, 1, uint64_t{1} << 30), std::min(h.context_length, kDefaultContext));
  EXPECT_EQ(context_bytes(h, {}, false).kv > 0, true);  // states
  Context c(*recurrent, {});
  SequenceState s = c.new_sequence();
  EXPECT_FALSE(feed(c, s, some_tokens(*recurrent, 70, 1)).empty());
  const std::string saved = s.save();
  SequenceState again = c.new_sequence();
  again.load(saved);
  EXPECT_EQ(feed(c, again, some_tokens(*recurrent, 2, 2)), feed(c, s, some_tokens(*recurrent, 2, 2)));
}

TEST_F(ContextTest, DefaultContextKeepsToAQuarterOfMemory) {
  HParams h = engine->model().hparams();
  h.context_length = 4096;
  const uint64_t page = KvPool::page_bytes(h, TensorType::f16);
  EXPECT_EQ(default_context(h, TensorType::f16, 1, 0), 4096);
  EXPECT_EQ(default_context(h, TensorType::f16, 1, uint64_t{1} << 60), 4096);
  EXPECT_EQ(default_context(h, TensorType::f16, 1, 4 * 10 * page), 640);
  EXPECT_EQ(default_context(h, TensorType::f16, 5, 4 * 10 * page), 128);
  EXPECT_EQ(default_context(h, TensorType::f32, 1, 4 * 10 * page), 320);
  EXPECT_EQ(default_context(h, TensorType::f16, 100, 4 * 10 * page), 64);
  h.context_length = 1 << 20;
  EXPECT_EQ(default_context(h, TensorType::f16, 1, 0), kDefaultContext);
  h.context_length = 0;
  EXPECT_EQ(default_context(h, TensorType::f16, 1, 0), kDefaultContext);
}

TEST_F(ContextTest, AnErrorUndoesTheWholeBatch) {
  SequenceState a = context.new_sequence(), b = context.new_sequence();
  const std::vector<TokenId> tokens = some_tokens(*engine, 40, 1);
  feed(context, a, tokens);
  feed(context, b, std::span(tokens).first(10));
  const std::string before_a = a.save(), before_b = b.save();
  const auto unchanged = [&](const std::vector<BatchRow>& rows, const char* why) {
    EXPECT_THAT(error_of([&] { context.decode(rows); }), testing::HasSubstr(why));
    EXPECT_EQ(a.save(), before_a);
    EXPECT_EQ(b.save(), before_b);
    EXPECT_EQ(context.logits_count(), 0);
    EXPECT_THROW(context.logits(0), Error);
  };
  const auto vocab = static_cast<TokenId>(engine->model().hparams().vocab);
  unchanged({{1, &a, true}, {vocab, &b, true}}, "the vocabulary has");
  unchanged({{1, &a, true}, {-1, &b, true}}, "token -1");
  unchanged({{1, &a, true}, {1, nullptr, true}}, "no sequence");
  Context other(*engine, small_context());
  SequenceState stranger = other.new_sequence();
  unchanged({{1, &a, true}, {1, &stranger, true}}, "another context");
  std::vector<BatchRow> rows(217, BatchRow{1, &a, false});
  unchanged(rows, "the context is full");
  // A fork is a third sequence: the pool has pages for two.
  SequenceState c = a.fork();
  rows.assign(200, BatchRow{1, &a, false});
  rows.insert(rows.end(), 200, BatchRow{1, &b, false});
  rows.insert(rows.end(), 200, BatchRow{1, &c, false});
  unchanged(rows, "the KV cache is full");
  EXPECT_EQ(c.length(), 40);
}

TEST_F(ContextTest, WhatASinkThrowsUndoesTheBatch) {
  SequenceState a = context.new_sequence();
  const std::vector<TokenId> tokens = some_tokens(*engine, 40, 1);
  const std::vector<float> want = feed(context, a, tokens);
  a.truncate(10);
  std::vector<BatchRow> rows;
  for (size_t i = 10; i < 40; ++i) rows.push_back({tokens[i], &a, true});
  EXPECT_THROW(context.decode(rows,
                              [](int64_t index, std::span<const float>) {
                                if (index == 20) fail("enough");
                              }),
               Error);
  EXPECT_EQ(a.length(), 10);
  const std::vector<float> again = feed(context, a, std::span(tokens).subspan(10));
  EXPECT_TRUE(same_bits(again, std::span(want).last(again.size())));
}

TEST_F(ContextTest, AnEmptyBatchDoesNothing) {
  context.decode({});
  EXPECT_EQ(context.logits_count(), 0);
}

TEST_F(ContextTest, FillsTheContextToTheLastPosition) {
  SequenceState a = context.new_sequence();
  const std::vector<TokenId> tokens = some_tokens(*engine, 256, 1);
  feed(context, a, tokens);
  EXPECT_EQ(a.length(), 256);
  const BatchRow one_more{1, &a, false};
  EXPECT_THROW(context.decode({&one_more, 1}), Error);
}

TEST_F(ContextTest, MetersCountRowsAndUbatches) {
  SequenceState a = context.new_sequence();
  feed(context, a, some_tokens(*engine, 40, 1));
  EXPECT_EQ(context.meters().rows, 40u);
  EXPECT_EQ(context.meters().ubatches, 3u);
  EXPECT_GT(context.meters().seconds, 0.0);
  context.reset_meters();
  EXPECT_EQ(context.meters().rows, 0u);
  EXPECT_EQ(context.expert_use().picks(), 0u);
  EXPECT_GT(context.buffer_bytes(), 0u);
}

TEST_F(ContextTest, ExpertUseAgreesWithAnObserver) {
  struct Seen {
    std::set<std::pair<int, int32_t>> entries;
    uint64_t picks = 0;
  } seen;
  context.observe_picks(
      [](void* user, const RoutedPicks& picks) {
        auto& s = *static_cast<Seen*>(user);
        EXPECT_EQ(picks.ids.size(), picks.weights.size());
        EXPECT_GT(picks.rows, 0);
        s.picks += picks.ids.size();
        for (const int32_t id : picks.ids) s.entries.emplace(picks.layer, id);
      },
      &seen);
  SequenceState a = context.new_sequence();
  feed(context, a, some_tokens(*engine, 3, 1));
  const HParams& h = engine->model().hparams();
  EXPECT_EQ(seen.picks, static_cast<uint64_t>(3 * h.layers * h.top_k));
  EXPECT_EQ(context.expert_use().picks(), seen.picks);
  EXPECT_EQ(context.expert_use().used(), static_cast<int64_t>(seen.entries.size()));
  EXPECT_EQ(context.expert_use().total(), h.layers * h.experts);
  EXPECT_LE(context.expert_use().used_bytes(), engine->store()->map().total_bytes());
  EXPECT_GT(context.expert_use().used_bytes(), 0u);
  context.observe_picks(nullptr, nullptr);
  const uint64_t before = seen.picks;
  feed(context, a, some_tokens(*engine, 3, 2));
  EXPECT_EQ(seen.picks, before);
}

TEST_F(ContextTest, ContextsOfOneEngineMayRunInDifferentThreads) {
  const auto shared = load("mini-qwen3moe-q8_0", 2);
  const std::vector<TokenId> tokens = some_tokens(*shared, 40, 3);
  std::vector<std::vector<float>> got(3);
  std::vector<std::thread> threads;
  for (auto& out : got) {
    threads.emplace_back([&] {
      Context own(*shared, small_context(TensorType::f16, 8));
      SequenceState s = own.new_sequence();
      out = feed_singly(own, s, std::span(tokens).first(10));
      const std::vector<float> rest = feed(own, s, std::span(tokens).subspan(10));
      out.insert(out.end(), rest.begin(), rest.end());
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_TRUE(same_bits(got[0], got[1]));
  EXPECT_TRUE(same_bits(got[0], got[2]));
}

TEST(ContextSize, IsForeseenBeforeThereIsAContext) {
  for (const char* name :
       {"mini-qwen3moe-f32", "mini-qwen2moe-f32", "mini-llama-dense-f32", "small-qwen3moe-q4_k_m", "mini-deepseek2-f32",
        "unfolded-deepseek2-f32", "mini-qwen3next-f32", "mini-qwen35moe-f32", "mini-lfm2moe-f32",
        "mini-nemotron_h_moe-f32", "mini-bailingmoe3-f32", "latent-nemotron_h_moe-f32", "mini-deepseek4-f32"}) {
    for (const bool streaming : {false, true}) {
      SCOPED_TRACE(std::string(name) + (streaming ? " streaming" : ""));
      EngineOptions options;
      options.cpu.threads = 1;
      if (streaming) options.residency.cache_bytes = 1 << 20;
      options.residency.mode = streaming ? ExpertMode::stream : ExpertMode::mmap;
      const auto engine = Engine::load(model_path(name), options);
      ContextOptions o = small_context(TensorType::f16, 64);
      o.context = 192;
      const ContextBytes foreseen =
          context_bytes(engine->model().hparams(), o, streaming && engine->store() != nullptr);
      Context context(*engine, o);
      SequenceState s = context.new_sequence();
      feed(context, s, some_tokens(*engine, 190, 3));
      EXPECT_EQ(foreseen.kv, context.kv().reserved_bytes());
      // All logits of a prompt were kept here, which nobody foresees; those of an ubatch are.
      const uint64_t vocab = static_cast<uint64_t>(engine->model().hparams().vocab) * sizeof(float);
      const uint64_t taken = context.buffer_bytes() - (190 - 64) * vocab;
      EXPECT_GE(foreseen.buffers, taken);
      EXPECT_LE(foreseen.buffers, taken * 13 / 10 + (128 << 10));
    }
  }
}

TEST(ContextSize, AStreamedPromptReadsEachEntryOnce) {
  EngineOptions options;
  options.cpu.threads = 2;
  options.residency.mode = ExpertMode::stream;
  options.residency.cache_bytes = 0;
  const auto engine = Engine::load(model_path("mini-qwen3moe-q8_0"), options);
  const auto tokens = some_tokens(*engine, 100, 9);
  std::vector<float> want;
  const auto reads_with = [&](int64_t group) {
    ContextOptions o = small_context(TensorType::f32, 8);
    o.group_rows = group;
    Context context(*engine, o);
    std::map<int, std::set<int32_t>> picked;
    context.observe_picks(
        [](void* user, const RoutedPicks& picks) {
          (*static_cast<std::map<int, std::set<int32_t>>*>(user))[picks.layer].insert(picks.ids.begin(),
                                                                                      picks.ids.end());
        },
        &picked);
    const uint64_t before = engine->store()->counters().reads;
    SequenceState s = context.new_sequence();
    const std::vector<float> got = feed(context, s, tokens);
    uint64_t distinct = 0;
    EXPECT_TRUE(want.empty() || same_bits(got, want)) << group;
    want = got;
    for (const auto& [layer, experts] : picked) distinct += experts.size();
    return std::pair(engine->store()->counters().reads - before, distinct);
  };
  const auto [reads, distinct] = reads_with(0);
  EXPECT_EQ(reads, distinct);
  EXPECT_GT(reads_with(8).first, 2 * distinct);
}

}  // namespace
}  // namespace moetier
