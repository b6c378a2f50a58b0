// What is measured from the command line: the machine, the share of its bandwidth, operations, the first token.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/process.h"

namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

const std::string kDemo = MOETIER_SOURCE_DIR "/models/fairytale-moe-q8_0.gguf";

TEST(MeasuringCli, TheMachineTellsItsLimits) {
  const ProcessResult result = run_moetier({"bench", "--machine", "-m", kDemo, "--threads", "1", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json limits = json::parse(result.out);
  ASSERT_EQ(limits["threads"].size(), 1u);
  EXPECT_GT(limits["threads"][0]["read_bytes_per_second"], 1e8);
  EXPECT_GT(limits["threads"][0]["int8_macs_per_second"], 1e7);
  EXPECT_GT(limits["threads"][0]["f32_macs_per_second"], 1e6);
  // The demo model is too small to time a drive with, and that is said.
  EXPECT_TRUE(limits["drive"]["random_bytes_per_second"].is_null());
  EXPECT_FALSE(limits["drive"]["why_unknown"].get<std::string>().empty());
  EXPECT_TRUE(limits["huge_pages"].contains("granted_share"));
  EXPECT_EQ(run_moetier({"bench", "--machine", "--work", "/no/such/directory"}).code, 1);
}

TEST(MeasuringCli, BenchTellsTheShareOfTheBandwidth) {
  const ProcessResult result =
      run_moetier({"bench", "-m", kDemo, "-p", "0", "-n", "8", "-r", "1", "--threads", "1", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json bench = json::parse(result.out);
  const json& memory = bench["memory_bandwidth"];
  // A token reads all dense weights but the table of embeddings, and no more than the file has.
  EXPECT_GT(memory["weight_bytes_per_token"], 1e5);
  EXPECT_LT(memory["weight_bytes_per_token"], bench["model"]["file_bytes"].get<double>());
  EXPECT_GT(memory["share"], 0);
  EXPECT_GT(bench["first_token_after_load_seconds"], 0);
  const ProcessResult without =
      run_moetier({"bench", "-m", kDemo, "-p", "0", "-n", "2", "-r", "1", "--no-read-bandwidth", "--json"});
  EXPECT_TRUE(json::parse(without.out)["memory_bandwidth"].is_null());
}

TEST(MeasuringCli, OperationsAreTimedOnRequest) {
  const TemporaryFolder folder;
  const std::string stats = folder.file("stats.json");
  const std::vector<std::string> run{"run",    "-m", kDemo,          "-p", "Once upon a time", "-n", "6",
                                     "--temp", "0",  "--stats-json", stats};
  const ProcessResult plain = run_moetier(run);
  EXPECT_THAT(plain.err, Not(HasSubstr("operations, ")));
  const json without = json::parse(slurp(stats));
  EXPECT_FALSE(without.contains("ops"));
  EXPECT_GT(without["first_token_s"], 0);
  EXPECT_GT(without["decode"]["weight_mib_per_token"], 0.1);
  const ProcessResult profiled =
      run_moetier(run, "", {"GGML_CPU_OP_PROFILE=1", "GGML_SCHED_PROFILE=1", "GGML_MMID_CHUNK=1"});
  EXPECT_EQ(profiled.out, plain.out);
  for (const char* line : {"operations, decoding: 5 rows", "operations, prompts", "experts gate, up", "experts down",
                           "attention", "logits q8_0", "a token took", "computing experts"}) {
    EXPECT_THAT(profiled.err, HasSubstr(line));
  }
  const json ops = json::parse(slurp(stats))["ops"];
  EXPECT_EQ(ops["decode"]["rows"], 5);
  double sum = 0;
  for (const json& op : ops["decode"]["ops"]) sum += op["seconds"].get<double>();
  EXPECT_NEAR(sum, ops["decode"]["ops_s"].get<double>(), 1e-9);
  EXPECT_LE(sum, ops["decode"]["batch_s"].get<double>());
}

// No layout beside the file's is kept: weights, KV cache and at most 200 MiB, in every residency that holds all
// experts.
TEST(MeasuringCli, PeakMemoryIsTheWeightsAndLittleMore) {
  const TemporaryFolder folder;
  const std::string model = folder.file("model.gguf"), stats = folder.file("stats.json");
  const ProcessResult made = run_moetier(
      {"synth", "--like", "qwen3-30b-a3b", "--layers", "1", "--set", "V=32000", "--type", "q4_k_m", "-o", model});
  ASSERT_EQ(made.code, 0) << made.err;
  const double file_mib = static_cast<double>(std::filesystem::file_size(model)) / (1 << 20);
  ASSERT_GT(file_mib, 300);  // a second copy of it would not pass
  for (const char* experts : {"resident", "mmap"}) {
    const ProcessResult run = run_moetier({"bench", "-m", model, "-p", "256", "-n", "4", "-r", "1", "-c", "512",
                                           "--experts", experts, "--no-read-bandwidth", "--stats-json", stats});
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_LT(json::parse(slurp(stats))["peak_rss_mib"].get<double>(), file_mib + 200) << experts;
  }
}

}  // namespace
