// What a run costs: phases, the log of tokens, and the stats, with real stores.
#include "engine/run_meters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>
#include <filesystem>

#include <fstream>
#include <map>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "engine/fixtures.h"
#include "engine/machine.h"
#include "engine/residency_report.h"
#include "engine/run_record.h"
#include "engine/token_log.h"

namespace moetier {
namespace {

using namespace testing_support;
using Json = nlohmann::ordered_json;
using testing::HasSubstr;

/// An engine of the given mode, a context, a record, and a generation of 12 tokens behind a prompt of 40.
struct Session {
  explicit Session(ExpertMode mode, std::optional<uint64_t> cache = std::nullopt) {
    EngineOptions options;
    options.cpu.threads = 2;
    options.residency.mode = mode;
    options.residency.cache_bytes = cache;
    engine = Engine::load(std::string(MOETIER_SOURCE_DIR) + "/models/fairytale-moe-q8_0.gguf", options);
    context.emplace(*engine, small_context(TensorType::f32, 64));
    record.emplace(*context);
  }
  GenerateResult go(GenerateWatcher& watcher, int64_t tokens = 12) {
    GenerateOptions o;
    o.max_tokens = tokens;
    o.ignore_eog = true;
    o.sampler.temperature = 0;
    o.watcher = &watcher;
    SequenceState sequence = context->new_sequence();
    std::vector<TokenId> held;
    return generate(*context, sequence, held, some_tokens(*engine, 40, 3), o);
  }
  std::unique_ptr<Engine> engine;
  std::optional<Context> context;
  std::optional<RunRecord> record;
};

TEST(RunMeters, PhasesAddUpToTheStore) {
  Session run(ExpertMode::stream, uint64_t{4} << 20);
  run.go(run.record->meters());
  run.go(run.record->meters(), 5);
  const RunMeters& m = run.record->meters();
  EXPECT_EQ(m.prompt().tokens, 80u);
  EXPECT_EQ(m.decode().tokens, 17u);
  EXPECT_EQ(m.prompt().cost.rows, 80u);
  EXPECT_EQ(m.decode().cost.rows, 15u) << "the first token of each answer needs no row";
  StoreCounters sum = m.prompt().cost.counters;
  sum += m.decode().cost.counters;
  const StoreCounters all = run.engine->store()->counters();
  EXPECT_EQ(sum.hits, all.hits);
  EXPECT_EQ(sum.misses, all.misses);
  EXPECT_EQ(sum.large_misses, all.large_misses);
  EXPECT_EQ(sum.bytes_read, all.bytes_read);
  const auto layers = static_cast<uint64_t>(run.engine->store()->map().layers.size());
  const auto top_k = static_cast<uint64_t>(run.engine->model().hparams().top_k);
  const StoreCounters& decode = m.decode().cost.counters;
  EXPECT_EQ(decode.hits + decode.misses, 15 * layers * top_k);
  EXPECT_EQ(m.prompt().cost.counters.hits + m.prompt().cost.counters.misses, 0u) << "40 rows are a large ubatch";
  StoreCounters by_layer;
  for (const StoreCounters& c : m.decode().layers) by_layer += c;
  EXPECT_EQ(by_layer.hits, decode.hits);
  EXPECT_EQ(by_layer.misses, decode.misses);
  EXPECT_EQ(by_layer.bytes_read, decode.bytes_read);
  for (const RunMeters::Phase* phase : {&m.prompt(), &m.decode()}) {
    const Cost& c = phase->cost;
    EXPECT_GT(c.wall_seconds, 0);
    EXPECT_GT(c.compute_seconds(), 0);
    EXPECT_LE(c.batch_seconds + c.sampling_seconds, c.wall_seconds) << "waits are parts of the wall time";
    EXPECT_LE(c.store.read_wait_seconds, c.moe_wait_seconds);
    EXPECT_GE(c.loop_seconds(), 0);
  }
  EXPECT_GT(m.decode().cost.sampling_seconds, 0);
}

TEST(RunMeters, WhatPassesBetweenAnswersBelongsToNeither) {
  Session run(ExpertMode::stream, uint64_t{4} << 20);
  run.go(run.record->meters());
  const StoreCounters before = run.record->meters().decode().cost.counters;
  RunMeters other(*run.context);
  run.go(other);  // not told to the record
  run.record->meters().started();
  run.record->meters().finished();
  EXPECT_EQ(run.record->meters().decode().cost.counters.misses, before.misses);
}

TEST(RunMeters, UnknownMetersStayUnknown) {
  Cost sum, known, unknown;
  known.wall_seconds = 1;
  known.cpu_seconds = 0.5;
  known.busy_cpu_seconds = 0.5 + 0.25 * machine_cpus();
  known.device_bytes = 10;
  unknown.wall_seconds = 1;
  sum.add(known);
  EXPECT_EQ(sum.device_bytes, 10u);
  ASSERT_TRUE(sum.other_cpu_share().has_value());
  EXPECT_NEAR(*sum.other_cpu_share(), 0.25, 1e-9);
  EXPECT_EQ(unmeasured(sum).size(), 1u) << "swap";
  sum.add(known);
  EXPECT_EQ(sum.device_bytes, 20u);
  sum.add(unknown);
  EXPECT_FALSE(sum.device_bytes.has_value()) << "a sum with an unknown part is unknown";
  EXPECT_FALSE(sum.other_cpu_share().has_value());
  EXPECT_EQ(unmeasured(sum).size(), 4u);
}

TEST(Stats, HaveTheKeysThatComparisonsNeed) {
  for (const ExpertMode mode : {ExpertMode::stream, ExpertMode::mmap, ExpertMode::resident}) {
    Session run(mode, uint64_t{4} << 20);
    run.go(run.record->meters());
    const Json stats = stats_json(*run.context, run.record->meters());
    for (const char* key : {"cache_hit_pct", "cache_hits", "cache_misses", "cache_evictions", "cache_budget_mb",
                            "cache_cycle_mb", "resident_mib", "read_mib", "read_wait_s", "compute_s", "majflt",
                            "peak_rss_mib", "mode", "policy", "prefill", "decode", "layers", "unmeasured"}) {
      EXPECT_TRUE(stats.contains(key)) << key;
    }
    EXPECT_EQ(stats["mode"], to_string(mode));
    for (const auto& [key, value] : stats.items()) {
      EXPECT_EQ(value.is_null(), stats["unmeasured"].contains(key)) << key;
    }
    EXPECT_EQ(stats["layers"].size(), run.engine->store()->map().layers.size());
    EXPECT_LE(stats["token_demand_mib"], stats["cache_cycle_mb"]) << "the cycle bounds what a token asks for";
    EXPECT_GT(stats["token_demand_mib"], 0);
    EXPECT_NEAR(stats["cache_cycle_mb"].get<double>(),
                static_cast<double>(run.engine->store()->map().token_cycle_bytes()) / 1048576, 1e-9);
    const Json& decode = stats["decode"];
    EXPECT_EQ(decode["tokens"], 12);
    if (mode == ExpertMode::stream) {
      EXPECT_EQ(stats["cache_budget_mb"], 4.0);
      EXPECT_GT(stats["read_mib"], 0);
      const double hits = decode["cache_hits"], misses = decode["cache_misses"];
      EXPECT_NEAR(decode["cache_hit_pct"].get<double>(), 100 * hits / (hits + misses), 1e-9);
    } else {
      EXPECT_TRUE(stats["cache_hit_pct"].is_null());
      EXPECT_EQ(stats["policy"], "none");
      EXPECT_EQ(stats["cache_budget_mb"], 0.0);
    }
    const Json record = run.record->json();
    EXPECT_EQ(record["residency"]["mode"], to_string(mode));
    EXPECT_TRUE(record["residency"]["plan"].contains("why"));
    EXPECT_TRUE(record["stats"].contains("bound"));
  }
}

TEST(Stats, LinesForPeople) {
  Session run(ExpertMode::stream, uint64_t{4} << 20);
  run.go(run.record->meters());
  const auto lines = residency_lines(*run.context, run.record->meters(), false);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], testing::MatchesRegex("moe-cache: [0-9]+\\.[0-9]% hit, resident [0-9]+\\.[0-9] MiB"));
  const auto more = residency_lines(*run.context, run.record->meters(), true);
  ASSERT_EQ(more.size(), 3u);
  EXPECT_THAT(more[1], HasSubstr("ubatches of up to 8 tokens"));
  EXPECT_THAT(more[2], HasSubstr("hit rate per layer from"));
  Session mapped(ExpertMode::mmap);
  mapped.go(mapped.record->meters());
  EXPECT_TRUE(residency_lines(*mapped.context, mapped.record->meters(), true).empty());
}

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, by);) out.push_back(part);
  return out;
}

