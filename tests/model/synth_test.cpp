#include "model/synth.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "compute/cpu/cpu_compute.h"
#include "experts/entry_map.h"
#include "gguf/check.h"
#include "gguf/raw_gguf.h"
#include "gguf/reader.h"
#include "model/hparams.h"
#include "model/model.h"
#include "model/synth_blocks.h"
#include "model/synth_vocab.h"
#include "quant/codec.h"
#include "tokenizer/tokenizer.h"

namespace moetier {
namespace {

using test::TempDir;
using ::testing::HasSubstr;
using Shapes = std::map<std::string, std::vector<int64_t>>;

// The tiny shape.
constexpr int64_t kD = 256, kH = 4, kHd = 64, kF = 256, kE = 8, kFs = 512, kV = 512;

/// What the fact sheet asks of each architecture, in the tiny shape.
Shapes expected_tensors(const std::string& architecture, bool experts) {
  Shapes t{{"token_embd.weight", {kD, kV}}, {"output_norm.weight", {kD}}, {"output.weight", {kD, kV}}};
  const int64_t kv = architecture == "olmoe" ? kD : 2 * kHd;
  for (const std::string b : {"blk.0.", "blk.1."}) {
    const char* norm = architecture == "gpt-oss" ? "post_attention_norm.weight" : "ffn_norm.weight";
    t[b + "attn_norm.weight"] = t[b + norm] = {kD};
    t[b + "attn_q.weight"] = {kD, kH * kHd};
    t[b + "attn_k.weight"] = t[b + "attn_v.weight"] = {kD, kv};
    t[b + "attn_output.weight"] = {kH * kHd, kD};
    if (architecture == "qwen3moe" || architecture == "qwen3")
      t[b + "attn_q_norm.weight"] = t[b + "attn_k_norm.weight"] = {kHd};
    if (architecture == "olmoe") t[b + "attn_q_norm.weight"] = t[b + "attn_k_norm.weight"] = {kD};
    if (architecture == "qwen2moe" || architecture == "qwen2" || architecture == "gpt-oss") {
      t[b + "attn_q.bias"] = {kH * kHd};
      t[b + "attn_k.bias"] = t[b + "attn_v.bias"] = {kv};
    }
    if (experts) {
      t[b + "ffn_gate_inp.weight"] = {kD, kE};
      t[b + "ffn_gate_exps.weight"] = t[b + "ffn_up_exps.weight"] = {kD, kF, kE};
      t[b + "ffn_down_exps.weight"] = {kF, kD, kE};
    } else {
      t[b + "ffn_gate.weight"] = t[b + "ffn_up.weight"] = {kD, kF};
      t[b + "ffn_down.weight"] = {kF, kD};
    }
    if (architecture == "gpt-oss") {
      t[b + "attn_output.bias"] = {kD};
      t[b + "attn_sinks.weight"] = {kH};
      t[b + "ffn_gate_inp.bias"] = {kE};
      t[b + "ffn_gate_exps.bias"] = t[b + "ffn_up_exps.bias"] = {kF, kE};
      t[b + "ffn_down_exps.bias"] = {kD, kE};
    }
    if (architecture == "qwen2moe") {
      t[b + "ffn_gate_inp_shexp.weight"] = {kD};
      t[b + "ffn_gate_shexp.weight"] = t[b + "ffn_up_shexp.weight"] = {kD, kFs};
      t[b + "ffn_down_shexp.weight"] = {kFs, kD};
    }
  }
  return t;
}

void expect_tensors(const GgufFile& file, const Shapes& expected) {
  EXPECT_EQ(file.tensors().size(), expected.size());
  for (const auto& [name, shape] : expected) {
    const TensorInfo* tensor = file.find_tensor(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(std::vector<int64_t>(tensor->shape.begin(), tensor->shape.begin() + tensor->n_dims), shape) << name;
    const bool matrix = shape.size() > 1 && name.find("ffn_gate_inp.") == std::string::npos && !name.ends_with(".bias");
    EXPECT_TRUE(matrix || tensor->type == TensorType::f32) << name;
  }
}

struct Made {
  std::string architecture;
  bool experts;
};

std::ostream& operator<<(std::ostream& out, const Made& made) {
  return out << made.architecture << (made.experts ? " with experts" : ", dense");
}

class SynthEveryArchitecture : public ::testing::TestWithParam<Made> {};

TEST_P(SynthEveryArchitecture, HasTheTensorsTheSheetSays) {
  const auto& [architecture, experts] = GetParam();
  const TempDir dir;
  for (const char* type : {"f32", "f16", "q8_0", "q4_0", "q4_k_m", "mxfp4", "iq4_nl"}) {
    SCOPED_TRACE(type);
    SynthOptions options;
    options.architecture = architecture;
    options.type = type;
    if (!experts) options.set["E"] = 0;
    synthesize(options, dir / "m.gguf");
    const GgufFile file = GgufFile::open(dir / "m.gguf");
    EXPECT_EQ(file.need_string("general.architecture"), architecture);
    expect_tensors(file, expected_tensors(architecture, experts));
    EXPECT_NO_THROW(check_tensor_data(file));

    const EntryMap map = EntryMap::from_gguf(file, 3);
    ASSERT_EQ(map.layers.size(), experts ? 2u : 0u);
    for (const LayerEntries& layer : map.layers) {
      EXPECT_EQ(layer.n_expert, kE);
      ASSERT_EQ(layer.slices.size(), 3u);
      for (const SliceSource& slice : layer.slices)
        EXPECT_EQ(slice.slice_bytes, row_bytes(slice.type, slice.columns) * static_cast<uint64_t>(slice.rows));
      const TensorInfo* down = file.find_tensor(fmt::format("blk.{}.ffn_down_exps.weight", layer.layer));
      EXPECT_EQ(layer.slices[2].offset, down->offset);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SynthEveryArchitecture,
                         ::testing::Values(Made{"qwen3moe", true}, Made{"qwen2moe", true}, Made{"olmoe", true},
                                           Made{"gpt-oss", true}, Made{"llama", true}, Made{"llama", false},
                                           Made{"qwen2", false}, Made{"qwen3", false}),
                         [](const auto& made) {
                           std::string name = made.param.architecture + (made.param.experts ? "Experts" : "Dense");
                           std::erase(name, '-');
                           return name;
                         });

/// Families whose layers differ: what is made is loaded.
TEST(Synth, LatentAndRecurrentModelsLoad) {
  const TempDir dir;
  const auto compute = make_cpu_compute({.threads = 1});
  for (const char* architecture : {"deepseek2", "qwen3next", "deepseek4"}) {
    for (const char* type : {"f32", "q4_k_m", "q8_0", "mxfp4", "nvfp4"}) {
      SCOPED_TRACE(fmt::format("{} {}", architecture, type));
      SynthOptions options;
      options.architecture = architecture;
      options.type = type;
      options.layers = 5;
      options.set = {{"D", 128}, {"F", 64}, {"Fs", 64}, {"V", 300}, {"hd", 32}, {"E", 16}};
      synthesize(options, dir / "m.gguf");
      const GgufFile file = GgufFile::open(dir / "m.gguf");
      EXPECT_NO_THROW(check_tensor_data(file));
      EXPECT_EQ(load_model(file, *compute)->hparams().layers, 5);
    }
  }
}

TEST(Synth, TypesFollowTheMixture) {
  const TempDir dir;
  const auto type_of = [&](const char* type, const char* tensor) {
    SynthOptions options;
    options.type = type;
    options.layers = 8;
    options.set = {{"E", 4}, {"F", 256}};
    synthesize(options, dir / "m.gguf");
    return GgufFile::open(dir / "m.gguf").find_tensor(tensor)->type;
  };
  EXPECT_EQ(type_of("q4_k_m", "blk.0.ffn_down_exps.weight"), TensorType::q6_k);
  EXPECT_EQ(type_of("q4_k_m", "blk.1.ffn_down_exps.weight"), TensorType::q4_k);
  EXPECT_EQ(type_of("q4_k_m", "output.weight"), TensorType::q6_k);
  EXPECT_EQ(type_of("MXFP4", "blk.1.ffn_up_exps.weight"), TensorType::mxfp4);
  EXPECT_EQ(type_of("mxfp4", "blk.1.attn_q.weight"), TensorType::q8_0);
  EXPECT_EQ(type_of("iq4_nl", "blk.1.attn_q.weight"), TensorType::iq4_nl);
  EXPECT_EQ(type_of("q2_k", "blk.1.ffn_down_exps.weight"), TensorType::q3_k);
  EXPECT_EQ(type_of("iq1_s", "blk.1.ffn_down_exps.weight"), TensorType::iq1_s);
  EXPECT_EQ(type_of("iq2_s", "output.weight"), TensorType::iq2_s);  // no file type: all matrices alike
  EXPECT_EQ(type_of("f16", "token_embd.weight"), TensorType::f16);
}

TEST(Synth, PureModelsHaveOneTypeForAllMatrices) {
  const TempDir dir;
  SynthOptions options;
  options.set = {{"E", 4}, {"F", 256}};
  options.pure = true;
  for (const auto& [name, type] : {std::pair("tq2_0", TensorType::tq2_0), std::pair("q2_k", TensorType::q2_k)}) {
    options.type = name;
    synthesize(options, dir / "m.gguf");
    for (const TensorInfo& tensor : GgufFile::open(dir / "m.gguf").tensors()) {
      EXPECT_TRUE(tensor.type == type || tensor.type == TensorType::f32) << tensor.name;
      if (tensor.name == "output.weight" || tensor.name == "token_embd.weight") {
        EXPECT_EQ(tensor.type, type) << tensor.name;
      }
    }
  }
}

TEST(Synth, NamedShapesHaveTheirSize) {
  // Files of these models that people use have about these sizes.
  const std::map<std::string, std::pair<const char*, double>> known{
      {"qwen3-30b-a3b", {"q4_k_m", 18.6e9}},    {"mixtral-8x7b", {"q4_0", 26.4e9}},
      {"olmoe-1b-7b", {"q4_k_m", 4.2e9}},       {"qwen1.5-moe-a2.7b", {"q8_0", 15.2e9}},
      {"llama-3.2-1b", {"q8_0", 1.32e9}},       {"qwen2.5-0.5b", {"f16", 0.99e9}},
      {"qwen3-0.6b", {"q8_0", 0.64e9}},         {"gpt-oss-20b", {"mxfp4_moe", 12.1e9}},
      {"gpt-oss-120b", {"mxfp4_moe", 63.4e9}},  {"deepseek-v3", {"q4_k_m", 404.5e9}},
      {"kimi-k2", {"q4_k_m", 621.0e9}},         {"qwen3-next-80b-a3b", {"q4_k_m", 48.5e9}},
      {"qwen3-235b-a22b", {"q4_k_m", 142.2e9}}, {"qwen3-coder-480b-a35b", {"q4_k_m", 290.0e9}},
      {"mixtral-8x22b", {"q4_k_m", 85.6e9}},
  };
  size_t seen = 0;
  for (const SynthShape& shape : synth_shapes()) {
    const auto found = known.find(std::string(shape.name));
    if (found == known.end()) continue;
    ++seen;
    SynthOptions options;
    options.like = shape.name;
    options.type = found->second.first;
    const double bytes = static_cast<double>(plan_synthesis(options).file_bytes());
    EXPECT_NEAR(bytes / found->second.second, 1.0, 0.03) << shape.name << " has " << bytes;
  }
  EXPECT_EQ(seen, known.size());
}

TEST(Synth, MetadataIsTheShape) {
  const TempDir dir;
  SynthOptions options;
  options.like = "llama-3.2-1b";
  options.layers = 1;
  options.set = {{"V", 300}, {"D", 64}, {"F", 32}, {"H", 4}, {"KV", 1}, {"hd", 16}};
  options.type = "f32";
  synthesize(options, dir / "m.gguf");
  const GgufFile file = GgufFile::open(dir / "m.gguf");
  EXPECT_EQ(file.get_int("llama.block_count"), 1);
  EXPECT_EQ(file.get_int("llama.embedding_length"), 64);
  EXPECT_EQ(file.get_int("llama.attention.head_count_kv"), 1);
  EXPECT_EQ(file.get_int("llama.rope.dimension_count"), 16);
  EXPECT_EQ(file.get_float("llama.rope.freq_base"), 5e5);
  EXPECT_EQ(file.get_int("llama.expert_count"), std::nullopt);
  EXPECT_EQ(file.get_int("general.file_type"), 0);
  EXPECT_EQ(file.get_strings("tokenizer.ggml.tokens")->size(), 300u);
  EXPECT_EQ(file.find_tensor("output.weight"), nullptr) << "tied";
  const TensorInfo* factors = file.find_tensor("rope_freqs.weight");
  ASSERT_NE(factors, nullptr);
  ASSERT_EQ(factors->shape[0], 8);
  float first = 0, last = 0;
  std::memcpy(&first, file.data(*factors).data(), 4);
  std::memcpy(&last, file.data(*factors).data() + 28, 4);
  EXPECT_EQ(first, 1.0f) << "high frequencies stay";
  EXPECT_EQ(last, 32.0f) << "low ones are slowed by the factor";
}

TEST(Synth, BytesDependOnSeedAndNameOnly) {
  const TempDir dir;
  const auto make = [&](uint64_t seed, int layers) {
    SynthOptions options;
    options.seed = seed;
    options.layers = layers;
    synthesize(options, dir / "m.gguf");
    const GgufFile file = GgufFile::open(dir / "m.gguf");
    const auto data = file.data(*file.find_tensor("blk.1.ffn_up_exps.weight"));
    return std::vector<std::byte>(data.begin(), data.end());
  };
  const auto first = make(7, 2);
  EXPECT_EQ(first, make(7, 2));
  EXPECT_EQ(first, make(7, 3));
  EXPECT_NE(first, make(8, 2));
}

TEST(Synth, SkewMakesSomeExpertsLouder) {
  const TempDir dir;
  const auto spread = [&](double skew) {
    SynthOptions options;
    options.skew = skew;
    options.set["E"] = 64;
    synthesize(options, dir / "m.gguf");
    const GgufFile file = GgufFile::open(dir / "m.gguf");
    const auto* router =
        reinterpret_cast<const float*>(file.data(*file.find_tensor("blk.0.ffn_gate_inp.weight")).data());
    double least = 1e30, most = 0;
    for (int e = 0; e < 64; ++e) {
      double square = 0;
      for (int c = 0; c < kD; ++c) square += static_cast<double>(router[e * kD + c]) * router[e * kD + c];
      least = std::min(least, std::sqrt(square));
      most = std::max(most, std::sqrt(square));
    }
    return most / least;
  };
  EXPECT_LT(spread(0.0), 1.5);
  EXPECT_GT(spread(1.0), 10.0);
}

TEST(Synth, WrongOptionsAreUsageErrors) {
  const auto error_of = [](const std::function<void(SynthOptions&)>& change) -> std::string {
    SynthOptions options;
    change(options);
    try {
      (void)plan_synthesis(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of([](auto& o) { o.like = "gpt-9"; }),
              HasSubstr("no shape \"gpt-9\"; known are qwen3-30b-a3b, qwen3-235b-a22b"));
  EXPECT_THAT(error_of([](auto& o) { o.architecture = "bert"; }),
              HasSubstr("\"bert\" cannot be made; known are qwen3moe, qwen2moe"));
  EXPECT_THAT(error_of([](auto& o) { o.type = "q9"; }), HasSubstr("type \"q9\" cannot be made; known are f32, f16"));
  EXPECT_THAT(error_of([](auto& o) { o.type = "q1_0"; }), HasSubstr("type \"q1_0\" cannot be made"));
  EXPECT_THAT(error_of([](auto& o) { o.set["X"] = 1; }), HasSubstr("no number \"X\""));
  EXPECT_THAT(error_of([](auto& o) { o.set["V"] = 100; }), HasSubstr("V = 100 is out of range, 259 to"));
  EXPECT_THAT(error_of([](auto& o) { o.layers = -1; }), HasSubstr("L = -1 is out of range"));
  EXPECT_THAT(error_of([](auto& o) { o.set["K"] = 9; }), HasSubstr("cannot pick K = 9 of E = 8"));
  EXPECT_THAT(error_of([](auto& o) { o.set["E"] = 0; }), HasSubstr("needs experts; set E and K"));
  EXPECT_THAT(error_of([](auto& o) { o.set["KV"] = 3; }), HasSubstr("cannot share KV = 3 heads among H = 4"));
  EXPECT_THAT(error_of([](auto& o) { o.set["hd"] = 15; }), HasSubstr("odd length hd = 15"));
  EXPECT_THAT(error_of([](auto& o) { o.architecture = "olmoe", o.set["D"] = 64; }),
              HasSubstr("must have H * hd = D, but 4 * 64 is not 64"));
  EXPECT_THAT(error_of([](auto& o) { o.architecture = "olmoe", o.set["KV"] = 2; }),
              HasSubstr("must have KV = H, but they are 2 and 4"));
  EXPECT_THAT(error_of([](auto& o) { o.architecture = "qwen2moe", o.set["Fs"] = 0; }),
              HasSubstr("needs a shared expert; set Fs"));
  EXPECT_THAT(error_of([](auto& o) { o.skew = -1; }), HasSubstr("skew of -1 makes no sense"));
}

/// What is planned at the limits of a shape's numbers can be loaded; one more is refused before anything is written.
TEST(Synth, RefusesWhatLoadingWouldRefuse) {
  const std::map<std::string, std::map<std::string, int64_t>> largest{
      {"L", {{"L", kMaxLayers}, {"D", 32}, {"F", 32}, {"E", 2}, {"K", 1}}},
      {"E", {{"E", kMaxExpertCount}, {"D", 32}, {"F", 32}, {"L", 1}}},
      {"K", {{"K", kMaxExpertCount}, {"E", kMaxExpertCount}, {"D", 32}, {"F", 32}, {"L", 1}}},
      {"H", {{"H", kMaxHeads}, {"hd", 2}, {"D", 32}, {"F", 32}, {"L", 1}}},
      {"KV", {{"KV", kMaxHeads}, {"H", kMaxHeads}, {"hd", 2}, {"D", 32}, {"F", 32}, {"L", 1}}},
      {"hd", {{"hd", kMaxHeadLength}, {"D", 32}, {"F", 32}, {"L", 1}}},
  };
  const TempDir dir;
  const auto compute = make_cpu_compute({.threads = 1});
  for (const auto& [name, set] : largest) {
    SCOPED_TRACE(name);
    SynthOptions options;
    options.set = set;
    synthesize(options, dir / "m.gguf");
    EXPECT_NO_THROW(load_model(GgufFile::open(dir / "m.gguf"), *compute));
    options.set[name] += 1;
    try {
      (void)plan_synthesis(options);
      FAIL() << name << " = " << options.set[name] << " is planned";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_THAT(error.what(), HasSubstr(fmt::format("{} = {} is out of range", name, options.set[name])));
    }
  }
}

TEST(SynthBlocks, EveryTypeHasTheDeviationAsked) {
  constexpr int64_t kN = 1 << 18;
  for (const TypeInfo& type : known_types()) {
    if (!type.computable) continue;
    SCOPED_TRACE(type.name);
    for (const double deviation : {1.0, 0.0083}) {
      std::vector<std::byte> blocks;
      random_weights(type.type, kN, deviation, 3)([&](const void* data, size_t bytes) {
        const auto* from = static_cast<const std::byte*>(data);
        blocks.insert(blocks.end(), from, from + bytes);
      });
      ASSERT_EQ(blocks.size(), row_bytes(type.type, kN));
      std::vector<float> weights(kN);
      decode(type.type, blocks.data(), weights.data(), kN);
      double sum = 0, square = 0;
      for (const float w : weights) {
        sum += static_cast<double>(w);
        square += static_cast<double>(w) * static_cast<double>(w);
      }
      EXPECT_LT(std::abs(sum / kN), 0.01 * deviation);
      EXPECT_NEAR(std::sqrt(square / kN) / deviation, 1.0, 0.02);
    }
  }
}

TEST(SynthVocab, EveryTokenIsReachedAndEveryTextComesBack) {
  const TempDir dir;
  for (const int64_t n : {259, 300, 364, 365, 470, 600, 3000}) {
    GgufWriter writer;
    set_synth_vocab(writer, n);
    writer.write(dir / "v.gguf");
    const GgufFile file = GgufFile::open(dir / "v.gguf");
    const auto tokenizer = Tokenizer::load(file);
    ASSERT_EQ(tokenizer->vocab_size(), n);
    EXPECT_EQ(tokenizer->bos(), 256);
    EXPECT_EQ(tokenizer->eos(), 258);
    EXPECT_TRUE(tokenizer->is_control(257));
    const std::string text = "Once upon a time\n\n  bababa 12 caf\xc3\xa9 na\xc3\xafve";
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    for (TokenId id = 259; id < n; ++id) {
      const auto ids = tokenizer->encode(tokenizer->piece(id));
      ASSERT_EQ(ids, std::vector<TokenId>{id}) << tokenizer->piece(id);
    }
  }
}

}  // namespace
}  // namespace moetier
