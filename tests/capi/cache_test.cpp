// The cache of experts through the C API.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "moetier/moetier.h"

namespace {

const std::string kModel = std::string(MOETIER_SOURCE_DIR) + "/models/fairytale-moe-q8_0.gguf";

struct Options {
  const char* experts = "stream";
  int64_t cache_mb = 4;
  const char* policy = "lru";
};

class CacheApi : public testing::Test {
 protected:
  void open(const Options& o) {
    moetier_model_options options;
    moetier_model_options_init(&options, sizeof options);
    options.threads = 2;
    options.experts = o.experts;
    options.cache_mb = o.cache_mb;
    options.cache_policy = o.policy;
    ASSERT_EQ(moetier_model_open(kModel.c_str(), &options, &model), MOETIER_OK) << moetier_last_error();
    context = new_context();
  }
  moetier_context* new_context() {
    moetier_context_options wanted;
    moetier_context_options_init(&wanted, sizeof wanted);
    wanted.context = 256;
    wanted.ubatch = 64;
    moetier_context* made = nullptr;
    EXPECT_EQ(moetier_context_new(model, &wanted, &made), MOETIER_OK) << moetier_last_error();
    return made;
  }
  void TearDown() override { close(); }
  void close() {
    moetier_context_free(std::exchange(context, nullptr));
    moetier_model_free(std::exchange(model, nullptr));
  }
  /// Decodes `count` tokens one by one from an empty sequence, after a prompt of `prompt` rows; the last logits.
  std::vector<float> generate(int count, int prompt = 40) {
    moetier_sequence* sequence = nullptr;
    EXPECT_EQ(moetier_sequence_new(context, &sequence), MOETIER_OK) << moetier_last_error();
    std::vector<moetier_row> rows;
    for (int i = 0; i < prompt; ++i) rows.push_back({sequence, (i * 37 + 11) % 4000, 0});
    EXPECT_EQ(moetier_decode(context, rows.data(), rows.size()), MOETIER_OK) << moetier_last_error();
    for (int i = 0; i < count; ++i) {
      const moetier_row row{sequence, (i * 91 + 5) % 4000, 1};
      EXPECT_EQ(moetier_decode(context, &row, 1), MOETIER_OK) << moetier_last_error();
    }
    const float* logits = moetier_logits(context, 0);
    std::vector<float> out(logits, logits + moetier_model_vocab_size(model));
    moetier_sequence_free(sequence);
    return out;
  }
  moetier_moe_cache_stats stats() {
    moetier_moe_cache_stats s{};
    EXPECT_TRUE(moetier_moe_cache_get_stats(context, &s)) << moetier_last_error();
    return s;
  }