TEST(TokenLog, DescribesItselfAndHasARowPerToken) {
  Session run(ExpertMode::stream, uint64_t{4} << 20);
  const std::string path = testing::TempDir() + "token_log.csv";
  const Json config{{"cache-mb", {{"value", 4}, {"source", "flag"}}}};
  TokenLog log(*run.context, config, {false, 12}, std::make_unique<LogFile>(path));
  Watchers both({&run.record->meters(), &log});
  const GenerateResult result = run.go(both);
  EXPECT_EQ(log.close(run.record->meters()), "");
  const auto lines = split(read_file(path), '\n');
  std::filesystem::remove(path);
  EXPECT_EQ(lines[0], "# moetier_metrics v1");
  std::string preamble;
  std::vector<std::vector<std::string>> rows;
  for (const std::string& line : lines) {
    if (line.starts_with('#')) {
      preamble += line + "\n";
    } else {
      rows.push_back(split(line, ','));
    }
  }
  for (const char* part :
       {"n_expert=16", "mode=stream", "cache_budget_mb=4.00", "cache_cycle_mb=", "# config cache-mb=4 (flag)",
        "# column read_wait_ms:", "# summary tokens=12 ", "token_demand_MiB=", "layer_demand_MiB="}) {
    EXPECT_THAT(preamble, HasSubstr(part));
  }
  ASSERT_EQ(rows.size(), 14u) << "a header, the prompt, 12 tokens";
  std::map<std::string, size_t> column;
  for (size_t i = 0; i < rows[0].size(); ++i) column[rows[0][i]] = i;
  ASSERT_EQ(column.size(), token_columns().size());
  uint64_t hits = 0, misses = 0, bytes = 0;
  for (size_t r = 1; r < rows.size(); ++r) {
    ASSERT_EQ(rows[r].size(), token_columns().size());
    EXPECT_EQ(rows[r][column["phase"]], r == 1 ? "prompt" : "decode");
    EXPECT_EQ(rows[r][column["step"]], std::to_string(r - 1));
    if (r == 1) continue;
    EXPECT_EQ(rows[r][column["token"]], std::to_string(result.tokens[r - 2]));
    hits += std::stoull(rows[r][column["hits"]]);
    misses += std::stoull(rows[r][column["misses"]]);
    bytes += std::stoull(rows[r][column["read_bytes"]]);
    EXPECT_EQ(rows[r][column["cache_budget_mib"]], "4");
    const double parts = std::stod(rows[r][column["read_wait_ms"]]) + std::stod(rows[r][column["compute_ms"]]);
    EXPECT_LE(parts, std::stod(rows[r][column["wall_ms"]]) * 1.001);
  }
  const StoreCounters& decode = run.record->meters().decode().cost.counters;
  EXPECT_EQ(hits, decode.hits);
  EXPECT_EQ(misses, decode.misses);
  EXPECT_EQ(bytes, decode.bytes_read);
}

