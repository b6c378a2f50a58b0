#include "quant/mixture.h"

#include <gmock/gmock.h>

#include <map>

namespace moetier {
namespace {

using Types = std::map<std::string, TensorType>;

MixtureTensor tensor(const std::string& name, std::array<int64_t, 4> shape) {
  int dims = 4;
  while (dims > 1 && shape[static_cast<size_t>(dims) - 1] == 1) --dims;
  return {name, shape, dims};
}

/// A MoE model whose rows are all `width` long.
std::vector<MixtureTensor> moe_tensors(int layers, int experts, int64_t width = 512, bool tied = false) {
  std::vector<MixtureTensor> all{tensor("token_embd.weight", {width, 1000, 1, 1}),
                                 tensor("output_norm.weight", {width, 1, 1, 1})};
  if (!tied) all.push_back(tensor("output.weight", {width, 1000, 1, 1}));
  for (int i = 0; i < layers; ++i) {
    const std::string b = "blk." + std::to_string(i) + ".";
    all.push_back(tensor(b + "attn_norm.weight", {width, 1, 1, 1}));
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
      all.push_back(tensor(b + name + ".weight", {width, 512, 1, 1}));
    }
    all.push_back(tensor(b + "attn_q.bias", {512, 1, 1, 1}));
    all.push_back(tensor(b + "ffn_gate_inp.weight", {width, experts, 1, 1}));
    for (const char* name : {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}) {
      all.push_back(tensor(b + name + ".weight", {width, 512, experts, 1}));
    }
    all.push_back(tensor(b + "ffn_down_exps.bias", {512, experts, 1, 1}));
    all.push_back(tensor(b + "ffn_down_shexp.weight", {width, 512, 1, 1}));
  }
  return all;
}

/// Types by name; kept tensors are left out.
Types choose(FileType file, const MixtureModel& model, const std::vector<MixtureTensor>& tensors) {
  const std::vector<TypeChoice> choices = choose_types(file, model, tensors);
  EXPECT_EQ(choices.size(), tensors.size());
  Types types;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!choices[i].keep) types[tensors[i].name] = choices[i].type;
  }
  return types;
}

MixtureModel model_of(int layers, int experts) {
  return {"qwen3moe", layers, 32, 4, experts};
}

std::vector<int> layers_with(const Types& types, const std::string& name, TensorType type, int layers) {
  std::vector<int> found;
  for (int i = 0; i < layers; ++i) {
    if (types.at("blk." + std::to_string(i) + "." + name) == type) found.push_back(i);
  }
  return found;
}

TEST(MoreBits, SelectsHalfOfTheLayers) {
  const std::map<int, int> counts{{24, 12}, {32, 16}, {36, 18}, {40, 20}, {48, 24},
                                  {61, 30}, {62, 30}, {80, 40}, {94, 46}};
  for (const auto& [layers, want] : counts) {
    int got = 0;
    for (int i = 0; i < layers; ++i) got += more_bits(i, layers);
    EXPECT_EQ(got, want) << layers << " layers";
  }
  EXPECT_TRUE(more_bits(1, 2));
  EXPECT_FALSE(more_bits(0, 2));
}

TEST(Mixture, Q4KMGivesSixBitsToHalfOfTheDownAndValueMatrices) {
  const Types types = choose(FileType::q4_k_m, model_of(16, 64), moe_tensors(16, 64));
  const std::vector<int> more{0, 1, 4, 7, 10, 13, 14, 15};
  for (const char* name : {"attn_v.weight", "ffn_down_exps.weight", "ffn_down_shexp.weight"}) {
    EXPECT_EQ(layers_with(types, name, TensorType::q6_k, 16), more) << name;
    EXPECT_EQ(layers_with(types, name, TensorType::q4_k, 16).size(), 8u) << name;
  }
  for (const char* name :
       {"attn_q.weight", "attn_k.weight", "attn_output.weight", "ffn_gate_exps.weight", "ffn_up_exps.weight"}) {
    EXPECT_EQ(layers_with(types, name, TensorType::q4_k, 16).size(), 16u) << name;
  }
  EXPECT_EQ(types.at("output.weight"), TensorType::q6_k);
  EXPECT_EQ(types.at("token_embd.weight"), TensorType::q4_k);
}

TEST(Mixture, Q5KMDoesTheSameAboveFiveBits) {
  const Types types = choose(FileType::q5_k_m, model_of(16, 64), moe_tensors(16, 64));
  EXPECT_EQ(layers_with(types, "ffn_down_exps.weight", TensorType::q6_k, 16).size(), 8u);
  EXPECT_EQ(layers_with(types, "attn_v.weight", TensorType::q5_k, 16).size(), 8u);
  EXPECT_EQ(types.at("blk.0.attn_output.weight"), TensorType::q5_k);
}

