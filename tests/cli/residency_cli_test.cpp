// Residency from the command line: modes, stats, logs of tokens, and what is said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/process.h"

namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

const std::string kDemo = MOETIER_SOURCE_DIR "/models/fairytale-moe-q8_0.gguf";
using Arguments = std::vector<std::string>;

ProcessResult run(const Arguments& more, const std::string& command = "run") {
  Arguments all = {command, "-m", kDemo};
  if (command == "bench") all.push_back("--no-read-bandwidth");
  if (command == "run") all.insert(all.end(), {"-p", "Once upon a time", "-n", "16", "--temp", "0"});
  all.insert(all.end(), more.begin(), more.end());
  return run_moetier(all);
}

TEST(ResidencyCli, EveryModeWritesTheSameText) {
  const std::string want = run({}).out;
  ASSERT_FALSE(want.empty());
  for (const Arguments& flags :
       {Arguments{"--experts", "mmap"}, Arguments{"--experts", "resident"},
        Arguments{"--experts", "advise", "--advise-always"}, Arguments{"--experts", "noop"}, Arguments{"--moe-stream"},
        Arguments{"--cache-mb", "0"},
        Arguments{"--cache-mb", "3", "--force-cache", "--cache-policy", "lru", "--no-overlap", "--io", "threads"},
        Arguments{"--moe-stream", "--dense-weights", "mmap", "--prefetch", "1", "--no-odirect"},
        Arguments{"--moe-stream", "--load-all", "--prompt-rows", "1", "--ubatch", "2"}}) {
    const ProcessResult result = run(flags);
    EXPECT_EQ(result.code, 0) << flags[0] << ": " << result.err;
    EXPECT_EQ(result.out, want) << flags[0];
    EXPECT_THAT(result.err, HasSubstr("bound by ")) << flags[0];
  }
}

TEST(ResidencyCli, StatsOfEveryCommandThatRunsAModel) {
  const TemporaryFolder folder;
  const std::string stats = folder.file("stats.json"), text = folder.write("text.txt", std::string(200, 'a'));
  const std::vector<std::pair<std::string, Arguments>> calls = {
      {"run", {}},
      {"logits", {"--tokens", "1,2,3", "-o", folder.file("l")}},
      {"perplexity", {"-f", text, "--window", "16"}},
      {"bench", {"-p", "8", "-n", "4", "-r", "1"}},
      {"trace", {"-f", text, "-o", folder.file("t.csv")}}};
  for (auto [command, flags] : calls) {
    flags.insert(flags.end(), {"--cache-mb", "3", "--force-cache", "--cache-policy", "lru", "--stats-json", stats});
    const ProcessResult result = run(flags, command);
    ASSERT_EQ(result.code, 0) << command << ": " << result.err;
    const json s = json::parse(slurp(stats));
    EXPECT_EQ(s["mode"], "stream") << command;
    EXPECT_EQ(s["policy"], "lru") << command;
    EXPECT_EQ(s["cache_budget_mb"], 3.0) << command;
    EXPECT_GT(s["cache_cycle_mb"], 0) << command;
    EXPECT_GT(s["read_mib"], 0) << command;
    EXPECT_GT(s["peak_rss_mib"], 0) << command;
    EXPECT_GT(s["compute_s"], 0) << command;
    EXPECT_GT(s["prefill"]["tokens"].get<int>() + s["decode"]["tokens"].get<int>(), 0) << command;
    EXPECT_THAT(result.err, HasSubstr("moe-cache: ")) << command;
  }
}

TEST(ResidencyCli, TokenRowsAndProgress) {
  const TemporaryFolder folder;
  const std::string csv = folder.file("t.csv");
  const ProcessResult result = run({"--csv", csv, "--progress", "--moe-stream", "-v"});
  ASSERT_EQ(result.code, 0) << result.err;
  const std::string text = slurp(csv);
  EXPECT_THAT(text, HasSubstr("# config experts=\"auto\" (default)"));
  EXPECT_THAT(text, HasSubstr("# summary tokens=16 "));
  std::string told;
  int lines = 0;
  std::istringstream in(result.err);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with('{')) continue;
    const json event = json::parse(line);
    ++lines;
    if (event["event"] == "token") told += event["text"].get<std::string>();
    EXPECT_GT(event["wall_ms"], 0);
  }
  EXPECT_EQ(lines, 17) << "the prompt and 16 tokens";
  EXPECT_EQ(told, result.out);
  EXPECT_THAT(result.err, HasSubstr("ubatches of up to 8 tokens"));
}

