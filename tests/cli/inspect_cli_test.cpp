// inspect: of models that run, and of those that do not, stream, or have no text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/process.h"
#include "gguf/raw_gguf.h"
#include "model/rewrite.h"

namespace moetier {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::Rewritten;

json inspect(const std::string& path) {
  const ProcessResult result = run_moetier({"inspect", path, "--json"});
  EXPECT_EQ(result.code, 0) << result.err;
  return json::parse(result.out);
}

std::vector<std::string> problems(const json& report) {
  return report["problems"].get<std::vector<std::string>>();
}

TEST(InspectCli, NamesAllThatIsMissingOrMisshapen) {
  Rewritten broken("mini-qwen3moe-f32",
                   {.drop_tensors = {"blk.0.attn_q_norm.weight", "blk.1.ffn_up_exps.weight", "output_norm.weight"},
                    .reshape = {{"blk.0.ffn_gate_inp.weight", TensorType::f32, {64, 9}},
                                {"blk.1.attn_output.weight", TensorType::i32, {64, 64}}},
                    .add = {{"blk.1.attn_sinks.weight", TensorType::f32, {4}}}});
  const json report = inspect(broken.file().path());
  EXPECT_EQ(report["runs"], false);
  const std::vector<std::string> all = problems(report);
  EXPECT_EQ(all.size(), 5u) << report["problems"];
  EXPECT_EQ(report["reason"], all.front());
  EXPECT_EQ(report["further_problems"], 0);
  EXPECT_THAT(all, Contains(AllOf(HasSubstr("output_norm.weight is missing"), HasSubstr("[64]"))));
  EXPECT_THAT(all, Contains(HasSubstr("blk.0.attn_q_norm.weight is missing")));
  EXPECT_THAT(all, Contains(HasSubstr("blk.1.ffn_up_exps.weight is missing")));
  EXPECT_THAT(all, Contains(HasSubstr("blk.0.ffn_gate_inp.weight has shape [64, 9], but qwen3moe needs [64, 8]")));
  EXPECT_THAT(all, Contains(HasSubstr("blk.1.attn_output.weight is of type i32")));
  EXPECT_EQ(report["ignored_tensors"], json::array({"blk.1.attn_sinks.weight"}));
  const std::string text = run_moetier({"inspect", broken.file().path()}).out;
  for (const std::string& sentence : all) EXPECT_THAT(text, HasSubstr("  " + sentence + "\n"));
  EXPECT_THAT(text, HasSubstr("ignored:\n  blk.1.attn_sinks.weight\n"));
  // What the tiers would hold is told all the same.
  EXPECT_EQ(report["tiers"]["mode"], "resident");
  EXPECT_GT(report["tiers"]["host_entry_bytes"], 0);
  EXPECT_GT(report["tiers"]["context_bytes"], 0);
  const ProcessResult run = run_moetier({"run", "-m", broken.file().path(), "-p", "x", "-n", "1"});
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.err, HasSubstr("blk.1.ffn_up_exps.weight is missing"));
}