TEST(Mixture, Q4KSGivesFiveBitsToTheFirstLayers) {
  const Types types = choose(FileType::q4_k_s, model_of(24, 64), moe_tensors(24, 64));
  EXPECT_EQ(layers_with(types, "attn_v.weight", TensorType::q5_k, 24), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(layers_with(types, "ffn_down_exps.weight", TensorType::q5_k, 24), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(layers_with(types, "ffn_down_exps.weight", TensorType::q4_k, 24).size(), 21u);
}

TEST(Mixture, TheOrderInTheFileDoesNotMatter) {
  std::vector<MixtureTensor> tensors = moe_tensors(16, 64);
  const Types types = choose(FileType::q4_k_m, model_of(16, 64), tensors);
  std::reverse(tensors.begin(), tensors.end());
  EXPECT_EQ(choose(FileType::q4_k_m, model_of(16, 64), tensors), types);
}

TEST(Mixture, PlainTypesAreTheSameEverywhere) {
  for (const FileType file : {FileType::q8_0, FileType::f16, FileType::bf16, FileType::f32}) {
    const TensorType base = choose_types(file, model_of(4, 16), moe_tensors(4, 16))[0].type;
    for (const auto& [name, type] : choose(file, model_of(4, 16), moe_tensors(4, 16))) EXPECT_EQ(type, base) << name;
    EXPECT_EQ(static_cast<int>(base), file == FileType::bf16   ? 30
                                      : file == FileType::q8_0 ? 8
                                                               : static_cast<int>(file));
  }
}

TEST(Mixture, OlderTypesHaveASixBitOutput) {
  const std::map<FileType, TensorType> files{{FileType::q4_0, TensorType::q4_0},
                                             {FileType::q4_1, TensorType::q4_1},
                                             {FileType::q5_0, TensorType::q5_0},
                                             {FileType::q5_1, TensorType::q5_1},
                                             {FileType::q6_k, TensorType::q6_k}};
  for (const auto& [file, base] : files) {
    for (const auto& [name, type] : choose(file, model_of(4, 16), moe_tensors(4, 16))) {
      EXPECT_EQ(type, name == "output.weight" ? TensorType::q6_k : base) << name;
    }
  }
}

TEST(Mixture, TiedEmbeddingsCountAsTheOutput) {
  const auto tied = moe_tensors(4, 16, 512, true);
  EXPECT_EQ(choose(FileType::q4_k_m, model_of(4, 16), tied).at("token_embd.weight"), TensorType::q6_k);
  EXPECT_EQ(choose(FileType::q8_0, model_of(4, 16), tied).at("token_embd.weight"), TensorType::q8_0);
  EXPECT_EQ(choose(FileType::q4_0, model_of(4, 16), tied).at("token_embd.weight"), TensorType::q6_k);
}

TEST(Mixture, MxfpGoesToStacksOnly) {
  for (const auto& [name, type] : choose(FileType::mxfp4_moe, model_of(4, 8), moe_tensors(4, 8))) {
    EXPECT_EQ(type, name.find("_exps") != std::string::npos ? TensorType::mxfp4 : TensorType::q8_0) << name;
  }
}

TEST(Mixture, EightExpertsHaveTheirOwnRules) {
  for (const FileType file : {FileType::q4_0, FileType::q4_k_m, FileType::q5_k_m, FileType::q6_k, FileType::q4_k_s}) {
    const Types types = choose(file, model_of(4, 8), moe_tensors(4, 8));
    const bool four_bit_k = file == FileType::q4_k_m || file == FileType::q4_k_s;
    const TensorType base = types.at("blk.0.attn_q.weight");
    for (const std::string b : {"blk.0.", "blk.1.", "blk.2.", "blk.3."}) {
      EXPECT_EQ(types.at(b + "attn_v.weight"), TensorType::q8_0);
      EXPECT_EQ(types.at(b + "attn_k.weight"), TensorType::q8_0);
      EXPECT_EQ(types.at(b + "attn_output.weight"), four_bit_k ? TensorType::q5_k : base);
    }
  }
}

TEST(Mixture, SeventyBillionLlamasGetFiveBitValues) {
  const MixtureModel model{"llama", 80, 64, 8, 0};
  const Types types = choose(FileType::q4_k_m, model, moe_tensors(80, 4));
  EXPECT_EQ(layers_with(types, "attn_v.weight", TensorType::q4_k, 80).size(), 0u);
  EXPECT_EQ(layers_with(types, "attn_v.weight", TensorType::q6_k, 80).size(), 40u);
  EXPECT_EQ(layers_with(types, "attn_v.weight", TensorType::q5_k, 80).size(), 40u);
}

TEST(Mixture, RowsThatDoNotFitTakeASmallerBlock) {
  const auto odd = moe_tensors(16, 64, 288);  // 9 blocks of 32
  const Types types = choose(FileType::q4_k_m, model_of(16, 64), odd);
  EXPECT_EQ(types.at("blk.2.ffn_down_exps.weight"), TensorType::q5_0);
  EXPECT_EQ(types.at("blk.0.ffn_down_exps.weight"), TensorType::q8_0);  // six bits wanted
  EXPECT_EQ(types.at("output.weight"), TensorType::q8_0);
  EXPECT_EQ(choose(FileType::q5_k_m, model_of(16, 64), odd).at("blk.0.attn_q.weight"), TensorType::q5_1);
  EXPECT_EQ(choose(FileType::q4_0, model_of(16, 64), odd).at("blk.0.attn_q.weight"), TensorType::q4_0);
  EXPECT_EQ(choose(FileType::q4_0, model_of(16, 64), odd).at("output.weight"), TensorType::q8_0);
  for (const TypeChoice& choice : choose_types(FileType::q4_0, model_of(16, 64), odd)) {
    EXPECT_EQ(choice.fallback, choice.type == TensorType::q8_0);
  }
}

TEST(Mixture, RowsThatFitNoBlockBecomeF16) {
  for (const FileType file : {FileType::q4_k_m, FileType::q8_0, FileType::q4_0, FileType::mxfp4_moe}) {
    for (const auto& [name, type] : choose(file, model_of(4, 16), moe_tensors(4, 16, 72))) {
      EXPECT_EQ(type, TensorType::f16) << name;
    }
  }
}

TEST(Mixture, SomeTensorsAreNeverQuantized) {
  const std::vector<MixtureTensor> kept{
      tensor("output_norm.weight", {512, 1, 1, 1}),         tensor("blk.0.attn_q_norm.weight", {128, 8, 1, 1}),
      tensor("blk.0.ffn_gate_inp.weight", {512, 64, 1, 1}), tensor("blk.0.ffn_gate_inp_shexp.weight", {512, 1, 1, 1}),
      tensor("blk.0.ffn_down_exps.bias", {512, 64, 1, 1}),  tensor("blk.0.exp_probs_b.bias", {64, 1, 1, 1}),
      tensor("blk.0.ssm_conv1d.weight", {4, 8192, 1, 1}),   tensor("blk.0.indexer.k_proj.weight", {512, 128, 1, 1}),
      tensor("blk.0.attn_sinks.weight", {64, 1, 1, 1}),
  };
  for (const MixtureTensor& t : kept) EXPECT_TRUE(keeps_type(t)) << t.name;
  for (const char* name : {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_gate_inp_shexp.weight", "token_embd.weight",
                           "output.weight", "blk.0.ssm_in.weight", "blk.0.attn_k_b.weight"}) {
    EXPECT_FALSE(keeps_type(tensor(name, {512, 64, 1, 1}))) << name;
  }
  for (const TypeChoice& choice : choose_types(FileType::q4_k_m, model_of(1, 64), kept)) EXPECT_TRUE(choice.keep);
}

TEST(FileTypes, AreFoundByNameAndAlias) {
  for (const FileTypeInfo& info : known_file_types()) {
    ASSERT_NE(find_file_type(info.name), nullptr);
    EXPECT_EQ(find_file_type(info.name)->file_type, info.file_type);
  }
  EXPECT_EQ(find_file_type("Q4_K_M")->file_type, FileType::q4_k_m);
  EXPECT_EQ(find_file_type("q4_k")->file_type, FileType::q4_k_m);
  EXPECT_EQ(find_file_type("Q5_K")->file_type, FileType::q5_k_m);
  EXPECT_EQ(find_file_type("MXFP4")->file_type, FileType::mxfp4_moe);
  EXPECT_EQ(find_file_type("Q3_K")->file_type, FileType::q3_k_m);
  EXPECT_EQ(find_file_type("q2_k")->file_type, FileType::q2_k);
  EXPECT_EQ(find_file_type("q3_k_x"), nullptr);
  EXPECT_EQ(find_file_type(""), nullptr);
}

}  // namespace
}  // namespace moetier
