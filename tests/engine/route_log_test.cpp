#include "engine/route_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <sstream>
#include <thread>

#include "base/file.h"
#include "engine/fixtures.h"
#include "engine/generate.h"
#include "experts/trace.h"
#include "support/error_of.h"

namespace moetier {
namespace {

using namespace testing_support;
using testing::HasSubstr;

struct Picks {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};
using PicksOf = std::map<std::pair<int64_t, int>, Picks>;  // by token and layer

/// What the router picks, from one token at a time.
PicksOf picks_of(Engine& engine, std::span<const TokenId> tokens) {
  Context context(engine, small_context());
  struct Seen {
    PicksOf picks;
    int64_t token = 0;
  } seen;
  context.observe_picks(
      [](void* user, const RoutedPicks& picks) {
        auto& s = *static_cast<Seen*>(user);
        s.picks[{s.token, picks.layer}] = {{picks.ids.begin(), picks.ids.end()},
                                           {picks.weights.begin(), picks.weights.end()}};
      },
      &seen);
  SequenceState sequence = context.new_sequence();
  for (const TokenId token : tokens) {
    feed(context, sequence, {&token, 1});
    ++seen.token;
  }
  return seen.picks;
}

void expect_picks(const RoutingTrace& trace, const PicksOf& expected, bool weights = true) {
  ASSERT_EQ(trace.routings.size(), expected.size());
  for (const Routing& r : trace.routings) {
    const auto found = expected.find({r.token, r.layer});
    ASSERT_NE(found, expected.end());
    const auto ids = trace.picks(r);
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), found->second.ids.begin(), found->second.ids.end()));
    const auto w = trace.pick_weights(r);
    if (weights) {
      EXPECT_TRUE(std::equal(w.begin(), w.end(), found->second.weights.begin(), found->second.weights.end()));
    } else {
      EXPECT_TRUE(std::all_of(w.begin(), w.end(), [](float x) { return x == 0; }));
    }
  }
}

class RouteLogFile : public testing::TestWithParam<int> {
 protected:
  ~RouteLogFile() override { std::filesystem::remove(path_); }

  /// A prompt of 10 tokens and 4 decoded ones, by ubatches of 3 in groups of the parameter.
  ContextOptions options() const {
    ContextOptions o = small_context(TensorType::f32, 3);
    o.group_rows = 3 * GetParam();
    return o;
  }
  void run(Context& context, RouteLog& log, std::span<const TokenId> tokens) const {
    SequenceState sequence = context.new_sequence();
    feed(context, sequence, tokens.first(10));
    log.begin_decode();
    feed_singly(context, sequence, tokens.subspan(10));
  }
  const std::string path_ = testing::TempDir() + "route_log_test_" + std::to_string(::getpid());
};

TEST_P(RouteLogFile, CsvHasEveryPick) {
  const auto engine = load("mini-qwen3moe-f32");
  const auto tokens = some_tokens(*engine, 14, 1);
  Context context(*engine, options());
  {
    RouteLog log(context, path_, TraceKind::csv);
    run(context, log, tokens);
    EXPECT_EQ(log.tokens(), 14);
    log.begin_turn();
    run(context, log, tokens);
    EXPECT_EQ(log.tokens(), 28);
  }
  const RoutingTrace t = read_trace(path_);
  EXPECT_EQ(t.model, "mini-qwen3moe-f32.gguf");
  EXPECT_EQ(t.arch, "qwen3moe");
  const HParams& h = engine->model().hparams();
  EXPECT_EQ(std::tuple(t.n_layer, t.n_expert, t.top_k, t.tokens), std::tuple(h.layers, h.experts, h.top_k, 28));
  uint64_t dense = 0;
  for (const uint64_t bytes : t.dense_bytes) dense += bytes;
  EXPECT_GT(dense, 0u);
  EXPECT_LT(dense, engine->model().dense_bytes());
  for (const LayerEntries& entries : engine->store()->map().layers) {
    EXPECT_EQ(t.entry_bytes.at(static_cast<size_t>(entries.layer)), entries.entry_bytes());
  }
  PicksOf expected = picks_of(*engine, tokens);
  for (const auto& [key, picks] : PicksOf(expected)) expected[{key.first + 14, key.second}] = picks;
  expect_picks(t, expected);
  for (const Routing& r : t.routings) EXPECT_EQ(r.prompt, r.token % 14 < 10) << r.token;
}