  moetier_model* model = nullptr;
  moetier_context* context = nullptr;
};

TEST_F(CacheApi, StatisticsAddUp) {
  open({});
  generate(20);
  const moetier_moe_cache_stats s = stats();
  const auto layers = static_cast<uint64_t>(moetier_moe_cache_get_layer_stats(context, nullptr, 0));
  ASSERT_GT(layers, 0u);
  EXPECT_EQ(s.n_hit + s.n_miss, 20 * layers * static_cast<uint64_t>(moetier_model_top_k(model)))
      << "every decoded token asks for top_k distinct experts in each layer";
  EXPECT_GT(s.n_hit, 0u);
  EXPECT_GT(s.n_miss, 0u);
  EXPECT_GT(s.n_bytes_upload, 0u);
  EXPECT_EQ(s.n_bytes_cpu, 0u);
  EXPECT_FALSE(s.hybrid);
  EXPECT_EQ(s.n_prefilled, 0u);
  EXPECT_EQ(s.n_hit_profile, 0u);
  EXPECT_GT(s.n_slots, 0u);
  EXPECT_GT(s.n_bytes_cache, 0u);
  EXPECT_LE(s.n_bytes_cache, uint64_t{4} << 20) << "a budget is a promise";
  EXPECT_EQ(s.n_swap, 0u);

  std::vector<moetier_moe_cache_layer_stats> by_layer(layers);
  EXPECT_EQ(moetier_moe_cache_get_layer_stats(context, by_layer.data(), static_cast<int32_t>(layers)),
            static_cast<int32_t>(layers));
  uint64_t hits = 0, misses = 0, held = 0;
  for (const auto& layer : by_layer) {
    hits += layer.n_hit;
    misses += layer.n_miss;
    held += layer.n_slots;
    std::vector<int32_t> experts(100, -7);
    const int32_t count = moetier_moe_cache_get_resident(context, layer.il, experts.data(), 100);
    EXPECT_EQ(static_cast<uint64_t>(count), layer.n_slots);
    EXPECT_EQ(moetier_moe_cache_get_resident(context, layer.il, nullptr, 0), count);
    for (int32_t i = 0; i < count; ++i) {
      EXPECT_GE(experts[static_cast<size_t>(i)], i == 0 ? 0 : experts[static_cast<size_t>(i) - 1] + 1);
      EXPECT_LT(experts[static_cast<size_t>(i)], moetier_model_experts(model));
    }
    EXPECT_EQ(experts[static_cast<size_t>(count)], -7);
  }
  EXPECT_EQ(hits, s.n_hit);
  EXPECT_EQ(misses, s.n_miss);
  EXPECT_GT(held, 0u);
  EXPECT_LE(held, s.n_slots);
  // At most n_max are written.
  moetier_moe_cache_layer_stats two[2] = {{-9, 9, 9, 9, 9}, {-9, 9, 9, 9, 9}};
  EXPECT_EQ(moetier_moe_cache_get_layer_stats(context, two, 1), static_cast<int32_t>(layers));
  EXPECT_EQ(two[0].il, by_layer[0].il);
  EXPECT_EQ(two[1].il, -9);
  EXPECT_EQ(moetier_moe_cache_get_resident(context, 1000, nullptr, 0), 0);
  EXPECT_EQ(moetier_moe_cache_get_resident(context, -1, nullptr, 0), 0);
}

TEST_F(CacheApi, CountersBeginWithTheContext) {
  open({});
  generate(5);
  EXPECT_GT(stats().n_miss, 0u);
  moetier_context_free(std::exchange(context, new_context()));
  const moetier_moe_cache_stats s = stats();
  EXPECT_EQ(s.n_hit + s.n_miss + s.n_copy + s.n_bytes_upload, 0u);
  EXPECT_GT(s.n_slots, 0u);
}

TEST_F(CacheApi, WithoutACacheThereIsNothingToTell) {
  for (const Options& o :
       {Options{"mmap", -1, nullptr}, Options{"resident", -1, nullptr}, Options{"stream", 0, nullptr}}) {
    open(o);
    generate(2);
    moetier_moe_cache_stats s;
    s.n_hit = 77;
    EXPECT_FALSE(moetier_moe_cache_get_stats(context, &s)) << o.experts;
    EXPECT_EQ(s.n_hit, 77u) << o.experts;
    EXPECT_EQ(moetier_moe_cache_get_layer_stats(context, nullptr, 0), 0) << o.experts;
    EXPECT_EQ(moetier_moe_cache_get_resident(context, 0, nullptr, 0), 0) << o.experts;
    EXPECT_EQ(moetier_moe_cache_rebalance(context, 4), -1) << o.experts;
    close();
  }
  open({"mmap", -1, nullptr});
  EXPECT_EQ(moetier_set_cache_budget_mb(context, 3), MOETIER_FAILED);
  EXPECT_NE(std::string(moetier_last_error()), "");
}

TEST_F(CacheApi, ResizingKeepsEveryBit) {
  open({"mmap", -1, nullptr});
  const std::vector<float> want = generate(6);
  close();
  open({"stream", 8, "default"});
  EXPECT_EQ(generate(6), want);
  const uint64_t before = stats().n_slots;
  ASSERT_EQ(moetier_set_cache_budget_mb(context, 3), MOETIER_OK) << moetier_last_error();
  EXPECT_LT(stats().n_slots, before) << "evicted at once";
  EXPECT_LE(stats().n_bytes_cache, uint64_t{3} << 20);
  EXPECT_EQ(generate(6), want);
  ASSERT_EQ(moetier_set_cache_budget_mb(context, 12), MOETIER_OK) << moetier_last_error();
  EXPECT_EQ(generate(6), want);
  EXPECT_EQ(moetier_set_cache_budget_mb(context, -1), MOETIER_INVALID);
  EXPECT_EQ(moetier_set_cache_budget_mb(nullptr, 1), MOETIER_INVALID);
}

TEST_F(CacheApi, ResizingDuringABatchIsRefusedOrComesBetweenTwo) {
  open({"stream", 8, "default"});
  const std::vector<float> want = generate(6);
  std::atomic<bool> done{false};
  std::vector<float> got;
  std::thread other([&] {
    for (int i = 0; i < 5; ++i) got = generate(6);
    done = true;
  });
  int32_t mib = 3;
  while (!done) {
    const moetier_status status = moetier_set_cache_budget_mb(context, mib);
    EXPECT_TRUE(status == MOETIER_OK || status == MOETIER_FAILED);
    mib = mib == 3 ? 8 : 3;
    std::this_thread::yield();
  }
  other.join();
  EXPECT_EQ(got, want);
}

TEST_F(CacheApi, RebalancingIsForTheAdaptivePolicy) {
  open({"stream", 4, "lru"});
  generate(3);
  EXPECT_EQ(moetier_moe_cache_rebalance(context, 8), -1);
  close();
  open({"stream", 4, "adaptive"});
  const std::vector<float> want = generate(12);
  const int32_t swaps = moetier_moe_cache_rebalance(context, 8);
  EXPECT_GE(swaps, 0);
  EXPECT_LE(swaps, 8);
  EXPECT_EQ(moetier_moe_cache_rebalance(context, 0), 0);
  EXPECT_EQ(generate(12), want);
}

TEST_F(CacheApi, OptionsThatCannotBeAreRefused) {
  const auto refuses = [](auto change) {
    moetier_model_options options;
    moetier_model_options_init(&options, sizeof options);
    change(options);
    moetier_model* none = nullptr;
    const moetier_status status = moetier_model_open(kModel.c_str(), &options, &none);
    moetier_model_free(none);
    return status == MOETIER_INVALID;
  };
  EXPECT_TRUE(refuses([](auto& o) { o.experts = "cloud"; }));
  EXPECT_TRUE(refuses([](auto& o) { o.cache_policy = "luck"; }));
  EXPECT_TRUE(refuses([](auto& o) { o.dense_weights = "wet"; }));
  EXPECT_TRUE(refuses([](auto& o) { o.io = "post"; }));
  EXPECT_TRUE(refuses([](auto& o) { o.cache_mb = -2; }));
  EXPECT_TRUE(refuses([](auto& o) { o.cache_floor_mb = -1; }));
  EXPECT_TRUE(refuses([](auto& o) { o.prefetch = 9; }));
  EXPECT_TRUE(refuses([](auto& o) { o.io_depth = -1; }));
  EXPECT_TRUE(refuses([](auto& o) { o.planned_sequences = 0; }));
  EXPECT_TRUE(refuses([](auto& o) {
    o.cache_policy = "lru";
    o.moe_cache_adaptive = 1;
  }));
}

}  // namespace
