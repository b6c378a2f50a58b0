// Perplexity, logits to a file, the run record, and what the machine says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "engine/fixtures.h"
#include "engine/logits_dump.h"
#include "engine/machine.h"
#include "engine/perplexity.h"
#include "engine/run_record.h"
#include "engine/score.h"

namespace moetier {
namespace {

using namespace testing_support;
namespace fs = std::filesystem;

/// A directory that goes away with it.
struct TemporaryDirectory {
  TemporaryDirectory() {
    std::string pattern = (fs::temp_directory_path() / "moetier.XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() { fs::remove_all(path); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name) << text;
  }
  fs::path path;
};

TEST(Score, AgreesWithDouble) {
  const std::vector<float> logits{1.5f, -2, 30, 29.5f, -std::numeric_limits<float>::infinity(), -200};
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l) - 30);
  for (const TokenId t : {0, 1, 2, 3, 5}) {
    EXPECT_NEAR(negative_log_likelihood(logits, t), std::log(sum) + 30 - static_cast<double>(logits[t]), 1e-6);
  }
  EXPECT_TRUE(std::isinf(negative_log_likelihood(logits, 4)));
  EXPECT_TRUE(std::isnan(negative_log_likelihood(std::vector<float>{1, NAN}, 0)));
  EXPECT_THROW(negative_log_likelihood(logits, 6), Error);
  EXPECT_THROW(negative_log_likelihood(logits, -1), Error);
}

TEST(Score, RunningMeanAndItsError) {
  RunningMean mean;
  EXPECT_EQ(mean.standard_error(), 0.0);
  for (const double x : {2.0, 4.0, 9.0}) mean.add(x);
  EXPECT_DOUBLE_EQ(mean.mean(), 5.0);
  EXPECT_NEAR(mean.standard_error(), std::sqrt(13.0 / 3.0), 1e-12);  // variance (9 + 1 + 16) / 2 over 3
}

class Measure : public testing::Test {
 protected:
  std::unique_ptr<Engine> engine = load("mini-qwen3moe-q8_0");
  Context context{*engine, small_context(TensorType::f32, 16)};
  std::vector<TokenId> tokens = some_tokens(*engine, 100, 2);
};

TEST_F(Measure, PerplexityIsWhatTheLogitsSay) {
  PerplexityOptions o;
  o.window = 40;
  const PerplexityResult r = perplexity(context, tokens, o);
  EXPECT_EQ(r.windows, 2);
  EXPECT_EQ(r.scored, 2 * 19);  // positions 20 to 38 foretell tokens 21 to 39
  double sum = 0;
  for (size_t w = 0; w < 2; ++w) {
    SequenceState s = context.new_sequence();
    feed(context, s, std::span(tokens).subspan(w * 40, 40));
    for (int64_t i = 20; i < 39; ++i) {
      const std::span<const float> logits = context.logits(i);
      double total = 0;
      for (const float l : logits) total += std::exp(static_cast<double>(l));
      sum += std::log(total) - static_cast<double>(logits[tokens[w * 40 + static_cast<size_t>(i) + 1]]);
    }
  }
  EXPECT_NEAR(r.mean_nll, sum / 38, 1e-6);
  EXPECT_NEAR(r.perplexity, std::exp(r.mean_nll), 1e-9);
  EXPECT_GT(r.mean_nll_error, 0.0);
  EXPECT_NEAR(r.perplexity_error, r.perplexity * r.mean_nll_error, 1e-9);
}

TEST_F(Measure, PerplexityTokenByTokenIsTheSameNumber) {
  PerplexityOptions o;
  o.window = 33;
  const PerplexityResult batched = perplexity(context, tokens, o);
  o.token_by_token = true;
  int calls = 0;
  const PerplexityResult singly = perplexity(context, tokens, o, [&](const PerplexityResult& so_far, int64_t windows) {
    EXPECT_EQ(so_far.windows, ++calls);
    EXPECT_EQ(windows, 3);
  });
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(batched.mean_nll, singly.mean_nll);
  EXPECT_EQ(batched.mean_nll_error, singly.mean_nll_error);
  EXPECT_EQ(batched.scored, singly.scored);
}

TEST_F(Measure, PerplexityOptionsCount) {
  PerplexityOptions o;
  o.window = 40;
  const double plain = perplexity(context, tokens, o).mean_nll;
  o.bos = tokens[0] == 7 ? 8 : 7;
  EXPECT_NE(perplexity(context, tokens, o).mean_nll, plain);
  o.bos = -1;
  o.score_all = true;
  EXPECT_EQ(perplexity(context, tokens, o).scored, 2 * 39);
  o.most_windows = 1;
  EXPECT_EQ(perplexity(context, tokens, o).scored, 39);
  o.window = 200;  // the text is one window then
  o.most_windows = 0;
  EXPECT_EQ(perplexity(context, tokens, o).scored, 99);
  std::atomic<bool> cancel{true};
  o.window = 40;
  o.cancel = &cancel;
  const PerplexityResult cancelled = perplexity(context, tokens, o);
  EXPECT_TRUE(cancelled.cancelled);
  EXPECT_EQ(cancelled.windows, 0);
}

TEST_F(Measure, PerplexityRefusesWhatItCannotScore) {
  PerplexityOptions o;
  EXPECT_THROW(perplexity(context, std::span(tokens).first(2), o), Error);
  o.window = 2;
  EXPECT_THROW(perplexity(context, tokens, o), Error);
  o.window = 512;
  EXPECT_THROW(perplexity(context, some_tokens(*engine, 600, 1), o), Error);  // the context holds 256
}

TEST_F(Measure, LogitsFileHoldsEveryPosition) {
  const TemporaryDirectory directory;
  const std::string path = (directory.path / "out.f32").string();
  int64_t last = 0;
  dump_logits(context, tokens, path, [&](int64_t done, int64_t total) {
    EXPECT_GT(done, last);
    EXPECT_EQ(total, 100);
    last = done;
  });
  EXPECT_EQ(last, 100);
  const std::string bytes = read_file(path);
  SequenceState s = context.new_sequence();
  const std::vector<float> want = feed(context, s, tokens);
  ASSERT_EQ(bytes.size(), want.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(bytes.data(), want.data(), bytes.size()), 0);
}

TEST_F(Measure, LogitsFileErrorsLeaveNoFile) {
  const TemporaryDirectory directory;
  const std::string path = (directory.path / "out.f32").string();
  EXPECT_THROW(dump_logits(context, {}, path), Error);
  EXPECT_THROW(dump_logits(context, some_tokens(*engine, 257, 1), path), Error);
  std::vector<TokenId> bad = tokens;
  bad[50] = 1 << 30;
  EXPECT_THROW(dump_logits(context, bad, path), Error);
  EXPECT_THROW(dump_logits(context, tokens, "/nowhere/out.f32"), Error);
  EXPECT_TRUE(fs::is_empty(directory.path));
}

TEST(RunTimes, KeepsTheFirstStepApart) {
  RunTimes times;
  EXPECT_EQ(times.prompt_tok_s(), 0.0);
  EXPECT_EQ(times.decode_tok_s(), 0.0);
  EXPECT_EQ(times.decode_median_tok_s(), 0.0);
  GenerateResult r;
  r.prompt_tokens = 12;
  r.reused_tokens = 2;
  r.prompt_seconds = 0.5;
  r.token_seconds = {0.001, 4.0};
  times.add(r);
  EXPECT_DOUBLE_EQ(times.prompt_tok_s(), 20.0);
  EXPECT_DOUBLE_EQ(times.decode_tok_s(), 0.25);  // the only step there is
  r.token_seconds = {0.001, 0.1, 0.2, 0.5};
  times.add(r);
  EXPECT_EQ(times.decode_steps(), 4);
  EXPECT_DOUBLE_EQ(times.decode_tok_s(), 3 / 0.8);
  EXPECT_DOUBLE_EQ(times.decode_median_tok_s(), 5.0);
  const auto json = times.json();
  EXPECT_EQ(json["prompt_tokens"], 24);
  EXPECT_EQ(json["prompt_reused"], 4);
  EXPECT_EQ(json["decode_steps"], 4);
  EXPECT_DOUBLE_EQ(json["first_step_seconds"], 4.0);
  EXPECT_DOUBLE_EQ(json["step_seconds_min"], 0.1);
  EXPECT_DOUBLE_EQ(json["step_seconds_max"], 0.5);
  EXPECT_NEAR(json["decode_seconds"], 4.8, 1e-12);
}

TEST_F(Measure, RecordStatesTheRun) {
  SequenceState s = context.new_sequence();
  std::vector<TokenId> held;
  GenerateOptions o;
  o.max_tokens = 8;
  o.ignore_eog = true;
  RunRecord record(context, {{"temp", 0.8}});
  record.times().add(generate(context, s, held, std::span(tokens).first(10), o));
  const auto json = nlohmann::json::parse(record.json().dump());
  EXPECT_EQ(json["program"], "moetier");
  EXPECT_EQ(json["version"], MOETIER_VERSION);
  EXPECT_EQ(json["config"]["temp"], 0.8);
  EXPECT_EQ(json["model"]["architecture"], "qwen3moe");
  EXPECT_EQ(json["model"]["file_bytes"], fs::file_size(model_path("mini-qwen3moe-q8_0")));
  EXPECT_EQ(json["model"]["entries"], context.expert_use().total());
  EXPECT_EQ(json["model"]["entries_bytes"], engine->store()->map().total_bytes());
  EXPECT_EQ(json["context"]["positions"], 256);
  EXPECT_EQ(json["context"]["kv_type"], "f32");
  EXPECT_EQ(json["times"]["prompt_tokens"], 10);
  EXPECT_EQ(json["times"]["decode_steps"], 7);
  EXPECT_EQ(json["meters"]["rows"], 17);
  EXPECT_GT(json["memory"]["resident_bytes"], 1 << 20);
  EXPECT_EQ(json["memory"]["kv_used_bytes"], context.kv().page_bytes());
  EXPECT_EQ(json["experts"]["picks"], 17 * engine->model().hparams().layers * engine->model().hparams().top_k);
  EXPECT_GT(json["experts"]["hits"], 0);
  EXPECT_TRUE(json["warnings"].is_array());
  EXPECT_GE(json["machine"]["cpus"], 1);
  EXPECT_THAT(
      account_line(record.times(), context),
      testing::ContainsRegex("prompt 10 tokens at .* tok/s, decode 7 steps at .* tok/s, memory .* \\(KV cache .*\\), "
                             "experts [0-9]+ of [0-9]+ used"));
}

TEST(Record, OfADenseModelHasNoExperts) {
  const auto dense = load("mini-qwen3-f32");
  Context context(*dense, small_context());
  const auto json = RunRecord(context).json();
  EXPECT_TRUE(json["experts"].is_null());
  EXPECT_FALSE(json["model"].contains("entries"));
  EXPECT_THAT(account_line(RunTimes(), context), testing::Not(testing::HasSubstr("experts")));
}

TEST(Machine, TellsThisOne) {
  const MachineFacts facts = machine_facts();
  EXPECT_GE(facts.cpus, 1);
  EXPECT_GT(facts.memory_limit, 0u);
  EXPECT_LE(facts.memory_limit, facts.memory_total);
  EXPECT_THAT(facts.kernel, testing::StartsWith("Linux"));
  const ProcessMemory memory = process_memory();
  EXPECT_GT(memory.resident, 0u);
  EXPECT_GE(memory.peak_resident, memory.resident);
  EXPECT_GT(memory.minor_faults, 0u);
}

TEST(Machine, ReadsTheTightestLimit) {
  const TemporaryDirectory root;
  EXPECT_EQ(memory_limit(root.path), 0u);
  root.write("proc/meminfo", "MemFree: 1 kB\nMemTotal:       4000 kB\n");
  EXPECT_EQ(memory_limit(root.path), 4000u * 1024);
  root.write("proc/self/cgroup", "0::/outer/inner\n");
  root.write("proc/self/mountinfo", "30 25 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
  root.write("sys/fs/cgroup/outer/memory.max", "2000000\n");
  root.write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  EXPECT_EQ(memory_limit(root.path), 2000000u);
  root.write("sys/fs/cgroup/outer/inner/memory.max", "1000000\n");
  EXPECT_EQ(memory_limit(root.path), 1000000u);
  root.write("proc/self/cgroup", "5:cpu,memory:/job\n");
  root.write("proc/self/mountinfo", "31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  root.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "500000\n");
  EXPECT_EQ(memory_limit(root.path), 500000u);
  root.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");  // v1's way to say none
  EXPECT_EQ(memory_limit(root.path), 4000u * 1024);
}

}  // namespace
}  // namespace moetier
