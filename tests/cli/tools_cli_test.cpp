// The tools that look ahead, from the command line: profile, trace show, plan, predict.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/process.h"
#include "experts/profile_file.h"

namespace moetier {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

const std::string kDemo = MOETIER_SOURCE_DIR "/models/fairytale-moe-q8_0.gguf";
const std::string kGolden = MOETIER_TEST_DATA "/experts/golden.strp";

std::string some_text() {
  std::string text;
  for (int i = 0; i < 12; ++i) text += "Once upon a time there was a king who had three daughters. ";
  return text;
}

json json_of(const std::vector<std::string>& arguments) {
  const ProcessResult result = run_moetier(arguments);
  EXPECT_EQ(result.code, 0) << result.err;
  return result.code == 0 ? json::parse(result.out) : json();
}

class Tools : public testing::Test {
 protected:
  void SetUp() override {
    text_ = folder_.write("text.txt", some_text());
    trace_ = folder_.file("t.csv");
    ASSERT_EQ(run_moetier({"trace", kDemo, text_, trace_, "128"}).code, 0);
  }
  const TemporaryFolder folder_;
  std::string text_, trace_;
};

TEST_F(Tools, AProfileIsTheSameFromATextAndFromItsTrace) {
  const std::string a = folder_.file("a.strp"), b = folder_.file("b.strp"), c = folder_.file("c.strp");
  ASSERT_EQ(run_moetier({"profile", kDemo, text_, "-o", a, "--threads", "2", "--ctx", "128"}).code, 0);
  ASSERT_EQ(run_moetier({"profile", kDemo, "--trace", trace_, "-o", b}).code, 0);
  ASSERT_EQ(run_moetier({"profile", "--trace", trace_, "-o", c}).code, 0);  // the trace tells its model's shape
  EXPECT_TRUE(slurp(a) == slurp(b));
  EXPECT_TRUE(slurp(a) == slurp(c));
  EXPECT_THAT(run_moetier({"profile", "validate", a, kDemo}).out, HasSubstr("valid"));
  const ProcessResult run = run_moetier({"run", "-m", kDemo, "-p", "Once", "-n", "4", "--temp", "0", "--experts",
                                         "stream", "--cache-mb", "4", "--force-cache", "--moe-cache-profile", a});
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(run.err, HasSubstr("prefill: MoE cache filled with"));
  // Twice the same trace ranks as once.
  ASSERT_EQ(run_moetier({"profile", kDemo, "--trace", trace_, trace_, "-o", b}).code, 0);
  EXPECT_TRUE(slurp(a) == slurp(b));
  EXPECT_EQ(run_moetier({"profile", kDemo, "-o", b}).code, 2);
  EXPECT_EQ(run_moetier({"profile", kDemo, text_, "--trace", trace_, "-o", b}).code, 2);
  EXPECT_EQ(run_moetier({"profile", kDemo, "--trace", trace_, "-o", trace_}).code, 2);
}

TEST_F(Tools, ProfilesAreShownMergedComparedAndValidated) {
  const ProfileFile golden = read_profile_file(kGolden);
  const json shown = json_of({"profile", "show", kGolden, "--top", "2", "--json"});
  EXPECT_EQ(shown["ranked"], 6);
  EXPECT_EQ(shown["hottest"], json::parse("[[2,4],[0,1]]"));
  EXPECT_EQ(shown["ranked_by_layer"], json::parse("[2,2,2]"));
  EXPECT_THAT(run_moetier({"profile", "show", kGolden}).out, HasSubstr("2:4 0:1 2:0"));
  const std::string merged = folder_.file("m.strp");
  ASSERT_EQ(run_moetier({"profile", "merge", kGolden, kGolden, "-o", merged}).code, 0);
  EXPECT_EQ(read_profile_file(merged).ranked, golden.ranked);
  const json compared = json_of({"profile", "compare", kGolden, merged, "--json"});
  EXPECT_EQ(compared["rank_correlation"], 1.0);
  EXPECT_EQ(compared["shared"][0]["shared_pct"], 100.0);
  EXPECT_EQ(run_moetier({"profile", "validate", kGolden}).code, 0);
  const ProcessResult other = run_moetier({"profile", "validate", kGolden, kDemo});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("3 layers of 5 experts, and the model has"));
  const std::string cut = folder_.write("cut.strp", slurp(kGolden).substr(0, 48));
  const ProcessResult faulty = run_moetier({"profile", "validate", cut});
  EXPECT_EQ(faulty.code, 1);
  EXPECT_THAT(faulty.out, HasSubstr("0 bytes of rank table"));
  EXPECT_EQ(run_moetier({"profile", "validate", text_}).code, 1);
  EXPECT_EQ(run_moetier({"profile", "merge", kGolden, "-o", kGolden}).code, 2);
}

