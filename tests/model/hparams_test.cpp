// Hyperparameters: what real files say, and that no hostile number gets through.
#include "model/hparams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "model/model.h"
#include "rewrite.h"

namespace moetier {
namespace {

using testing::Changes;
using testing::fixture;
using testing::Rewritten;

TEST(HParams, ReadsWhatTheFileSays) {
  const HParams h = read_hparams(GgufFile::open(fixture("odd-qwen3moe-f32")));
  EXPECT_EQ(h.architecture, "qwen3moe");
  EXPECT_EQ(h.name, "tiny-qwen3moe");
  EXPECT_EQ(h.context_length, 4096);
  EXPECT_EQ(h.width, 96);
  EXPECT_EQ(h.layers, 2);
  EXPECT_EQ(h.vocab, 509);
  EXPECT_EQ(h.heads, 3);
  EXPECT_EQ(h.kv_heads, 1);
  EXPECT_EQ(h.key_length, 80);
  EXPECT_EQ(h.value_length, 80);
  EXPECT_EQ(h.rope.dims, 80);
  EXPECT_EQ(h.rope.base, 1e6);
  EXPECT_EQ(h.rope.freq_scale, 1.0);
  EXPECT_EQ(h.rope.magnitude, 1.0);
  EXPECT_EQ(h.rope.ext_factor, 0.0);
  EXPECT_EQ(h.experts, 3);
  EXPECT_EQ(h.top_k, 1);
  EXPECT_EQ(h.expert_groups, 1);
}

std::vector<int64_t> windows_of(const GgufFile& file) {
  HParams h = read_hparams(file);
  read_windows(file, h, 2);
  return h.windows;
}

/// What `read` says when it fails.
template <typename Read>
std::string error_of(Read read) {
  try {
    read();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(HParams, WindowsAreAPeriodOrAList) {
  using V = std::vector<int64_t>;
  EXPECT_EQ(windows_of(GgufFile::open(fixture("mini-gpt-oss-f32"))), (V{16, 0, 16})) << "the family's period of two";
  EXPECT_EQ(windows_of(GgufFile::open(fixture("odd-gpt-oss-f32"))), (V{70, 0, 70})) << "a list";
  const std::string key = "gpt-oss.attention.sliding_window_pattern";
  const auto with = [&](std::vector<int32_t> pattern) {
    Rewritten changed("mini-gpt-oss-f32", {.set_ints = {{key, std::move(pattern)}}});
    return windows_of(changed.file());
  };
  EXPECT_EQ(with({0}), (V{16, 16, 16}));
  EXPECT_EQ(with({1}), (V{0, 0, 0}));
  EXPECT_EQ(with({3}), (V{16, 16, 0}));
  EXPECT_EQ(with({0, 0, 1}), (V{0, 0, 16}));
  EXPECT_THAT(error_of([&] { with({1, 0}); }), ::testing::HasSubstr(key + " has 2 values"));
  EXPECT_THAT(error_of([&] { with({-1}); }), ::testing::HasSubstr(key + " is -1"));
}

TEST(HParams, GatingFunctionsAreNumbers) {
  GgufFile file = GgufFile::open(fixture("mini-minimax-m2-f32"));
  EXPECT_EQ(read_gating(file, std::nullopt), Gating::sigmoid);
  const std::string key = "minimax-m2.expert_gating_func";
  file.override_metadata(key + "=int:1");
  EXPECT_EQ(read_gating(file, std::nullopt), Gating::softmax);
  file.override_metadata(key + "=int:3");
  EXPECT_EQ(read_gating(file, std::nullopt), Gating::softmax_of_picks);
  file.override_metadata(key + "=int:4");
  EXPECT_EQ(read_gating(file, std::nullopt), Gating::sqrt_softplus);
  file.override_metadata(key + "=int:5");
  EXPECT_THAT(error_of([&] { read_gating(file, std::nullopt); }), ::testing::HasSubstr(key + " is 5"));
  file.override_metadata(key + "=int:0");
  EXPECT_EQ(read_gating(file, Gating::sigmoid), Gating::sigmoid);
  EXPECT_THAT(error_of([&] { read_gating(file, std::nullopt); }), ::testing::HasSubstr(key + " is missing"));
}

TEST(HParams, HeadSizeDefaultsToTheWidthShared) {
  const HParams h = read_hparams(GgufFile::open(fixture("mini-qwen2-f32")));
  EXPECT_EQ(h.key_length, 16);
  EXPECT_EQ(h.value_length, 16);
  EXPECT_EQ(h.experts, 0);
  EXPECT_EQ(h.top_k, 0);
}

TEST(HParams, RopeScaling) {
  const HParams yarn = read_hparams(GgufFile::open(fixture("yarn-qwen3moe-f32")));
  EXPECT_EQ(yarn.rope.freq_scale, 0.25);
  EXPECT_EQ(yarn.rope.ext_factor, 1.0);
  EXPECT_EQ(yarn.rope.original_context, 64);
  EXPECT_DOUBLE_EQ(yarn.rope.magnitude, 1.0 + 0.1 * std::log(4.0));
  const HParams linear = read_hparams(GgufFile::open(fixture("linear-llama-dense-f32")));
  EXPECT_EQ(linear.rope.freq_scale, 0.4);
  EXPECT_EQ(linear.rope.ext_factor, 0.0);
  EXPECT_EQ(linear.rope.magnitude, 1.0);
  GgufFile none = GgufFile::open(fixture("yarn-qwen3moe-f32"));
  none.override_metadata("qwen3moe.rope.scaling.type=str:none");
  EXPECT_EQ(read_hparams(none).rope.freq_scale, 1.0);
}

TEST(HParams, GroupsRouteOnlyIfMoreThanOne) {
  const HParams h = read_hparams(GgufFile::open(fixture("groups-llama-f32")));
  EXPECT_EQ(h.expert_groups, 4);
  EXPECT_EQ(h.expert_groups_used, 2);
}

TEST(HParams, TopKComesFromAnOverride) {
  GgufFile file = GgufFile::open(fixture("mini-qwen3moe-f32"));
  EXPECT_EQ(read_top_k(file), 3);
  file.override_metadata("qwen3moe.expert_used_count=int:5");
  EXPECT_EQ(read_top_k(file), 5);
  EXPECT_EQ(read_hparams(file).top_k, 5);
}

struct Hostile {
  const char* model;
  const char* override_spec;
  const char* named;  ///< what the error must name
};

class HostileNumbers : public ::testing::TestWithParam<Hostile> {};

TEST_P(HostileNumbers, AreRefusedByName) {
  const Hostile& hostile = GetParam();
  GgufFile file = GgufFile::open(fixture(hostile.model));
  file.override_metadata(hostile.override_spec);
  try {
    read_hparams(file);
    FAIL() << hostile.override_spec << " was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(hostile.named));
    EXPECT_THAT(error.what(), ::testing::HasSubstr(hostile.model)) << "the file is not named";
  }
}

constexpr const char* kMoe = "mini-qwen3moe-f32";
constexpr const char* kDense = "mini-qwen2-f32";
INSTANTIATE_TEST_SUITE_P(
    Table, HostileNumbers,
    ::testing::Values(Hostile{kMoe, "qwen3moe.attention.head_count=int:0", "qwen3moe.attention.head_count"},
                      Hostile{kMoe, "qwen3moe.attention.head_count=int:-4", "qwen3moe.attention.head_count"},
                      Hostile{kMoe, "qwen3moe.attention.head_count=int:5", "head_count_kv"},
                      Hostile{kMoe, "qwen3moe.attention.head_count=int:4000000000", "qwen3moe.attention.head_count"},
                      Hostile{kMoe, "qwen3moe.attention.head_count_kv=int:0", "qwen3moe.attention.head_count_kv"},
                      Hostile{kMoe, "qwen3moe.attention.head_count_kv=int:3", "3 key/value heads"},
                      Hostile{kMoe, "qwen3moe.attention.key_length=int:0", "qwen3moe.attention.key_length"},
                      Hostile{kMoe, "qwen3moe.attention.key_length=int:99999999999", "qwen3moe.attention.key_length"},
                      Hostile{kDense, "qwen2.attention.head_count=int:6", "qwen2.attention.key_length"},
                      Hostile{kDense, "qwen2.embedding_length=int:0", "qwen2.embedding_length"},
                      Hostile{kDense, "qwen2.embedding_length=int:9000000000000000000", "qwen2.embedding_length"},
                      Hostile{kDense, "qwen2.block_count=int:0", "qwen2.block_count"},
                      Hostile{kDense, "qwen2.block_count=int:513", "qwen2.block_count"},
                      Hostile{kDense, "qwen2.nextn_predict_layers=int:2", "none is left"},
                      Hostile{kDense, "qwen2.context_length=int:0", "qwen2.context_length"},
                      Hostile{kDense, "qwen2.context_length=int:-1", "qwen2.context_length"},
                      Hostile{kDense, "qwen2.feed_forward_length=int:-1", "qwen2.feed_forward_length"},
                      Hostile{kDense, "qwen2.attention.layer_norm_rms_epsilon=float:-1",
                              "qwen2.attention.layer_norm_rms_epsilon"},
                      Hostile{kDense, "qwen2.rope.freq_base=float:0", "qwen2.rope.freq_base"},
                      Hostile{kDense, "qwen2.rope.dimension_count=int:15", "qwen2.rope.dimension_count"},
                      Hostile{kDense, "qwen2.rope.dimension_count=int:18", "qwen2.rope.dimension_count"},
                      Hostile{kDense, "qwen2.rope.dimension_count=int:0", "qwen2.rope.dimension_count"},
                      Hostile{kDense, "qwen2.rope.scaling.type=str:spiral", "spiral"},
                      Hostile{kDense, "qwen2.rope.scaling.factor=float:-2", "qwen2.rope.scaling.factor"},
                      Hostile{kMoe, "qwen3moe.expert_count=int:1025", "qwen3moe.expert_count"},
                      Hostile{kMoe, "qwen3moe.expert_used_count=int:0", "qwen3moe.expert_used_count"},
                      Hostile{kMoe, "qwen3moe.expert_used_count=int:9", "qwen3moe.expert_used_count"},
                      Hostile{"groups-llama-f32", "llama.expert_group_count=int:3", "llama.expert_group_count"},
                      Hostile{"groups-llama-f32", "llama.expert_group_used_count=int:4", "expert_group_used_count"},
                      Hostile{"groups-llama-f32", "llama.expert_group_used_count=int:0", "expert_group_used_count"},
                      Hostile{"groups-llama-f32", "llama.expert_group_used_count=int:1", "3 picks"},
                      Hostile{kMoe, "qwen3moe.swiglu_clamp_exp=float:7", "qwen3moe.swiglu_clamp_exp"}));

TEST(HParams, MissingKeysAreNamed) {
  for (const std::string key : {"context_length", "embedding_length", "block_count", "attention.head_count",
                                "attention.layer_norm_rms_epsilon", "expert_used_count"}) {
    Rewritten without(kMoe, {.drop_keys = {"qwen3moe." + key}});
    try {
      read_hparams(without.file());
      ADD_FAILURE() << key << " was not missed";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("qwen3moe." + key));
    }
  }
}

TEST(HParams, PerLayerValuesMustAgree) {
  Rewritten same(kMoe, {.set_ints = {{"qwen3moe.attention.head_count_kv", {2, 2}}}});
  EXPECT_EQ(read_hparams(same.file()).kv_heads, 2);
  Rewritten other(kMoe, {.set_ints = {{"qwen3moe.attention.head_count_kv", {2, 4}}}});
  Rewritten none(kMoe, {.set_ints = {{"qwen3moe.attention.head_count_kv", {}}}});
  for (Rewritten* wrong : {&other, &none}) {
    try {
      read_hparams(wrong->file());
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("qwen3moe.attention.head_count_kv"));
    }
  }
}

TEST(HParams, AVocabularyIsNotNeeded) {
  Rewritten without("mini-qwen2-f32", {.drop_keys = {"tokenizer.ggml.tokens", "qwen2.vocab_size"}});
  EXPECT_EQ(read_hparams(without.file()).vocab, 512);
}

TEST(HParams, ExpertWidthIsAShareOfTheFfnWhereAbsent) {
  Rewritten without(kMoe, {.drop_keys = {"qwen3moe.expert_feed_forward_length"}});
  HParams h = read_hparams(without.file());
  EXPECT_THROW(read_expert_width(without.file(), h), Error);  // 1024 is no multiple of 3 picks
  h.top_k = 4;
  EXPECT_EQ(read_expert_width(without.file(), h), 256);
}

TEST(HParams, AnOverrideOfThePicksLeavesTheExpertsWidthAlone) {
  Rewritten old(kMoe, {.drop_keys = {"qwen3moe.expert_feed_forward_length"}});
  old.file().override_metadata("qwen3moe.feed_forward_length=int:768");
  EXPECT_EQ(read_expert_width(old.file(), read_hparams(old.file())), 256);  // 768 / 3
  for (const char* picks : {"1", "2", "5"}) {
    old.file().override_metadata(std::string("qwen3moe.expert_used_count=int:") + picks);
    EXPECT_EQ(read_expert_width(old.file(), read_hparams(old.file())), 256) << picks;
  }
}

}  // namespace
}  // namespace moetier
