// Loading: every family binds, and a file that lacks something says what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/log.h"
#include "compute/cpu/cpu_compute.h"
#include "experts/entry_map.h"
#include "model/model.h"
#include "model/scratch.h"
#include "rewrite.h"

namespace moetier {
namespace {

using testing::Changes;
using testing::fixture;
using ::testing::HasSubstr;
using testing::Rewritten;

/// The message of the error that loading gives, or "" if it succeeds.
std::string load_error(const GgufFile& file) {
  const auto compute = make_cpu_compute({.threads = 1});
  try {
    load_model(file, *compute);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

bool is_expert(const std::string& name) {
  return name.ends_with("_exps.weight") || name.ends_with("_exps.scale");  // scales are read, not bound
}

/// Biases that a file may lack; the others are required.
bool optional_bias(const std::string& name, const std::string& architecture) {
  if (!name.ends_with(".bias")) return false;
  static const std::set<std::string> chosen_by_bias{"glm4moe",        "minimax-m2",  "lfm2moe",
                                                    "nemotron_h_moe", "bailingmoe3", "deepseek4"};
  if (name.ends_with("exp_probs_b.bias")) return !chosen_by_bias.contains(architecture);
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (has("attn_q.") || has("attn_k.") || has("attn_v.")) return true;
  return architecture != "gpt-oss" && architecture != "phimoe" && !has("ssm_");
}

bool optional_of_gemma4(const std::string& name) {
  return name.ends_with("layer_output_scale.weight") || name.ends_with("ffn_down_exps.scale");
}

/// A tensor of a later layer that an earlier layer has, too.
bool repeats(const GgufFile& file, const std::string& name) {
  for (const int layer : {1, 2}) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    if (name.starts_with(prefix) &&
        file.find_tensor("blk." + std::to_string(layer - 1) + "." + name.substr(prefix.size())) != nullptr)
      return true;
  }
  return false;
}

class EveryFamily : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryFamily, LoadsAndCountsItsDenseBytes) {
  const GgufFile file = GgufFile::open(fixture(GetParam()));
  const auto compute = make_cpu_compute({.threads = 1});
  const auto model = load_model(file, *compute);
  uint64_t dense = 0;
  for (const TensorInfo& tensor : file.tensors()) dense += is_expert(tensor.name) ? 0 : tensor.bytes;
  EXPECT_EQ(model->dense_bytes(), dense);
  EXPECT_EQ(model->hparams().architecture, file.need_string("general.architecture"));
  EXPECT_GT(model->scratch_plan().ubatch_bytes(3), 0u);
}

TEST_P(EveryFamily, NamesEveryTensorThatIsMissing) {
  const GgufFile whole = GgufFile::open(fixture(GetParam()));
  const std::string architecture = whole.need_string("general.architecture");
  // The others use the embeddings where there is no head.
  const std::set<std::string> untied{"olmoe",       "qwen2moe", "gpt-oss",  "minimax-m2",
                                     "bailingmoe2", "phimoe",   "deepseek4"};
  for (const TensorInfo& tensor : whole.tensors()) {
    if (optional_bias(tensor.name, architecture) || tensor.name == "rope_freqs.weight" || repeats(whole, tensor.name))
      continue;
    if (tensor.name == "output.weight" && !untied.contains(architecture)) continue;
    if (optional_of_gemma4(tensor.name) || (architecture == "gemma4" && tensor.name.ends_with("attn_v.weight")))
      continue;
    Rewritten without(GetParam(), {.drop_tensors = {tensor.name}});
    // Of two forms that a tensor may have, the other is asked for.
    const bool fused_qkv = tensor.name == "blk.0.attn_qkv.weight" && whole.find_tensor("blk.0.ssm_a") == nullptr;
    const std::string named = fused_qkv                                        ? "blk.0.attn_q.weight"
                              : tensor.name == "blk.0.ffn_gate_up_exps.weight" ? "blk.0.ffn_gate_exps.weight"
                                                                               : tensor.name;
    EXPECT_THAT(load_error(without.file()), HasSubstr(named));
  }
}

TEST_P(EveryFamily, NamesEveryTensorOfAnotherShape) {
  const GgufFile whole = GgufFile::open(fixture(GetParam()));
  for (const TensorInfo& tensor : whole.tensors()) {
    if (repeats(whole, tensor.name)) continue;
    std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims);
    shape.back() += 1;
    Rewritten wrong(GetParam(), {.reshape = {{tensor.name, tensor.type, shape}}});
    const std::string message = load_error(wrong.file());
    EXPECT_THAT(message, HasSubstr(tensor.name));
    EXPECT_THAT(message, HasSubstr(std::to_string(shape.back()))) << "the shape found is not told";
    EXPECT_THAT(message, HasSubstr(std::to_string(shape.back() - 1))) << "the shape wanted is not told";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Fixtures, EveryFamily,
    ::testing::Values("mini-qwen3moe-f32", "mini-qwen2moe-f32", "mini-olmoe-f32", "mini-llama-f32", "mini-gpt-oss-f32",
                      "odd-gpt-oss-f32", "mini-gemma4-f32", "mini-glm4moe-f32", "mini-ernie4_5-moe-f32",
                      "mini-hunyuan-moe-f32", "mini-minimax-m2-f32", "mini-granitemoe-f32", "mini-bailingmoe2-f32",
                      "mini-bailingmoe3-f32", "mini-deepseek2-f32", "lite-deepseek2-f32", "unfolded-deepseek2-f32",
                      "mini-deepseek4-f32", "mini-qwen3next-f32", "mini-qwen35moe-f32", "mini-lfm2moe-f32",
                      "mini-phimoe-f32", "mini-llama4-f32", "mini-nemotron_h_moe-f32", "latent-nemotron_h_moe-f32",
                      "mini-llama-dense-f32", "mini-qwen2-f32", "mini-qwen3-f32", "fused-qwen2-f32"));

TEST(LoadModel, AnUnknownArchitectureListsTheKnownOnes) {
  GgufFile file = GgufFile::open(fixture("mini-qwen2-f32"));
  file.override_metadata("general.architecture=str:mamba9");
  const std::string message = load_error(file);
  EXPECT_THAT(message, HasSubstr("mamba9"));
  for (const Architecture& architecture : architectures())
    EXPECT_THAT(message, HasSubstr(std::string(architecture.name)));
}

TEST(LoadModel, ATypeThatCannotBeComputedIsNamed) {
  Rewritten wrong("mini-qwen3moe-f32", {.reshape = {{"blk.0.attn_q.weight", TensorType::i32, {64, 64}}}});
  const std::string message = load_error(wrong.file());
  EXPECT_THAT(message, HasSubstr("blk.0.attn_q.weight"));
  EXPECT_THAT(message, HasSubstr("i32"));
}

TEST(LoadModel, ScaleCompanionsMustFitTheirWeights) {
  Rewritten fitting("mini-qwen3moe-f32", {.add = {{"blk.0.ffn_up_exps.scale", TensorType::f32, {8}},
                                                  {"blk.0.attn_q.scale", TensorType::f32, {1}},
                                                  {"blk.0.attn_q.input_scale", TensorType::f32, {1}}}});
  EXPECT_EQ(load_error(fitting.file()), "");
  Rewritten stack("mini-qwen3moe-f32", {.add = {{"blk.0.ffn_up_exps.scale", TensorType::f32, {7}}}});
  EXPECT_THAT(load_error(stack.file()), HasSubstr("blk.0.ffn_up_exps.scale has shape [7]"));
  Rewritten matrix("mini-qwen3moe-f32", {.add = {{"blk.1.attn_q.scale", TensorType::f32, {64}}}});
  EXPECT_THAT(load_error(matrix.file()), HasSubstr("blk.1.attn_q.scale has shape [64]"));
}

TEST(LoadModel, AScaleThatNobodyAppliesIsRefusedByName) {
  Rewritten router("mini-qwen3moe-f32", {.add = {{"blk.0.ffn_gate_inp.scale", TensorType::f32, {1}}}});
  EXPECT_THAT(load_error(router.file()), HasSubstr("blk.0.ffn_gate_inp.scale"));
}

TEST(LoadModel, ATensorTheGraphDoesNotKnowIsWarnedOf) {
  Rewritten more("mini-qwen3moe-f32", {.add = {{"blk.1.attn_sinks.weight", TensorType::f32, {4}}}});
  EXPECT_EQ(load_error(more.file()), "");
  EXPECT_THAT(log::warnings(), ::testing::Contains(HasSubstr("blk.1.attn_sinks.weight")));
}

TEST(LoadModel, AVocabularyOfAnotherLengthIsRefused) {
  Rewritten other("mini-qwen3moe-f32", {.reshape = {{"token_embd.weight", TensorType::f32, {64, 500}}}});
  EXPECT_THAT(load_error(other.file()),
              HasSubstr("token_embd.weight has shape [64, 500], but qwen3moe needs [64, 512]"));
}

TEST(LoadModel, DenseAndExpertFamiliesAreNotMixedUp) {
  GgufFile dense = GgufFile::open(fixture("mini-qwen3-f32"));
  dense.override_metadata("qwen3.expert_count=int:4");
  dense.override_metadata("qwen3.expert_used_count=int:2");
  EXPECT_THAT(load_error(dense), HasSubstr("qwen3.expert_count"));
  Rewritten none("mini-qwen3moe-f32", {.drop_keys = {"qwen3moe.expert_count"}});
  EXPECT_THAT(load_error(none.file()), HasSubstr("qwen3moe.expert_count"));
}

TEST(LoadModel, PartialRotationIsRefusedWhereTheFamilyRotatesWholeHeads) {
  GgufFile file = GgufFile::open(fixture("mini-llama-f32"));
  file.override_metadata("llama.rope.dimension_count=int:8");
  EXPECT_THAT(load_error(file), HasSubstr("llama.rope.dimension_count"));
}

TEST(LoadModel, BlocksThatPredictFurtherTokensAreLeftOut) {
  GgufFile file = GgufFile::open(fixture("mini-qwen3-f32"));
  file.override_metadata("qwen3.nextn_predict_layers=int:1");
  const auto compute = make_cpu_compute({.threads = 1});
  EXPECT_EQ(load_model(file, *compute)->hparams().layers, 1);
}

TEST(LoadModel, EntriesAreOfExecutedBlocksOnly) {
  const GgufFile file = GgufFile::open(fixture("mtp-glm4moe-f32"));
  ASSERT_NE(file.find_tensor("blk.3.ffn_up_exps.weight"), nullptr);
  EXPECT_EQ(read_layers(file), 3);
  const EntryMap map = EntryMap::from_gguf(file, 3, read_layers(file));
  ASSERT_EQ(map.layers.size(), 2u) << "the first layer is dense, the last is not run";
  EXPECT_EQ(map.layers.front().layer, 1);
  EXPECT_EQ(map.layers.back().layer, 2);
}

/// Files of nemotron_h_moe may write for each layer how many experts it uses, and how wide they are.
TEST(LoadModel, ExpertCountsOfLayersWithoutExpertsDoNotMatter) {
  const auto nemotron = [](std::vector<int32_t> used, std::vector<int32_t> widths) {
    return Changes{.drop_keys = {"nemotron_h_moe.expert_used_count", "nemotron_h_moe.expert_feed_forward_length"},
                   .set_ints = {{"nemotron_h_moe.expert_used_count", std::move(used)},
                                {"nemotron_h_moe.expert_feed_forward_length", std::move(widths)}}};
  };
  for (const int32_t other : {0, 7, 99}) {  // the model's layers 1 and 3 have experts
    Rewritten listed("mini-nemotron_h_moe-f32", nemotron({other, 3, other, 3, other}, {other, 32, other, 32, other}));
    EXPECT_EQ(load_error(listed.file()), "");
    EXPECT_EQ(read_top_k(listed.file()), 3);
  }
  Rewritten differing("mini-nemotron_h_moe-f32", nemotron({0, 3, 0, 4, 0}, {0, 32, 0, 32, 0}));
  EXPECT_THAT(load_error(differing.file()),
              HasSubstr("nemotron_h_moe.expert_used_count differs between layers (3 and 4)"));
  Rewritten none("mini-nemotron_h_moe-f32", nemotron({3, 0, 3, 3, 3}, {0, 32, 0, 32, 0}));
  EXPECT_THAT(load_error(none.file()), HasSubstr("nemotron_h_moe.expert_used_count is 0"));
  Rewritten wide("mini-nemotron_h_moe-f32", nemotron({0, 3, 0, 3, 0}, {0, 32, 0, 64, 0}));
  EXPECT_THAT(load_error(wide.file()),
              HasSubstr("nemotron_h_moe.expert_feed_forward_length differs between layers (32 and 64)"));
  Rewritten elsewhere("mini-qwen3moe-f32", {.drop_keys = {"qwen3moe.expert_used_count"},
                                            .set_ints = {{"qwen3moe.expert_used_count", {3, 0}}}});
  EXPECT_THAT(load_error(elsewhere.file()), HasSubstr("qwen3moe.expert_used_count is 0"));
}

TEST(LoadModel, WhatAGraphDoesNotKnowIsRefusedByKey) {
  GgufFile gpt_oss = GgufFile::open(fixture("mini-gpt-oss-f32"));
  gpt_oss.override_metadata("gpt-oss.rope.freq_base_swa=float:10000");
  EXPECT_THAT(load_error(gpt_oss), HasSubstr("gpt-oss.rope.freq_base_swa"));
  GgufFile ernie = GgufFile::open(fixture("mini-ernie4_5-moe-f32"));
  ernie.override_metadata("ernie4_5-moe.interleave_moe_layer_step=int:0");
  EXPECT_THAT(load_error(ernie), HasSubstr("ernie4_5-moe.interleave_moe_layer_step"));
  GgufFile long_rope = GgufFile::open(fixture("mini-qwen2-f32"));
  long_rope.override_metadata("qwen2.rope.scaling.type=str:longrope");
  EXPECT_THAT(load_error(long_rope), HasSubstr("qwen2.rope.scaling.type"));
  GgufFile granite = GgufFile::open(fixture("mini-granitemoe-f32"));
  granite.override_metadata("granitemoe.logit_scale=float:0");
  EXPECT_THAT(load_error(granite), HasSubstr("granitemoe.logit_scale"));
  for (const char* change : {"deepseek2.attention.head_count_kv=int:2", "deepseek2.rope.dimension_count=int:80",
                             "deepseek2.expert_gating_func=int:7"}) {
    GgufFile deepseek = GgufFile::open(fixture("mini-deepseek2-f32"));
    deepseek.override_metadata(change);
    EXPECT_THAT(load_error(deepseek), HasSubstr(std::string(change).substr(0, std::string(change).find('='))))
        << change;
  }
  for (const char* change :
       {"qwen3next.ssm.state_size=int:24", "qwen3next.ssm.inner_size=int:48", "qwen3next.ssm.group_count=int:3",
        "qwen3next.ssm.conv_kernel=int:100", "qwen3next.full_attention_interval=int:0"}) {
    GgufFile next = GgufFile::open(fixture("mini-qwen3next-f32"));
    next.override_metadata(change);
    EXPECT_THAT(load_error(next), HasSubstr(std::string(change).substr(0, std::string(change).find('=')))) << change;
  }
}

TEST(LoadModel, Deepseek4NamesTheKeyThatDoesNotFit) {
  for (const char* change :
       {"attention.head_count_kv=int:2", "attention.output_group_count=int:3", "attention.indexer.key_length=int:8",
        "attention.indexer.top_k=int:0", "attention.sliding_window=int:0", "hyper_connection.count=int:9",
        "hyper_connection.sinkhorn_iterations=int:0", "expert_gating_func=int:2",
        "attention.compress_rope_freq_base=float:0.5"}) {
    GgufFile file = GgufFile::open(fixture("mini-deepseek4-f32"));
    file.override_metadata(std::string("deepseek4.") + change);
    EXPECT_THAT(load_error(file), HasSubstr(std::string(change).substr(0, std::string(change).find('=')))) << change;
  }
  for (const char* key : {"attention.compress_ratios", "swiglu_clamp_exp", "hash_layer_count", "attention.q_lora_rank",
                          "hyper_connection.count"}) {
    Rewritten without("mini-deepseek4-f32", {.drop_keys = {std::string("deepseek4.") + key}});
    EXPECT_THAT(load_error(without.file()), HasSubstr(key));
  }
  GgufFile more = GgufFile::open(fixture("mini-deepseek4-f32"));
  more.override_metadata("deepseek4.expert_used_count=int:4");
  EXPECT_THAT(load_error(more), HasSubstr("deepseek4.expert_used_count"));
  GgufFile fewer = GgufFile::open(fixture("mini-deepseek4-f32"));
  fewer.override_metadata("deepseek4.expert_used_count=int:2");
  EXPECT_EQ(load_error(fewer), "");
}

TEST(LoadModel, AVectorOfAnotherTypeIsDecoded) {
  Rewritten half("mini-qwen3-f32", {.reshape = {{"output_norm.weight", TensorType::f16, {64}}}});
  EXPECT_EQ(load_error(half.file()), "");
}

TEST(Registry, DocsListEveryArchitecture) {
  std::ifstream in(std::string(MOETIER_SOURCE_DIR) + "/docs/models.md");
  std::stringstream text;
  text << in.rdbuf();
  for (const Architecture& a : architectures())
    EXPECT_THAT(text.str(), HasSubstr(fmt::format("| `{}` | {} |", a.name, a.description)));
}

TEST(Scratch, GivesPackedPartsThatDoNotOverlap) {
  ScratchPlan plan;
  plan.need(ScratchPart::query, 7);
  plan.need(ScratchPart::query, 5);
  plan.need(ScratchPart::key, 3);
  const auto compute = make_cpu_compute({.threads = 1});
  const Scratch scratch(*compute, plan, 4);
  const Tensor q = scratch.get(ScratchPart::query, 7, 4), k = scratch.get(ScratchPart::key, 3, 2);
  EXPECT_EQ(q.row_stride, 7 * sizeof(float));
  EXPECT_TRUE(q.offset + q.bytes() <= k.offset || k.offset + k.bytes() <= q.offset);
  EXPECT_LE(k.offset + k.bytes(), scratch.bytes());
  EXPECT_THROW(scratch.get(ScratchPart::query, 8, 1), Error);
  EXPECT_THROW(scratch.get(ScratchPart::query, 7, 5), Error);
  EXPECT_THROW(scratch.get(ScratchPart::up, 1, 1), Error);
  EXPECT_THROW(Scratch(*compute, plan, 0), Error);
}

}  // namespace
}  // namespace moetier