TEST(InspectCli, NamesAllKeysThatAreMissingOrUnknown) {
  // Without the counts there are no shapes to hold tensors against.
  Rewritten keyless("mini-qwen3moe-f32",
                    {.drop_keys = {"qwen3moe.embedding_length", "qwen3moe.attention.layer_norm_rms_epsilon",
                                   "qwen3moe.expert_used_count"}});
  const json report = inspect(keyless.file().path());
  EXPECT_EQ(report["runs"], false);
  const std::vector<std::string> all = problems(report);
  EXPECT_EQ(all.size(), 3u) << report["problems"];
  for (const char* key : {"embedding_length", "attention.layer_norm_rms_epsilon", "expert_used_count"})
    EXPECT_THAT(all, Contains(HasSubstr(std::string("the key qwen3moe.") + key + " is missing")));
  EXPECT_TRUE(report["token_cycle_bytes"].is_null());
  EXPECT_EQ(report["layers"].size(), 2u);
  EXPECT_TRUE(report["layers"][0]["top_k"].is_null());
  EXPECT_GT(report["tiers"]["host_entry_bytes"], 0);
  EXPECT_TRUE(report["tiers"]["context_bytes"].is_null());
  EXPECT_THAT(run_moetier({"inspect", keyless.file().path()}).out, HasSubstr("context and buffers not known"));

  // A router and a clamp that no graph knows hide no tensor.
  Rewritten odd("mini-glm4moe-f32",
                {.drop_keys = {"glm4moe.expert_gating_func"},
                 .drop_tensors = {"blk.2.exp_probs_b.bias"},
                 .set_ints = {{"glm4moe.expert_gating_func", {9}}, {"glm4moe.swiglu_clamp_exp", {7, 7, 7}}}});
  const std::vector<std::string> three = problems(inspect(odd.file().path()));
  EXPECT_EQ(three.size(), 3u);
  EXPECT_THAT(three, Contains(HasSubstr("glm4moe.expert_gating_func is 9")));
  EXPECT_THAT(three, Contains(HasSubstr("glm4moe.swiglu_clamp_exp")));
  EXPECT_THAT(three, Contains(HasSubstr("blk.2.exp_probs_b.bias is missing")));
}

TEST(InspectCli, CutsALongListAndCountsTheRest) {
  const std::string path = testing::fixture("mini-qwen35moe-f32");
  const json whole = inspect(path);
  EXPECT_EQ(whole["runs"], true);
  EXPECT_EQ(whole["problems"], json::array());
  EXPECT_EQ(whole["ignored_tensors"], json::array());
  std::vector<std::string> names;
  for (const json& tensor : whole["tensors"]) {
    const auto name = tensor["name"].get<std::string>();
    if (name.starts_with("blk.") && !name.ends_with(".bias")) names.push_back(name);
  }
  Rewritten empty("mini-qwen35moe-f32", {.drop_tensors = names});
  const json report = inspect(empty.file().path());
  EXPECT_EQ(report["problems"].size(), 32u);
  EXPECT_GT(report["further_problems"], 0);
  EXPECT_THAT(run_moetier({"inspect", empty.file().path()}).out,
              HasSubstr("  and " + report["further_problems"].dump() + " more\n"));
}

