// simulate from the command line, and that it counts what the engine counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/process.h"

namespace moetier {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kDemo = MOETIER_SOURCE_DIR "/models/fairytale-moe-q8_0.gguf";

/// Two layers of four experts; a prompt of two tokens, then four decoded ones that all pick expert 1.
std::string small_trace() {
  std::string text =
      "# route_trace v1\n# model=m arch=a n_layer=2 n_expert=4 n_expert_used=1\n"
      "# layer=0 expert_bytes=1048576 dense_bytes=0\n# layer=1 expert_bytes=1048576 dense_bytes=0\n"
      "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n";
  for (int layer = 0; layer < 2; ++layer) {
    for (int step = 0; step < 2; ++step)
      text += "0,0," + std::to_string(step) + "," + std::to_string(layer) + ",0," + std::to_string(step) +
              ",1.0,0,1048576\n";
  }
  for (int step = 2; step < 6; ++step) {
    for (int layer = 0; layer < 2; ++layer)
      text += "0,1," + std::to_string(step) + "," + std::to_string(layer) + ",0,1,1.0,1,0\n";
  }
  return text;
}

TEST(SimulateCommand, GivesHitsAndMissesOfDecodedTokens) {
  const TemporaryFolder folder;
  const std::string trace = folder.write("t.csv", small_trace());
  const ProcessResult one = run_moetier({"simulate", "--trace", trace, "--cache-mb", "8", "--policy", "lru", "--json"});
  ASSERT_EQ(one.code, 0) << one.err;
  const json record = json::parse(one.out);
  EXPECT_EQ(record["decode_hit_pct"], 100.0);
  EXPECT_EQ(record["hits"], 8);
  EXPECT_EQ(record["misses"], 0);
  EXPECT_EQ(record["prompt_misses"], 4);
  EXPECT_EQ(record["cache_cycle_mb"], 2.0);
  const ProcessResult none = run_moetier({"simulate", "--trace", trace, "--cache-mb", "0", "--json"});
  EXPECT_EQ(json::parse(none.out)["misses"], 8);
  EXPECT_EQ(json::parse(none.out)["bytes_per_token"], 2 << 20);
  const ProcessResult several = run_moetier({"simulate", "--trace", trace, "--cache-mb", "1,4", "--cache-mb", "8",
                                             "--policy", "belady", "--no-prompt", "--json"});
  ASSERT_EQ(several.code, 0) << several.err;
  const json runs = json::parse(several.out)["runs"];
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[2]["misses"], 2);
  EXPECT_EQ(runs[2]["prompt_misses"], 0);
}

TEST(SimulateCommand, ComparesAllPolicies) {
  const TemporaryFolder folder;
  const std::string trace = folder.write("t.csv", small_trace());
  const ProcessResult result = run_moetier({"simulate", "--trace", trace, "--cache-mb", "1,8", "--policy", "all"});
  ASSERT_EQ(result.code, 0) << result.err;
  for (const char* const policy : {"lru", "heat", "cycle", "reuse", "default", "adaptive", "belady"})
    EXPECT_THAT(result.out, HasSubstr(std::string("\n") + policy));
  const ProcessResult shape = run_moetier(
      {"simulate", "--trace", trace, "--cache-mb", "4", "--shape", "5x16x100000", "--policy", "default", "--json"});
  ASSERT_EQ(shape.code, 0) << shape.err;
  EXPECT_EQ(json::parse(shape.out)["layers"], 5);
}

TEST(SimulateCommand, TakesParametersOfPolicies) {
  const TemporaryFolder folder;
  const std::string trace = folder.write("t.csv", small_trace());
  const std::string spec = "adaptive:half-life=4:fill-every=1:swap-every=1:factor=1:margin=0";
  const ProcessResult result =
      run_moetier({"simulate", "--trace", trace, "--cache-mb", "1", "--policy", "adaptive," + spec});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\n" + spec + " "));
  EXPECT_THAT(result.out, HasSubstr("of them swapped in"));
}