TEST(TokenLog, AFullDiskIsToldAndStopsNothing) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full here";
  Session run(ExpertMode::mmap);
  TokenLog log(*run.context, Json::object(), {}, std::make_unique<LogFile>("/dev/full"));
  EXPECT_EQ(run.go(log).tokens.size(), 12u);
  EXPECT_THAT(log.close(run.record->meters()), HasSubstr("/dev/full ends early: No space left"));
  EXPECT_THROW(LogFile("/nonexistent/dir/x"), Error);
}

TEST(Machine, CpuAndDriveMeters) {
  const auto root = std::filesystem::path(testing::TempDir()) / "cpu_meters";
  std::filesystem::create_directories(root / "proc/self");
  EXPECT_FALSE(busy_cpu_seconds(root).has_value());
  EXPECT_FALSE(process_device_bytes(root).has_value());
  std::ofstream(root / "proc/stat") << "cpu  100 20 30 4000 500 6 7 8 9 10\ncpu0 1 2 3\n";
  std::ofstream(root / "proc/self/io") << "rchar: 5\nwchar: 6\nread_bytes: 8192\nwrite_bytes: 1\n";
  const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  EXPECT_NEAR(*busy_cpu_seconds(root), 171 / ticks, 1e-9);
  EXPECT_EQ(process_device_bytes(root), 8192u);
  std::ofstream(root / "proc/stat") << "cpu  100 20\n";
  EXPECT_FALSE(busy_cpu_seconds(root).has_value());
  std::filesystem::remove_all(root);
  const auto before = process_cpu_seconds();
  ASSERT_TRUE(before.has_value());
  volatile double work = 1;
  for (int i = 0; i < 3000000; ++i) work = work * 1.0000001;
  EXPECT_GT(*process_cpu_seconds(), *before);
}

}  // namespace
}  // namespace moetier