TEST(InspectCli, OfAnUnknownArchitectureTellsWhatTheFileTells) {
  const std::string path = testing::fixture("mini-qwen3moe-q8_0");
  const ProcessResult result =
      run_moetier({"inspect", path, "--json", "--override-kv", "general.architecture=str:mamba9"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json report = json::parse(result.out), known = inspect(path);
  EXPECT_EQ(report["runs"], false);
  EXPECT_EQ(report["problems"].size(), 1u);
  EXPECT_THAT(report["reason"].get<std::string>(), HasSubstr("mamba9"));
  EXPECT_EQ(report["entry_bytes_total"], known["entry_bytes_total"]);
  EXPECT_EQ(report["tiers"]["host_entry_bytes"], known["tiers"]["host_entry_bytes"]);
  EXPECT_EQ(report["tiers"]["host_dense_bytes"], known["tiers"]["host_dense_bytes"]);
  EXPECT_TRUE(report["tiers"]["context_bytes"].is_null());
}

TEST(InspectCli, SaysOfAModelWithoutTokenizerThatItTakesIds) {
  const GgufFile from = GgufFile::open(testing::fixture("mini-qwen3moe-f32"));
  testing::Changes changes;
  for (const auto& [key, value] : from.metadata()) {
    if (key.starts_with("tokenizer.")) changes.drop_keys.push_back(key);
  }
  ASSERT_FALSE(changes.drop_keys.empty());
  Rewritten without("mini-qwen3moe-f32", changes);
  const json report = inspect(without.file().path());
  EXPECT_EQ(report["runs"], true) << report["reason"];
  EXPECT_EQ(report["text"]["readable"], false);
  EXPECT_THAT(report["text"]["reason"].get<std::string>(), HasSubstr("tokenizer"));
  EXPECT_THAT(run_moetier({"inspect", without.file().path()}).out, HasSubstr("text: token ids only: "));
  const TemporaryFolder folder;
  EXPECT_EQ(run_moetier({"logits", "-m", without.file().path(), "--tokens", "1,2", "-o", folder.file("l")}).code, 0);
}

/// A file of holes whose experts no machine can hold: 6 TiB of them.
std::string write_huge(const std::string& path) {
  constexpr uint32_t kWidth = 8192, kExperts = 1024, kRows = 65536, kVocab = 64, kHead = 64, kString = 8, kFloat = 6;
  test::RawGguf file;
  file.kv("general.architecture", kString, test::raw_string("qwen3moe"));
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, uint32_t>>{{"context_length", 512},
                                                               {"embedding_length", kWidth},
                                                               {"block_count", 1},
                                                               {"feed_forward_length", kRows},
                                                               {"expert_feed_forward_length", kRows},
                                                               {"attention.head_count", 1},
                                                               {"attention.head_count_kv", 1},
                                                               {"attention.key_length", kHead},
                                                               {"attention.value_length", kHead},
                                                               {"expert_count", kExperts},
                                                               {"expert_used_count", 8},
                                                               {"vocab_size", kVocab}})
    file.kv_u32(std::string("qwen3moe.") + key, value);
  file.kv("qwen3moe.attention.layer_norm_rms_epsilon", kFloat, test::raw(1e-6f));
  uint64_t end = 0;
  const auto add = [&](const char* name, const std::vector<int64_t>& shape) {
    file.tensor(name, shape, 0, end);
    uint64_t bytes = sizeof(float);
    for (const int64_t n : shape) bytes *= static_cast<uint64_t>(n);
    end += (bytes + 31) / 32 * 32;
  };
  add("token_embd.weight", {kWidth, kVocab});
  add("output_norm.weight", {kWidth});
  add("output.weight", {kWidth, kVocab});
  for (const char* norm : {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"}) add(norm, {kWidth});
  for (const char* norm : {"blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight"}) add(norm, {kHead});
  for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"})
    add(name, {kWidth, kHead});
  add("blk.0.attn_output.weight", {kHead, kWidth});
  add("blk.0.ffn_gate_inp.weight", {kWidth, kExperts});
  add("blk.0.ffn_gate_exps.weight", {kWidth, kRows, kExperts});
  add("blk.0.ffn_up_exps.weight", {kWidth, kRows, kExperts});
  add("blk.0.ffn_down_exps.weight", {kRows, kWidth, kExperts});
  const std::string header = file.build();
  test::write_bytes(path, header);
  std::error_code refused;
  std::filesystem::resize_file(path, header.size() + end, refused);
  return refused ? refused.message() : "";
}

TEST(InspectCli, TellsHowAModelThatIsStreamedIsSplitOverTheTiers) {
  const TemporaryFolder folder;
  const std::string path = folder.file("huge.gguf");
  if (const std::string refused = write_huge(path); !refused.empty())
    GTEST_SKIP() << "this file system holds no file of 6 TiB, holes or not: " << refused;
  const json report = inspect(path);
  EXPECT_EQ(report["runs"], true) << report["reason"];
  const json& tiers = report["tiers"];
  EXPECT_EQ(tiers["mode"], "stream") << tiers;
  const auto host = tiers["host_entry_bytes"].get<uint64_t>(), file = tiers["file_entry_bytes"].get<uint64_t>();
  EXPECT_GT(host, 0u);
  EXPECT_GT(file, uint64_t{1} << 42);
  EXPECT_EQ(host + file, report["entry_bytes_total"]);
  EXPECT_LE(host, tiers["memory_available_bytes"].get<uint64_t>());
  EXPECT_EQ(tiers["host_dense_bytes"], report["dense_bytes"]);
  EXPECT_THAT(run_moetier({"inspect", path}).out, HasSubstr(" in the file only"));
}

}  // namespace
}  // namespace moetier