TEST_P(RouteLogFile, BinaryHasEveryPickTokenByToken) {
  const auto engine = load("mini-qwen3moe-f32");
  const auto tokens = some_tokens(*engine, 14, 2);
  const PicksOf expected = picks_of(*engine, tokens);
  for (const bool weights : {true, false}) {
    Context context(*engine, options());
    RouteLog log(context, path_, TraceKind::binary, weights);
    run(context, log, tokens);
    log.finish();
    expect_picks(read_trace(path_), expected, weights);
  }
}

TEST_P(RouteLogFile, MissesAndTheirBytesAreTheStores) {
  EngineOptions engine_options;
  engine_options.cpu.threads = 1;
  engine_options.residency.mode = ExpertMode::stream;
  uint64_t entry = 0;
  {
    const auto plain = load("mini-qwen3moe-f32");
    entry = plain->store()->map().layers.front().entry_bytes();
    engine_options.residency.cache_bytes = plain->store()->map().total_bytes() * 2;
  }
  const auto engine = Engine::load(model_path("mini-qwen3moe-f32"), engine_options);
  const auto tokens = some_tokens(*engine, 14, 3);
  Context context(*engine, options());
  const StoreCounters before = engine->store()->counters();
  {
    RouteLog log(context, path_, TraceKind::csv);
    run(context, log, tokens);
  }
  const uint64_t misses = engine->store()->counters().misses - before.misses;
  EXPECT_GT(misses, 0u);
  std::istringstream lines(read_file(path_));
  uint64_t reads = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.front() == '#' || line.front() == 't') continue;
    const std::string bytes = line.substr(line.rfind(',') + 1);
    if (bytes == "0") continue;
    ++reads;
    EXPECT_EQ(bytes, std::to_string(entry));
    EXPECT_THAT(line, HasSubstr(",0," + bytes));
  }
  EXPECT_EQ(reads, misses);
}

INSTANTIATE_TEST_SUITE_P(Groups, RouteLogFile, testing::Values(1, 2, 8));

TEST(RouteLog, TellsWhatWasReadAhead) {
  EngineOptions engine_options;
  engine_options.cpu.threads = 1;
  engine_options.residency.mode = ExpertMode::stream;
  engine_options.residency.policy = CachePolicy::lru;
  engine_options.residency.prefetch = 1;
  {
    const auto plain = load("mini-qwen3moe-f32");
    engine_options.residency.cache_bytes = plain->store()->map().token_cycle_bytes() * 3 / 2;
  }
  const auto engine = Engine::load(model_path("mini-qwen3moe-f32"), engine_options);
  const ExpertStore& store = *engine->store();
  const std::string path = testing::TempDir() + "read_ahead_" + std::to_string(getpid()) + ".csv";
  Context context(*engine, small_context());
  uint64_t used = 0, misses = 0;
  {
    RouteLog log(context, path, TraceKind::csv);
    SequenceState a = context.new_sequence();
    // The same token again and again picks much the same, and an idle moment lets it be read ahead.
    for (int i = 0; i < 60 && used < 3; ++i) {
      feed(context, a, std::vector<TokenId>{static_cast<TokenId>(5 + i % 2)});
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      used = store.counters().speculated_used;
    }
    misses = store.counters().misses;
    log.finish();
  }
  std::istringstream lines(read_file(path));
  uint64_t ahead = 0, missed = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.front() == '#' || line.front() == 't') continue;
    const size_t last = line.rfind(','), before = line.rfind(',', last - 1);
    const std::string residency = line.substr(before + 1, last - before - 1);
    if (residency == "2") {
      ++ahead;
      EXPECT_EQ(line.substr(last + 1), "0") << "it is not read again";
    }
    missed += residency == "0" ? 1 : 0;
  }
  std::filesystem::remove(path);
  EXPECT_EQ(ahead, used);
  EXPECT_EQ(ahead + missed, misses) << "the cache did not hold them";
  if (used == 0) GTEST_SKIP() << "the drive never had time to read ahead";
}