TEST_F(Tools, ATraceIsShown) {
  const std::string svg = folder_.file("t.svg");
  const json shown = json_of({"trace", "show", trace_, "--json", "--svg", svg});
  const uint64_t picks = shown["picks"];
  EXPECT_GT(picks, 0u);
  uint64_t sum = shown["first_picks"];
  for (const json& part : shown["reuse"]) sum += part["picks"].get<uint64_t>();
  EXPECT_EQ(sum, picks);
  EXPECT_GT(shown["layers"].size(), 1u);
  EXPECT_DOUBLE_EQ(shown["union"][0]["experts"], shown["top_k"].get<double>());
  const std::string picture = slurp(svg);
  EXPECT_THAT(picture, HasSubstr("<svg xmlns"));
  EXPECT_THAT(picture, HasSubstr("</svg>"));
  EXPECT_THAT(picture, Not(HasSubstr("nan")));
  EXPECT_THAT(run_moetier({"trace", "show", trace_, "--layers"}).out, HasSubstr("overlap"));
  EXPECT_EQ(run_moetier({"trace", "show", trace_, "--phase", "decoded"}).code, 1);
}

TEST_F(Tools, APlanAddsUp) {
  const std::string out = folder_.file("p.strp");
  const json plan = json_of({"plan", kDemo, "--cache-mib", "6", "--trace", trace_, "--drive-gb-s", "1", "--memory-gb-s",
                             "10", "--out", out, "--json"});
  EXPECT_EQ(plan["mode"], "stream");
  uint64_t bytes = 0;
  double hits = 0;
  for (const json& tier : plan["tiers"]) {
    bytes += tier["expert_bytes"].get<uint64_t>();
    hits += tier["hit_pct"].get<double>();
  }
  EXPECT_EQ(bytes, plan["bank_bytes"]);
  EXPECT_NEAR(hits, 100, 1e-6);
  const json& token = plan["token"];
  const double dense = token["dense_bytes"].get<double>() / 10e9, experts = token["expert_bytes"].get<double>() / 10e9;
  const double reads = token["read_bytes"].get<double>() / 1e9;
  const double rest = token["rest_seconds"].get<double>();
  EXPECT_GT(rest, 0);
  EXPECT_NEAR(token["seconds"], dense + rest + std::max(experts, reads) + std::min(experts, reads) / 2, 1e-9);
  EXPECT_EQ(run_moetier({"profile", "validate", out, kDemo}).code, 0);
  const std::string ranked = folder_.file("r.strp");
  ASSERT_EQ(run_moetier({"profile", kDemo, "--trace", trace_, "-o", ranked}).code, 0);
  const ProfileFile of_plan = read_profile_file(out), of_trace = read_profile_file(ranked);
  ASSERT_GE(of_plan.ranked.size(), of_trace.ranked.size());
  EXPECT_TRUE(std::equal(of_trace.ranked.begin(), of_trace.ranked.end(), of_plan.ranked.begin()));
}

TEST_F(Tools, APlanWithoutATraceOrWithADeviceSaysHow) {
  const ProcessResult even = run_moetier({"plan", kDemo, "--ram-gib", "64", "--no-measure"});
  ASSERT_EQ(even.code, 0) << even.err;
  EXPECT_THAT(even.out, HasSubstr("no trace"));
  EXPECT_THAT(even.out, HasSubstr("experts resident"));
  const json device = json_of({"plan", kDemo, "--vram-gib", "2.02", "--whole-layers", "1", "--trace", trace_,
                               "--cache-mb", "4", "--no-measure", "--json"});
  EXPECT_EQ(device["tiers"][0]["tier"], "device");
  EXPECT_EQ(device["tiers"][0]["dense_bytes"], device["dense_bytes"]);
  EXPECT_GT(device["tiers"][0]["entries"], 0);
  EXPECT_EQ(device["token"]["tok_s"], nullptr);
  EXPECT_EQ(run_moetier({"plan", kDemo, "--vram-gib", "1"}).code, 2);
  EXPECT_EQ(run_moetier({"plan", kDemo, "--whole-layers", "1"}).code, 2);
  EXPECT_EQ(run_moetier({"plan", kDemo, text_}).code, 2);
}