TEST(ResidencyCli, AFullDiskLosesNothingElse) {
  const TemporaryFolder folder;
  const std::string record = folder.file("record.json"), stats = folder.file("stats.json");
  const ProcessResult result = run({"--csv", "/dev/full", "--record", record, "--stats-json", stats});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("/dev/full ends early: No space left on device"));
  EXPECT_EQ(result.out, run({}).out);
  EXPECT_EQ(json::parse(slurp(record))["tokens"].size(), 16u);
  EXPECT_GT(json::parse(slurp(stats))["compute_s"], 0);
  const ProcessResult other = run({"--stats-json", "/dev/full", "--record", record});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("/dev/full"));
  EXPECT_EQ(json::parse(slurp(record))["tokens"].size(), 16u);
}

TEST(ResidencyCli, WrongUsageIsToldBeforeAnyWork) {
  const TemporaryFolder folder;
  const std::string same = folder.file("same");
  for (const Arguments& flags :
       {Arguments{"--cache-mb", "100"}, Arguments{"--cache-mb", "auto", "--cache-mb", "2000"},
        Arguments{"--experts", "mmap", "--moe-stream"}, Arguments{"--prefetch", "2", "--cache-mb", "0"},
        Arguments{"--csv", same, "--stats-json", same}, Arguments{"--csv", kDemo},
        Arguments{"--n-expert-used", "99"}}) {
    const ProcessResult result = run(flags);
    EXPECT_EQ(result.code, 2) << flags[0] << ": " << result.err;
    EXPECT_EQ(result.out, "") << flags[0];
  }
  EXPECT_EQ(run({"--csv", "/nonexistent/x"}).code, 1);
  EXPECT_EQ(run({"--stats-json", "/nonexistent/x"}).code, 1);
}

TEST(ResidencyCli, NothingSilent) {
  EXPECT_THAT(run({"--experts", "mmap", "--cache-policy", "lru"}).err,
              HasSubstr("--cache-policy changes nothing: it needs a cache, and experts are mapped"));
  EXPECT_THAT(run({"--experts", "resident", "--no-warm-dense"}).err, HasSubstr("--no-warm-dense is deprecated"));
  const ProcessResult low = run({"--cache-mb", "1", "--force-cache", "--cache-policy", "lru"});
  EXPECT_EQ(low.code, 0) << low.err;
  EXPECT_THAT(low.err, HasSubstr("expect a hit rate near zero")) << "1 MiB is below the token cycle";
}

TEST(ResidencyCli, ABenchTellsItsFirstFiveTokens) {
  const TemporaryFolder folder;
  const std::string stats = folder.file("stats.json");
  for (const char* dense : {"mmap", "warm", "anon"}) {
    const ProcessResult r = run_moetier({"bench", "--no-read-bandwidth", "-m", kDemo, "-p", "8", "-n", "9", "--repeat",
                                         "2", "--json", "--dense-weights", dense, "--stats-json", stats});
    ASSERT_EQ(r.code, 0) << r.err;
    const json first = json::parse(r.out)["first_tokens_after_load_seconds"];
    ASSERT_EQ(first.size(), 5u);
    for (const double s : first) EXPECT_GT(s, 0);
    EXPECT_EQ(json::parse(slurp(stats))["first_tokens_s"], first);
  }
  const ProcessResult text =
      run_moetier({"bench", "--no-read-bandwidth", "-m", kDemo, "-p", "0", "-n", "2", "--repeat", "1"});
  EXPECT_THAT(text.out, testing::ContainsRegex("first +3 tokens after load:( [0-9.]+){3} ms"));
  EXPECT_EQ(run({"--stats-json", stats}).code, 0);
  EXPECT_EQ(json::parse(slurp(stats))["first_tokens_s"].size(), 5u) << "a run's are those of its first answer";
}

