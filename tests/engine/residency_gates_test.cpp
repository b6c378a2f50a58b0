// Promise 1 for residency: wherever entries and dense weights live and however they come, the logits are those of a
// model that is simply there, bit for bit; the counters add up and the budget is kept.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "engine/covering.h"
#include "engine/fixtures.h"
#include "engine/forms.h"
#include "engine/sanitized.h"
#include "model/synth.h"

namespace moetier {
namespace {

using namespace testing_support;
namespace fs = std::filesystem;

constexpr size_t kPrompt = 43, kDecode = 9;

/// The models and, for each, what it gives when it is simply there.
class Models {
 public:
  struct Model {
    std::string name, path;
    std::vector<TokenId> tokens;
    std::vector<float> logits;
  };

  static const std::vector<Model>& all() {
    static const Models models;
    return models.all_;
  }

 private:
  Models() : folder_(fs::path(::testing::TempDir()) / ("gates_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
    // Types differ between layers and inside one; layers and experts enough for a cache to be worth something.
    synthesize({.like = "tiny",
                .architecture = "qwen3moe",
                .layers = 6,
                .type = "q4_k_m",
                .seed = 5,
                .skew = 1.0,
                .set = {{"E", 16}, {"K", 4}, {"D", 256}, {"F", 256}, {"V", 300}}},
               folder_ / "mixed.gguf");
    synthesize({.like = "tiny",
                .architecture = "qwen2moe",
                .layers = 4,
                .type = "q8_0",
                .seed = 6,
                .set = {{"E", 12}, {"K", 3}, {"V", 300}}},
               folder_ / "shared.gguf");
    add("mixed", folder_ / "mixed.gguf");
    add("shared_expert", folder_ / "shared.gguf");
    add("olmoe_f32", model_path("mini-olmoe-f32"));
    add("llama_f32", model_path("mini-llama-f32"));
    add("mxfp4", model_path("mini-qwen3moe-mxfp4_moe"));
    add("many_types", model_path("many-qwen3moe-types"));
    add("gpt_oss", model_path("mini-gpt-oss-mxfp4_moe"));
    add("gemma4_fused", model_path("mini-gemma4-f32"));
    add("glm4moe", model_path("mini-glm4moe-q8_0"));
    add("deepseek2", model_path("mini-deepseek2-q5_0"));
    add("deepseek4", model_path("mini-deepseek4-q5_0"));
    add("qwen3next", model_path("mini-qwen3next-q8_0"));
    add("llama4_weighed_input", model_path("mini-llama4-q8_0"));
    add("nemotron_no_gate", model_path("mini-nemotron_h_moe-q8_0"));
    add("qwen35moe", model_path("mini-qwen35moe-q4_0"));
    add("lfm2moe", model_path("mini-lfm2moe-q8_0"));
    add("phimoe", model_path("mini-phimoe-q8_0"));
    add("bailingmoe2", model_path("mini-bailingmoe2-q8_0"));
    add("bailingmoe3", model_path("mini-bailingmoe3-q5_0"));
    add("granitemoe", model_path("mini-granitemoe-q4_1"));
    add("ernie4_5_moe", model_path("mini-ernie4_5-moe-q8_0"));
    add("hunyuan_moe", model_path("mini-hunyuan-moe-q5_1"));
    add("minimax_m2", model_path("mini-minimax-m2-q8_0"));
    add("fused", write_form(folder_ / "shared.gguf", folder_ / "fused", true, 1));
    add("split", write_form(folder_ / "mixed.gguf", folder_ / "split", false, 5));
  }
  ~Models() { fs::remove_all(folder_); }

  void add(const std::string& name, const std::string& path) {
    EngineOptions options;
    options.cpu.threads = 1;
    options.residency.mode = ExpertMode::mmap;
    const auto engine = Engine::load(path, options);
    Context context(*engine, small_context());
    SequenceState sequence = context.new_sequence();
    Model model{name, path, some_tokens(*engine, kPrompt + kDecode, 17), {}};
    model.logits = feed(context, sequence, model.tokens);
    all_.push_back(std::move(model));
  }

  fs::path folder_;
  std::vector<Model> all_;
};

// --- the factors ---

const std::vector<ExpertMode> kModes{ExpertMode::stream, ExpertMode::stream, ExpertMode::stream, ExpertMode::resident,
                                     ExpertMode::mmap,   ExpertMode::advise, ExpertMode::noop};
const std::vector<CachePolicy> kPolicies(kCachePolicies.begin(), kCachePolicies.end());
const std::vector<double> kCycles{0, 0.3, 1, 2, 8};
const std::vector<DensePolicy> kDense{DensePolicy::mmap, DensePolicy::warm, DensePolicy::anon};
const std::vector<ReadKind> kKinds{ReadKind::automatic, ReadKind::threads};
const std::vector<int> kThreads{1, 2, 3};
const std::vector<int64_t> kUbatches{1, 7, 32, 512};
const std::vector<int64_t> kGroupRows{0, 20, 4096};
const std::vector<int> kPrefetch{0, 2};
const std::vector<int> kDepths{1, 16};

enum Factor : size_t {
  kModel,
  kMode,
  kPolicy,
  kBudget,
  kDensePolicy,
  kKind,
  kThread,
  kUbatch,
  kGroup,
  kAhead,
  kDepth,
  kOverlap,
  kDirect,
  kLoadAll,
  kFactors
};

std::vector<size_t> levels() {
  std::vector<size_t> n(kFactors, 2);
  n[kModel] = Models::all().size();
  n[kMode] = kModes.size();
  n[kPolicy] = kPolicies.size();
  n[kBudget] = kCycles.size();
  n[kDensePolicy] = kDense.size();
  n[kThread] = kThreads.size();
  n[kUbatch] = kUbatches.size();
  n[kGroup] = kGroupRows.size();
  n[kAhead] = kPrefetch.size();
  n[kDepth] = kDepths.size();
  return n;
}

std::string describe(const Row& row) {
  return fmt::format(
      "{} {} policy={} cycles={} dense={} io={} threads={} ubatch={} group={} prefetch={} depth={} overlap={} "
      "direct={} "
      "load_all={}",
      Models::all()[row[kModel]].name, to_string(kModes[row[kMode]]), to_string(kPolicies[row[kPolicy]]),
      kCycles[row[kBudget]], to_string(kDense[row[kDensePolicy]]), row[kKind] == 0 ? "auto" : "threads",
      kThreads[row[kThread]], kUbatches[row[kUbatch]], kGroupRows[row[kGroup]], kPrefetch[row[kAhead]],
      kDepths[row[kDepth]], row[kOverlap], row[kDirect], row[kLoadAll]);
}

/// Counts distinct picks per fetch as the store must.
struct Picks {
  uint64_t distinct = 0;
  static void note(void* user, const RoutedPicks& picks) {
    static_cast<Picks*>(user)->distinct += std::set<int32_t>(picks.ids.begin(), picks.ids.end()).size();
  }
};

/// Prompt, then token by token, once more in a new sequence after a resize.
void expect_same(const Row& row) {
  if (std::getenv("GATES_SAY") != nullptr) fmt::print(stderr, "{}\n", describe(row));
  SCOPED_TRACE(describe(row));
  const Models::Model& model = Models::all()[row[kModel]];
  EngineOptions options;
  options.cpu.threads = kThreads[row[kThread]];
  ResidencyOptions& r = options.residency;
  r.mode = kModes[row[kMode]];
  r.policy = kPolicies[row[kPolicy]];
  r.dense = kDense[row[kDensePolicy]];
  r.io = kKinds[row[kKind]];
  r.io_depth = r.io_lanes = kDepths[row[kDepth]];
  r.overlap = row[kOverlap] != 0;
  r.direct = row[kDirect] != 0;
  r.load_all = row[kLoadAll] != 0;
  r.preload = row[kLoadAll] != 0;  // another mode's
  r.advise_always = true;
  const bool streams = r.mode == ExpertMode::stream;
  if (streams) {
    const GgufFile file = GgufFile::open(model.path);
    const uint64_t cycle = EntryMap::from_gguf(file, read_top_k(file)).token_cycle_bytes();
    r.cache_bytes = static_cast<uint64_t>(kCycles[row[kBudget]] * static_cast<double>(cycle));
    if (*r.cache_bytes > 0) r.prefetch = kPrefetch[row[kAhead]];
  }
  const auto engine = Engine::load(model.path, options);
  ContextOptions small = small_context(TensorType::f32, kUbatches[row[kUbatch]]);
  small.group_rows = kGroupRows[row[kGroup]];
  Context context(*engine, small);
  Picks picks;
  context.observe_picks(Picks::note, &picks);
  const size_t vocab = model.logits.size() / model.tokens.size();
  const std::span<const TokenId> tokens = model.tokens;
  for (int round = 0; round < 2; ++round) {
    SequenceState sequence = context.new_sequence();
    std::vector<float> all = feed(context, sequence, tokens.first(kPrompt));
    const std::vector<float> rest = feed_singly(context, sequence, tokens.subspan(kPrompt));
    all.insert(all.end(), rest.begin(), rest.end());
    EXPECT_TRUE(same_bits(all, model.logits)) << "round " << round;
    const StoreStatus status = engine->store()->status();
    EXPECT_EQ(status.mode, r.mode);
    EXPECT_LE(status.token_demand_bytes, engine->store()->map().token_cycle_bytes());
    if (!streams) continue;
    EXPECT_LE(status.arena_bytes, std::max(status.budget_bytes, status.transit_bytes));
    EXPECT_LE(engine->store()->resident_bytes(), status.budget_bytes);
    engine->store()->set_budget(round == 0 ? status.budget_bytes / 2 : 0);
  }
  const StoreCounters sum = engine->store()->counters();
  EXPECT_EQ(sum.hits + sum.misses + sum.large_hits + sum.large_misses, picks.distinct);
  EXPECT_LE(sum.hits_profile, sum.hits);
  EXPECT_LE(sum.rereads, sum.misses + sum.large_misses);
  if (streams && !r.load_all && r.prefetch == 0) {
    // A swap whose entry gives way again before it was read is not.
    EXPECT_GE(sum.reads, sum.misses + sum.large_misses);
    EXPECT_LE(sum.reads, sum.misses + sum.large_misses + sum.swaps);
  }
  static_cast<void>(vocab);
}

TEST(ResidencyGates, EveryPairOfChoicesGivesTheSameBits) {
  std::vector<Row> rows = covering_rows(levels(), 1);
  if (kSanitized) rows.resize(std::min<size_t>(rows.size(), 12));
  for (const Row& row : rows) expect_same(row);
}

// The long tests set MOETIER_GATES to how many random cases they want.
TEST(ResidencyGates, ASampleOfAllCombinationsGivesTheSameBits) {
  const char* wanted = std::getenv("MOETIER_GATES");
  const int n = wanted == nullptr ? (kSanitized ? 4 : 25) : std::atoi(wanted);
  Xoshiro256 random(2026);
  const std::vector<size_t> of = levels();
  for (int i = 0; i < n; ++i) {
    Row row(kFactors);
    for (size_t f = 0; f < kFactors; ++f) row[f] = random.next_starstar() % of[f];
    expect_same(row);
  }
}

// --- named corners ---

Row corner(std::initializer_list<std::pair<Factor, size_t>> set) {
  Row row(kFactors, 0);
  row[kOverlap] = row[kDirect] = 1;
  row[kBudget] = 2;
  row[kDensePolicy] = 2;
  row[kThread] = 1;
  row[kUbatch] = 2;
  row[kDepth] = 1;
  for (const auto& [factor, value] : set) row[factor] = value;
  return row;
}

TEST(ResidencyGates, TransitOnly) {
  for (size_t m = 0; m < Models::all().size(); ++m) expect_same(corner({{kModel, m}, {kBudget, 0}}));
}
TEST(ResidencyGates, ATightCacheThatEvictsAllTheTime) {
  for (size_t m = 0; m < Models::all().size(); ++m) expect_same(corner({{kModel, m}, {kBudget, 1}, {kPolicy, 1}}));
}
TEST(ResidencyGates, SelectiveAndReadingAllAreTheSame) {
  expect_same(corner({{kLoadAll, 1}}));
  expect_same(corner({{kLoadAll, 1}, {kBudget, 0}, {kOverlap, 0}}));
}
TEST(ResidencyGates, ReadingAheadChangesNothing) {
  for (size_t kind = 0; kind < 2; ++kind) expect_same(corner({{kAhead, 1}, {kBudget, 3}, {kKind, kind}, {kUbatch, 0}}));
}
TEST(ResidencyGates, SerialOneAtATimeAndBuffered) {
  expect_same(corner({{kOverlap, 0}, {kDepth, 0}, {kKind, 1}, {kDirect, 0}}));
}
TEST(ResidencyGates, APromptInManyUbatchesThatPassLayersTogether) {
  for (size_t m = 0; m < Models::all().size(); ++m)
    expect_same(corner({{kModel, m}, {kUbatch, 1}, {kGroup, 2}, {kBudget, 1}}));
}

}  // namespace
}  // namespace moetier