TEST_F(Tools, PredictionsAreTheSameFromARecording) {
  const std::string dump = folder_.file("g.bin");
  const json live = json_of({"predict", kDemo, text_, "100", "2", "--dump", dump, "--json"});
  EXPECT_EQ(live["tokens"], 100);
  EXPECT_EQ(live["predictors"].size(), 4u);
  EXPECT_EQ(json_of({"predict", "--from", dump, "--json"}), live);
  // The router of the next layer sees a state that is near its own: better than chance.
  const json& router = live["predictors"][3];
  EXPECT_EQ(router["predictor"], "next-router");
  EXPECT_GT(router["at"][0]["recall_pct"].get<double>(),
            100.0 * live["top_k"].get<double>() / live["n_expert"].get<double>());
  EXPECT_EQ(run_moetier({"predict", kDemo}).code, 2);
  EXPECT_EQ(run_moetier({"predict", "--from", text_}).code, 1);
}

TEST_F(Tools, ASimulationOnHeldOutTracesDrawsItsCurves) {
  const std::string svg = folder_.file("s.svg");
  const json result = json_of({"simulate",
                               kDemo,
                               "--cache-mib",
                               "2",
                               "4",
                               "8",
                               "--train",
                               trace_,
                               "--test",
                               trace_,
                               "--token-by-token",
                               "--policies",
                               "lru,pinned,belady",
                               "--pin-reserve",
                               "0.5",
                               "--drive-gb-s",
                               "1",
                               "--memory-gb-s",
                               "10",
                               "--svg",
                               svg,
                               "--json"});
  ASSERT_EQ(result["runs"].size(), 9u);
  for (const json& run : result["runs"]) {
    EXPECT_GT(run["tok_s"].get<double>(), 0);
    EXPECT_EQ(run["hits"].get<uint64_t>() + run["misses"].get<uint64_t>(),
              result["runs"][0]["hits"].get<uint64_t>() + result["runs"][0]["misses"].get<uint64_t>());
  }
  EXPECT_THAT(slurp(svg), HasSubstr("belady"));
  // With nothing pinned, pinned is lru.
  const auto hits = [&](const std::string& policy, const std::string& reserve) {
    return json_of({"simulate", kDemo, "--cache-mib", "4", "--train", trace_, "--test", trace_, "--token-by-token",
                    "--policies", policy, "--pin-reserve", reserve, "--json"})["hits"];
  };
  EXPECT_EQ(hits("pinned", "1"), hits("lru", "1"));
  EXPECT_NE(hits("pinned", "0"), hits("lru", "1"));
  EXPECT_EQ(run_moetier({"simulate", kDemo, "--cache-mib", "2", "--trace", trace_, "--policies", "best"}).code, 2);
  EXPECT_EQ(run_moetier({"trace", "show", trace_, "--prompt-tokens", "100000"}).code, 2);
  const ProcessResult prompt = run_moetier({"simulate", kDemo, "--cache-mib", "2", "--trace", trace_});
  EXPECT_THAT(prompt.err, HasSubstr("no decoded tokens"));
  const ProcessResult asked =
      run_moetier({"simulate", kDemo, "--cache-mib", "2", "--trace", trace_, "--token-by-token"});
  EXPECT_EQ(prompt.out, asked.out);  // no table of zeros
}