TEST(ResidencyCli, FewerExpertsChangeTheCycleAndTheRecord) {
  const json all = json::parse(run({"--json"}).out), one = json::parse(run({"--json", "--n-expert-used", "1"}).out);
  EXPECT_GT(all["stats"]["cache_cycle_mb"], one["stats"]["cache_cycle_mb"]);
  EXPECT_EQ(one["model"]["top_k"], 1);
  EXPECT_NE(all["text"], one["text"]) << "it is lossy";
  EXPECT_EQ(one["residency"]["mode_requested"], "auto");
}

TEST(ReplayCli, PlaysATraceOrChanceInPlaceOfTheRouter) {
  const TemporaryFolder folder;
  const std::string text = folder.write("text.txt", "Once upon a time there was a king who had a daughter.");
  const std::string generated = folder.file("run.csv"), read = folder.file("text.bin");
  ASSERT_EQ(run({"--route-trace", generated}).code, 0);
  ASSERT_EQ(run({"-f", text, "-o", read}, "trace").code, 0);
  for (const std::string& trace : {generated, read, std::string("random")}) {
    const ProcessResult result = run({"--replay", trace, "-p", "4", "-n", "12", "-r", "2", "--json", "--cache-mb", "3",
                                      "--force-cache", "--no-overlap"},
                                     "bench");
    ASSERT_EQ(result.code, 0) << trace << ": " << result.err;
    const json bench = json::parse(result.out);
    EXPECT_FALSE(bench["replay"].get<std::string>().empty());
    EXPECT_GT(bench["decode_tok_s"]["median"], 0);
    EXPECT_EQ(bench["model"]["top_k"], 2);
    const json& decode = bench["stats"]["decode"];
    EXPECT_EQ(decode["tokens"], 24);
    EXPECT_EQ(decode["picks"], 24 * 4 * 2) << "top 2 in 4 layers";
    EXPECT_EQ(decode["cache_hits"].get<int>() + decode["cache_misses"].get<int>(), 24 * 4 * 2) << "all distinct";
    const json again = json::parse(run({"--replay", trace, "-p", "4", "-n", "12", "-r", "2", "--json", "--cache-mb",
                                        "3", "--force-cache", "-t", "1"},
                                       "bench")
                                       .out);
    EXPECT_EQ(again["stats"]["decode"]["cache_hits"], decode["cache_hits"]) << "the same routing each time";
  }
  EXPECT_THAT(run({"--replay", "random", "-p", "0", "-n", "4", "-r", "1"}, "bench").out, HasSubstr("tok/s"));
}

TEST(ReplayCli, RefusesWhatDoesNotFit) {
  const TemporaryFolder folder;
  std::string other =
      "# model=m arch=a n_layer=1 n_expert=64 n_expert_used=2\n"
      "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes,dropped\n"
      "0,1,0,0,0,5,nan,1,0,0\n0,1,0,0,1,63,nan,1,0,0\n";
  const std::string trace = folder.write("other.csv", other);
  const ProcessResult result = run({"--replay", trace}, "bench");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("64 experts"));
  EXPECT_EQ(run({"--replay", trace, "--n-expert-used", "3"}, "bench").code, 2);
  EXPECT_EQ(run({"--replay", folder.file("none")}, "bench").code, 1);
  EXPECT_EQ(
      run_moetier({"bench", "-m", MOETIER_TEST_DATA "/models/mini-llama-dense-f32.gguf", "--replay", "random"}).code,
      2);
}

TEST(ResidencyCli, DroppingColdPicksIsCounted) {
  const TemporaryFolder folder;
  const std::string stats = folder.file("s.json");
  const ProcessResult result =
      run({"--cache-mb", "3", "--force-cache", "--drop-cold-experts", "0.9", "--stats-json", stats});
  ASSERT_EQ(result.code, 0) << result.err;
  const json s = json::parse(slurp(stats));
  EXPECT_GT(s["picks_dropped"], 0);
  EXPECT_LT(s["picks_dropped"], s["picks"]);
  EXPECT_THAT(run({"--experts", "auto", "--drop-cold-experts", "0.9"}).err,
              HasSubstr("--drop-cold-experts changes nothing"));
}

}  // namespace