TEST(SimulateCommand, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  const std::string trace = folder.write("t.csv", small_trace());
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--cache-mb", "8"}, "--trace"},
      {{"--trace", trace}, "--cache-mb"},
      {{"--trace", trace, "--cache-mb", "8,"}, "not a whole number"},
      {{"--trace", trace, "--cache-mb", "99999999999"}, "not a whole number"},
      {{"--trace", trace, "--cache-mb", "8", "--shape", "5x16"}, "LAYERSxEXPERTSxBYTES"},
      {{"--trace", trace, "--cache-mb", "8", "--shape", "5x16x0"}, "a 0 in it"},
      {{"--trace", trace, "--cache-mb", "8", "--shape", "1x1x1", "-m", kDemo}, "--shape"},
      {{"--trace", trace, "--cache-mb", "8", "--layers", "3"}, "2 layers"},
      {{"--trace", trace, "--cache-mb", "8", "--policy", "best"}, "--policy"},
      {{"--trace", trace, "--cache-mb", "8", "--policy", "adaptive:half-live=3"}, "half-life"},
  };
  for (const auto& [arguments, says] : cases) {
    std::vector<std::string> all = {"simulate"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const ProcessResult result = run_moetier(all);
    EXPECT_EQ(result.code, 2) << says;
    EXPECT_THAT(result.err, HasSubstr(says));
  }
  const ProcessResult few = run_moetier({"simulate", "--trace", trace, "--cache-mb", "8", "--shape", "1x1x4096"});
  EXPECT_EQ(few.code, 1);
  EXPECT_THAT(few.err, HasSubstr("1 experts"));
}

/// Records a run's routing, replays it on the same model, and compares every count.
TEST(SimulateCommand, CountsWhatTheEngineCounts) {
  const TemporaryFolder folder;
  const std::string trace = folder.file("t.csv"), stats = folder.file("s.json"), profile = folder.file("p.strp");
  const std::string text = folder.write("t.txt", "The fox went to the king and said: give me your youngest daughter.");
  ASSERT_EQ(run_moetier({"profile", kDemo, text, "-o", profile}).code, 0);
  for (const std::string policy : {"default", "lru", "heat", "cycle", "reuse", "adaptive", "pinned"}) {
    // Filled from a profile: pinned always, since it is about one, and others too at one size.
    for (const std::string mib : {"1", "3", "8"}) {
      std::vector<std::string> filled;
      if (policy == "pinned" || mib == "3") filled = {"--moe-cache-profile", profile};
      std::vector<std::string> arguments = {"run",
                                            "-m",
                                            kDemo,
                                            "-p",
                                            "Once upon a time there was a king",
                                            "-n",
                                            "40",
                                            "--temp",
                                            "0",
                                            "--experts",
                                            "stream",
                                            "--cache-mb",
                                            mib,
                                            "--force-cache",
                                            "--cache-policy",
                                            policy,
                                            "--ubatch",
                                            "4",
                                            "--route-trace",
                                            trace,
                                            "--stats-json",
                                            stats};
      arguments.insert(arguments.end(), filled.begin(), filled.end());
      const ProcessResult run = run_moetier(arguments);
      ASSERT_EQ(run.code, 0) << run.err;
      arguments = {"simulate", kDemo, "--trace", trace, "--cache-mb", mib, "--policy", policy, "--json"};
      arguments.insert(arguments.end(), filled.begin(), filled.end());
      const ProcessResult simulated = run_moetier(arguments);
      ASSERT_EQ(simulated.code, 0) << simulated.err;
      const json engine = json::parse(slurp(stats)), model = json::parse(simulated.out);
      EXPECT_EQ(engine["decode"]["cache_hits"], model["hits"]) << policy << " " << mib;
      EXPECT_EQ(engine["decode"]["cache_misses"], model["misses"]) << policy << " " << mib;
      EXPECT_EQ(engine["prefill"]["cache_hits"], model["prompt_hits"]) << policy << " " << mib;
      EXPECT_EQ(engine["prefill"]["cache_misses"], model["prompt_misses"]) << policy << " " << mib;
      EXPECT_EQ(engine["cache_evictions"], model["evictions"]) << policy << " " << mib;
      EXPECT_GT(model["misses"].get<int>(), 0);
    }
  }
}

}  // namespace
}  // namespace moetier