TEST(RouteLog, MarksDroppedPicks) {
  EngineOptions engine_options;
  engine_options.residency.mode = ExpertMode::stream;
  {
    const auto plain = load("mini-qwen3moe-f32");
    engine_options.residency.cache_bytes = plain->store()->map().token_cycle_bytes();
  }
  const auto engine = Engine::load(model_path("mini-qwen3moe-f32"), engine_options);
  Context context(*engine, small_context());
  context.moe()->drop_cold(0.9f);
  const std::string path = testing::TempDir() + "dropped_" + std::to_string(getpid()) + ".csv";
  {
    RouteLog log(context, path, TraceKind::csv);
    SequenceState a = context.new_sequence();
    feed_singly(context, a, some_tokens(*engine, 24, 3));
    log.finish();
  }
  const RoutingTrace trace = read_trace(path);
  std::filesystem::remove(path);
  const MoeOperation::Meters& meters = context.moe()->meters();
  EXPECT_EQ(trace.ids.size(), meters.picks) << "dropped ones are chosen all the same";
  EXPECT_GT(meters.dropped, 0u);
  EXPECT_EQ(std::count(trace.residency.begin(), trace.residency.end(), int8_t{-1}),
            static_cast<int64_t>(meters.dropped));
  EXPECT_EQ(std::count(trace.residency.begin(), trace.residency.end(), int8_t{0}),
            static_cast<int64_t>(engine->store()->counters().misses));
}

TEST(RouteLog, RefusesWhatCannotBe) {
  const auto dense = load("mini-llama-dense-f32");
  Context context(*dense, small_context());
  EXPECT_THAT(error_of([&] { RouteLog(context, testing::TempDir() + "x", TraceKind::csv); }), HasSubstr("no experts"));
  const auto engine = load("mini-qwen3moe-f32");
  Context other(*engine, small_context());
  EXPECT_THAT(error_of([&] { RouteLog(other, "/no/such/folder/x", TraceKind::binary); }),
              HasSubstr("/no/such/folder/x"));
  EXPECT_THAT(error_of([&] { RouteLog(other, "/dev/full", TraceKind::csv); }), HasSubstr("cannot write /dev/full"));
}

/// Files of this process cannot grow beyond some bytes while it lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = SIG_DFL;
};

TEST(RouteLog, AWriteThatFailsEndsTheTraceOnly) {
  const auto engine = load("mini-qwen3moe-f32");
  Context context(*engine, small_context());
  const auto tokens = some_tokens(*engine, 40, 1);
  const std::string path = testing::TempDir() + "route_log_limit";
  {
    RouteLog log(context, path, TraceKind::csv);
    SequenceState sequence = context.new_sequence();
    const FileSizeLimit limit(2000);
    EXPECT_EQ(error_of([&] { feed_singly(context, sequence, tokens); }), "");
    EXPECT_EQ(sequence.length(), 40);
    EXPECT_THAT(error_of([&] { log.finish(); }), HasSubstr("cannot write " + path));
  }
  EXPECT_EQ(std::filesystem::file_size(path), 2000u);
  std::filesystem::remove(path);
}

TEST(RouteLog, WatchesGenerations) {
  const auto engine = load("mini-qwen3moe-f32");
  Context context(*engine, small_context());
  const std::string path = testing::TempDir() + "route_log_generate";
  std::vector<size_t> computed;
  {
    RouteLog log(context, path, TraceKind::csv);
    GenerateOptions options;
    options.max_tokens = 4;
    options.ignore_eog = true;
    options.watcher = &log;
    SequenceState sequence = context.new_sequence();
    std::vector<TokenId> held;
    for (const size_t n : {5u, 9u}) {
      auto prompt = held;
      const auto more = some_tokens(*engine, n, n);
      prompt.insert(prompt.end(), more.begin(), more.end());
      const GenerateResult result = generate(context, sequence, held, prompt, options);
      computed.push_back(static_cast<size_t>(result.prompt_tokens - result.reused_tokens));
      ASSERT_EQ(result.tokens.size(), 4u);
    }
    log.finish();
  }
  const RoutingTrace t = read_trace(path);
  // Of each turn the prompt's new tokens and all generated ones but the last, which is not computed.
  EXPECT_EQ(static_cast<size_t>(t.tokens), computed[0] + 3 + computed[1] + 3);
  for (const Routing& r : t.routings) {
    const auto token = static_cast<size_t>(r.token), turn = computed[0] + 3;
    EXPECT_EQ(r.prompt, token < computed[0] || (token >= turn && token < turn + computed[1])) << token;
  }
  std::filesystem::remove(path);
}

TEST(RouteLog, NamesTellTheKind) {
  EXPECT_EQ(trace_kind_of("a/b.csv"), TraceKind::csv);
  EXPECT_EQ(trace_kind_of("a/b.bin"), TraceKind::binary);
  EXPECT_EQ(trace_kind_of("csv"), TraceKind::binary);
}

}  // namespace
}  // namespace moetier