TEST_F(Tools, AGridIsMeasuredAndComparedWithAnother) {
  const std::string a = folder_.file("a.json"), csv = folder_.file("a.csv"), svg = folder_.file("a.svg");
  const ProcessResult grid = run_moetier(
      {"bench", "grid", kDemo, "--experts", "mmap,stream", "--cache-mib", "2",  "4", "--policy", "lru", "-t",    "1",
       "-n",    "4",    "-p",  "4",         "--runs",      "1",           "-o", a,   "--csv",    csv,   "--svg", svg});
  ASSERT_EQ(grid.code, 0) << grid.err;
  EXPECT_THAT(grid.out, HasSubstr("| stream | 4 | lru | 1 |"));
  const json cells = json::parse(slurp(a))["cells"];
  ASSERT_EQ(cells.size(), 3u);
  for (const json& cell : cells) EXPECT_GT(cell["decode_tok_s"]["median"].get<double>(), 0);
  EXPECT_THAT(slurp(csv), HasSubstr("stream,2,lru,1,1,"));
  EXPECT_THAT(slurp(svg), HasSubstr("</svg>"));
  const ProcessResult same = run_moetier({"compare", a, a});
  EXPECT_EQ(same.code, 0);
  EXPECT_THAT(same.out, HasSubstr("configuration: nothing differs"));
  EXPECT_EQ(run_moetier({"compare", a, csv}).code, 1);
  EXPECT_EQ(run_moetier({"bench", "grid", kDemo}).code, 2);
  EXPECT_EQ(run_moetier({"bench", "grid", kDemo, "--cache-mib", "2", "--policy", "best"}).code, 2);
  EXPECT_EQ(run_moetier({"bench", "grid", kDemo, "--cache-mib", "2", "--n-cpu-moe", "2"}).code, 2);
  EXPECT_EQ(run_moetier({"bench", "grid", kDemo, "--cache-mib", "2", "--hybrid", "--only-hybrid"}).code, 2);
  EXPECT_EQ(run_moetier({"bench", "grid", kDemo, "--cache-mib", "2", "-t", "1,0"}).code, 2);
  const ProcessResult twice = run_moetier({"bench", "grid", kDemo, "--cache-mib", "2", "--csv", svg, "--md", svg});
  EXPECT_EQ(twice.code, 2);
  EXPECT_THAT(twice.err, HasSubstr("--csv and --md name the same file"));
  const ProcessResult profile = run_moetier({"bench", "grid", kDemo, "--cache-mib", "2", "--profile", csv});
  EXPECT_EQ(profile.code, 1);
  EXPECT_THAT(profile.err, HasSubstr(csv));
}

TEST_F(Tools, AGridKnowsTheCachesThatAMissDoesNotChange) {
  const auto cells = [](std::vector<std::string> more) {
    std::vector<std::string> all = {"bench", "grid", kDemo, "--cache-mib", "2", "-n",
                                    "2",     "-p",   "0",   "--runs",      "1", "--json"};
    all.insert(all.end(), more.begin(), more.end());
    const ProcessResult result = run_moetier(all);
    EXPECT_EQ(result.code, 0) << result.err;
    std::string policies;
    const json record = json::parse(result.out);
    for (const json& cell : record["cells"]) policies += cell["policy"].get<std::string>() + " ";
    return policies;
  };
  const TemporaryFolder folder;
  const std::string profile = folder.file("p.strp");
  ASSERT_EQ(run_moetier({"profile", kDemo, folder.write("t.txt", "Once upon a time."), "-o", profile}).code, 0);
  EXPECT_EQ(cells({"--hybrid"}), "default adaptive ");
  EXPECT_EQ(cells({"--only-hybrid", "--profile", profile}), "pinned adaptive ");
}

TEST_F(Tools, EverythingIsCheckedAtOnce) {
  const ProcessResult all = run_moetier({"check-all", kDemo, "--cpu-only", "--json"});
  const json record = all.out.empty() ? json() : json::parse(all.out);
  ASSERT_EQ(all.code, 0) << all.err << all.out;
  EXPECT_EQ(record["failed"], 0);
  EXPECT_GE(record["passed"].get<int>(), 4);
  EXPECT_EQ(run_moetier({"check-all"}).code, 2);
  // A profile of another model is found out.
  const ProcessResult wrong = run_moetier({"check-all", kDemo, kGolden, "--cpu-only"});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.out, HasSubstr("FAILED"));
}

}  // namespace
}  // namespace moetier
