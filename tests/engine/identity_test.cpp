// Promise 1: the same model and tokens give the same logits, bit for bit, whatever else is chosen.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "base/error.h"
#include "engine/covering.h"
#include "engine/fixtures.h"
#include "engine/sanitized.h"

namespace moetier {
namespace {

using namespace testing_support;

constexpr std::array<size_t, 4> kLengths{66, 30, 12, 5};  // of the sequences; the first needs more than a page

std::vector<Isa> instruction_sets() {
  std::vector<Isa> sets{Isa::portable};
  for (const char* name : {"avx2", "avx512", "neon"}) {
    try {
      sets.push_back(parse_isa(name));
    } catch (const Error&) {
      // This machine cannot run it.
    }
  }
  return sets;
}

struct Sequence {
  std::vector<TokenId> tokens;
  std::vector<float> logits;  // of every position, one sequence alone
};

/// Feeds all sequences in one batch, a row of each in turn, and compares each one's logits with what it gave alone.
void expect_same_interleaved(Context& context, const std::vector<Sequence>& sequences, const std::string& how) {
  std::vector<SequenceState> states;
  for (size_t i = 0; i < sequences.size(); ++i) states.push_back(context.new_sequence());
  std::vector<BatchRow> rows;
  std::vector<std::pair<size_t, size_t>> places;  // sequence and position of each row
  for (size_t p = 0; p < kLengths[0]; ++p) {
    for (size_t s = 0; s < sequences.size(); ++s) {
      if (p >= sequences[s].tokens.size()) continue;
      rows.push_back({sequences[s].tokens[p], &states[s], true});
      places.emplace_back(s, p);
    }
  }
  context.decode(rows);
  const size_t vocab = context.logits(0).size();
  size_t different = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto& [s, p] = places[i];
    different +=
        !same_bits(context.logits(static_cast<int64_t>(i)), std::span(sequences[s].logits).subspan(p * vocab, vocab));
  }
  EXPECT_EQ(different, 0u) << "rows of interleaved sequences differ with " << how;
}

struct Case {
  const char* model;
  bool every;  ///< every combination of what can be chosen; else each pair of values of two things
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model;
}

/// What must not change a bit, and, beside it, the type of the KV cache.
struct Choice {
  TensorType kv;
  Isa isa;
  int threads;
  int64_t ubatch;
};

constexpr std::array kKvTypes{TensorType::f16, TensorType::f32};
constexpr std::array kThreads{1, 2, 3, 8};
constexpr std::array<int64_t, 4> kUbatches{1, 7, 32, 512};

/// All combinations, or rows that hold every pair of values: other ones for each model.
std::vector<Choice> choices(const Case& of) {
  const std::vector<Isa> sets = instruction_sets();
  const std::vector<size_t> levels{kKvTypes.size(), sets.size(), kThreads.size(), kUbatches.size()};
  std::vector<Row> rows;
  if (of.every && !kSanitized) {
    Row row(levels.size(), 0);
    const auto next = [&] {
      for (size_t f = 0; f < row.size(); ++f) {
        if (++row[f] < levels[f]) return true;
        row[f] = 0;
      }
      return false;
    };
    do rows.push_back(row);
    while (next());
  } else {
    uint64_t seed = 1;
    for (const char c : std::string_view(of.model)) seed = seed * 31 + static_cast<unsigned char>(c);
    rows = covering_rows(levels, seed);
    if (kSanitized) rows.resize(std::min<size_t>(rows.size(), 6));
  }
  std::vector<Choice> all;
  for (const Row& r : rows) all.push_back({kKvTypes[r[0]], sets[r[1]], kThreads[r[2]], kUbatches[r[3]]});
  std::ranges::stable_sort(all, {}, &Choice::kv);
  return all;
}

class Identity : public testing::TestWithParam<Case> {
 protected:
  /// What portable kernels give with one thread and each sequence alone.
  static std::vector<Sequence> reference(TensorType kv) {
    const auto engine = load(GetParam().model, 1, Isa::portable);
    Context context(*engine, small_context(kv));
    std::vector<Sequence> sequences(kLengths.size());
    for (size_t s = 0; s < sequences.size(); ++s) {
      sequences[s].tokens = some_tokens(*engine, kLengths[s], s + 1);
      SequenceState state = context.new_sequence();
      sequences[s].logits = feed(context, state, sequences[s].tokens);
      for (const float l : sequences[s].logits) EXPECT_TRUE(std::isfinite(l));
    }
    EXPECT_FALSE(same_bits(sequences[0].logits, sequences[1].logits));
    return sequences;
  }
};

TEST_P(Identity, LogitsDoNotDependOnThreadsUbatchInstructionsOrCompany) {
  std::vector<Sequence> sequences;
  std::optional<TensorType> held;
  for (const Choice& choice : choices(GetParam())) {
    if (held != choice.kv) sequences = reference(choice.kv);
    held = choice.kv;
    const auto engine = load(GetParam().model, choice.threads, choice.isa);
    const std::string how = engine->compute().name() + ", ubatch " + std::to_string(choice.ubatch);
    Context context(*engine, small_context(choice.kv, choice.ubatch, static_cast<int>(kLengths.size())));
    SequenceState alone = context.new_sequence();
    EXPECT_TRUE(same_bits(feed(context, alone, sequences[0].tokens), sequences[0].logits)) << how;
    alone.truncate(0);
    // With ubatch 1 rows never meet.
    if (choice.ubatch > 1) expect_same_interleaved(context, sequences, how);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Identity,
                         testing::Values(Case{"mini-qwen3moe-q8_0", true}, Case{"mini-qwen3moe-f32", true},
                                         Case{"mini-qwen3moe-f16", false}, Case{"mini-qwen3moe-mxfp4_moe", false},
                                         Case{"small-qwen3moe-q4_k_m", false}, Case{"odd-llama-f32", false},
                                         Case{"mini-qwen2moe-f32", false}, Case{"odd-qwen3-f32", false},
                                         Case{"mini-gpt-oss-mxfp4_moe", false}, Case{"odd-gpt-oss-f32", false},
                                         Case{"mini-glm4moe-f32", false}, Case{"mini-gemma4-f32", false},
                                         Case{"mini-bailingmoe2-f32", false}, Case{"mini-granitemoe-f32", false},
                                         Case{"mini-deepseek2-q5_0", false}, Case{"unfolded-deepseek2-f32", false},
                                         Case{"mini-qwen3next-f32", false}, Case{"mini-qwen35moe-q4_0", false},
                                         Case{"mini-lfm2moe-q8_0", false}, Case{"mini-phimoe-f32", false},
                                         Case{"mini-nemotron_h_moe-q8_0", false}, Case{"mini-llama4-q8_0", false},
                                         Case{"mini-bailingmoe3-q5_0", false}, Case{"mini-deepseek4-q5_0", false},
                                         Case{"latent-nemotron_h_moe-f32", false}, Case{"mini-olmoe-f32", false},
                                         Case{"mini-ernie4_5-moe-q8_0", false}, Case{"mini-hunyuan-moe-q5_1", false},
                                         Case{"mini-minimax-m2-q8_0", false}, Case{"mini-qwen2-f32", false}),
                         [](const auto& p) {
                           std::string name = p.param.model;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

/// Models for which the rest is checked, quantized and with experts.
class Sameness : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Engine> engine = load(GetParam(), 2);
  Context context{*engine, small_context(TensorType::f16, 32, 4)};
  std::vector<TokenId> tokens = some_tokens(*engine, 150, 5);
  std::vector<float> want;  // of every position

  void SetUp() override {
    SequenceState s = context.new_sequence();
    want = feed(context, s, tokens);
  }
  /// The logits wanted from position `first` on.
  std::span<const float> from(size_t first) const {
    return std::span(want).subspan(first * static_cast<size_t>(engine->model().hparams().vocab));
  }
  std::span<const TokenId> part(size_t first, size_t end) const {
    return std::span(tokens).subspan(first, end - first);
  }
};

TEST_P(Sameness, TokenByToken) {
  SequenceState s = context.new_sequence();
  EXPECT_TRUE(same_bits(feed_singly(context, s, tokens), want));
}

TEST_P(Sameness, InPiecesOfAnyLength) {
  SequenceState s = context.new_sequence();
  std::vector<float> got;
  size_t first = 0;
  for (const size_t n : {1u, 63u, 1u, 2u, 40u, 43u}) {
    const std::vector<float> piece = feed(context, s, part(first, first + n));
    got.insert(got.end(), piece.begin(), piece.end());
    first += n;
  }
  EXPECT_TRUE(same_bits(got, want));
}

TEST_P(Sameness, AfterForkOfASharedPage) {
  SequenceState trunk = context.new_sequence();
  feed(context, trunk, part(0, 100));
  SequenceState branch = trunk.fork();
  const std::vector<TokenId> other = some_tokens(*engine, 50, 77);
  const std::vector<float> elsewhere = feed(context, branch, other);
  EXPECT_TRUE(same_bits(feed(context, trunk, part(100, 150)), from(100)));
  SequenceState fresh = context.new_sequence();
  feed(context, fresh, part(0, 100));
  EXPECT_TRUE(same_bits(feed(context, fresh, other), elsewhere));
}

TEST_P(Sameness, BranchesInOneBatch) {
  SequenceState trunk = context.new_sequence();
  feed(context, trunk, part(0, 100));
  SequenceState branch = trunk.fork();
  std::vector<BatchRow> rows;
  for (size_t i = 100; i < 150; ++i) {
    rows.push_back({tokens[i], &trunk, true});
    rows.push_back({tokens[i], &branch, true});
  }
  context.decode(rows);
  const size_t vocab = context.logits(0).size();
  for (int64_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(same_bits(context.logits(i), from(100 + static_cast<size_t>(i) / 2).first(vocab))) << i;
  }
}

TEST_P(Sameness, AfterTruncateAndRollback) {
  SequenceState s = context.new_sequence();
  feed(context, s, part(0, 90));
  const auto point = s.checkpoint();
  feed(context, s, some_tokens(*engine, 60, 8));
  s.truncate(90);
  EXPECT_TRUE(same_bits(feed(context, s, part(90, 150)), from(90)));
  s.truncate(20);
  feed(context, s, some_tokens(*engine, 60, 9));
  s.rollback(point);
  EXPECT_TRUE(same_bits(feed(context, s, part(90, 150)), from(90)));
}

TEST_P(Sameness, AfterSaveAndLoadInAnotherContext) {
  SequenceState s = context.new_sequence();
  feed(context, s, part(0, 100));
  const std::string saved = s.save();
  const auto again = load(GetParam(), 1, Isa::portable);
  Context elsewhere(*again, small_context(TensorType::f16, 7));
  SequenceState t = elsewhere.new_sequence();
  t.load(saved);
  EXPECT_TRUE(same_bits(feed(elsewhere, t, part(100, 150)), from(100)));
}

TEST_P(Sameness, WithUbatchesGroupedByLayer) {
  for (const int group : {2, 3, 64}) {
    ContextOptions o = small_context(TensorType::f16, 7);
    o.group_rows = 7 * group;
    Context grouped(*engine, o);
    SequenceState s = grouped.new_sequence();
    EXPECT_TRUE(same_bits(feed(grouped, s, tokens), want)) << group;
  }
}

TEST_P(Sameness, WantingSomeRowsOrASinkChangesNothing) {
  const size_t vocab = static_cast<size_t>(engine->model().hparams().vocab);
  std::vector<BatchRow> rows;
  SequenceState s = context.new_sequence();
  for (size_t i = 0; i < tokens.size(); ++i) rows.push_back({tokens[i], &s, i % 3 == 1});
  context.decode(rows);
  ASSERT_EQ(context.logits_count(), 50);
  for (int64_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(same_bits(context.logits(i), from(static_cast<size_t>(i) * 3 + 1).first(vocab))) << i;
  }
  s.truncate(0);
  int64_t next = 0;
  context.decode(rows, [&](int64_t index, std::span<const float> logits) {
    EXPECT_EQ(index, next++);
    EXPECT_TRUE(same_bits(logits, from(static_cast<size_t>(index) * 3 + 1).first(vocab))) << index;
  });
  EXPECT_EQ(next, 50);
  EXPECT_EQ(context.logits_count(), 0);
}

INSTANTIATE_TEST_SUITE_P(Models, Sameness,
                         testing::Values("mini-qwen3moe-q8_0", "mini-deepseek2-q5_0", "mini-qwen3next-q8_0",
                                         "mini-lfm2moe-q8_0", "mini-nemotron_h_moe-q8_0", "mini-deepseek4-q5_0",
                                         "mini-deepseek4-f32", "mini-gpt-oss-mxfp4_moe", "odd-gpt-oss-f32",
                                         "mini-gemma4-q8_0", "mini-llama4-q8_0", "mini-bailingmoe3-q5_0",
                                         "mini-qwen35moe-q4_0"),
                         [](const auto& p) {
                           std::string name = p.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

/// Where recurrent layers cannot go back, the sequence is cut further, and says so.
TEST(Recurrent, IsCutToPositionsWhoseStateWasKept) {
  const auto engine = load("mini-qwen3next-q8_0", 2);
  Context context(*engine, small_context(TensorType::f16, 32, 2));
  const std::vector<TokenId> tokens = some_tokens(*engine, 100, 5);
  SequenceState whole = context.new_sequence();
  const std::vector<float> want = feed(context, whole, tokens);
  const auto vocab = static_cast<size_t>(engine->model().hparams().vocab);
  const auto rest = std::span(tokens);
  const auto goes_on = [&](SequenceState& s) {
    const auto at = static_cast<size_t>(s.length());
    return same_bits(feed(context, s, rest.subspan(at)), std::span(want).subspan(at * vocab));
  };
  whole.truncate(0);
  const auto built = [&] {
    SequenceState s = context.new_sequence();
    feed(context, s, rest.first(30));
    feed(context, s, rest.subspan(30, 30));
    for (size_t i = 60; i < 64; ++i) feed(context, s, rest.subspan(i, 1));
    return s;
  };
  for (const auto& [cut, kept] :
       {std::pair<int64_t, int64_t>{64, 64}, {63, 63}, {62, 60}, {60, 60}, {59, 30}, {30, 30}, {29, 0}, {0, 0}}) {
    SequenceState s = built();
    EXPECT_EQ(s.truncate(cut), kept) << cut;
    EXPECT_EQ(s.length(), kept);
    EXPECT_TRUE(goes_on(s)) << cut;
  }
  // A fork can be cut as its trunk can.
  SequenceState trunk = built();
  SequenceState fork = trunk.fork();
  EXPECT_EQ(fork.truncate(59), 30);
  EXPECT_TRUE(goes_on(fork));
  EXPECT_TRUE(goes_on(trunk));
}

/// Keys of blocks of 128 positions come late: two sequences past two of them, in one batch and alone, on every
/// instruction set.
TEST(Recurrent, LongBlocksDoNotDependOnCompany) {
  std::vector<Sequence> sequences(2);
  for (const Isa isa : instruction_sets()) {
    const auto engine = load("mini-deepseek4-f32", isa == Isa::portable ? 1 : 2, isa);
    ContextOptions o = small_context(TensorType::f16, isa == Isa::portable ? 512 : 50, 2);
    o.context = 320;
    Context context(*engine, o);
    std::vector<SequenceState> states;
    for (size_t s = 0; s < sequences.size(); ++s) {
      states.push_back(context.new_sequence());
      sequences[s].tokens = some_tokens(*engine, s == 0 ? 300 : 200, s + 1);
      const std::vector<float> alone = feed(context, states[s], sequences[s].tokens);
      if (sequences[s].logits.empty()) sequences[s].logits = alone;
      EXPECT_TRUE(same_bits(alone, sequences[s].logits)) << engine->compute().name();
      states[s].truncate(0);
    }
    std::vector<BatchRow> rows;
    for (size_t p = 0; p < 300; ++p) {
      for (size_t s = 0; s < sequences.size(); ++s) {
        if (p < sequences[s].tokens.size()) rows.push_back({sequences[s].tokens[p], &states[s], true});
      }
    }
    context.decode(rows);
    const size_t vocab = context.logits(0).size();
    std::vector<size_t> next(sequences.size(), 0);
    size_t different = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t s = rows[i].sequence == &states[0] ? 0 : 1, p = next[s]++;
      different +=
          !same_bits(context.logits(static_cast<int64_t>(i)), std::span(sequences[s].logits).subspan(p * vocab, vocab));
    }
    EXPECT_EQ(different, 0u) << engine->compute().name();
  }
}

/// What is saved depends on nothing but the positions: not on how they came, and saving what was loaded gives it again.
TEST(Recurrent, SavedStatesOfBlocksAreTheSameHoweverTheyCame) {
  const auto engine = load("mini-deepseek4-q5_0", 2);
  const std::vector<TokenId> tokens = some_tokens(*engine, 200, 4);
  Context whole(*engine, small_context(TensorType::f16, 64)), pieces(*engine, small_context(TensorType::f16, 7, 2));
  for (const size_t length : {1u, 3u, 4u, 63u, 64u, 127u, 128u, 129u, 191u, 200u}) {
    SequenceState a = whole.new_sequence(), b = pieces.new_sequence(), c = pieces.new_sequence();
    feed(whole, a, std::span(tokens).first(length));
    const std::string saved = a.save();
    EXPECT_EQ(saved.size(), a.saved_bytes());
    feed(pieces, b, std::span(tokens).first(length));
    EXPECT_EQ(b.save(), saved) << length;
    c.load(saved);
    EXPECT_EQ(c.save(), saved) << length;
  }
}

TEST(Recurrent, AFailedBatchLeavesTheStateAsItWas) {
  const auto engine = load("mini-qwen3next-q8_0", 2);
  Context context(*engine, small_context(TensorType::f16, 32, 1));
  const std::vector<TokenId> tokens = some_tokens(*engine, 60, 6);
  SequenceState s = context.new_sequence();
  const std::vector<float> want = feed(context, s, tokens);
  s.truncate(0);
  feed(context, s, std::span(tokens).first(40));
  std::vector<BatchRow> rows;
  for (size_t i = 40; i < 60; ++i) rows.push_back({tokens[i], &s, true});
  EXPECT_THROW(context.decode(rows,
                              [](int64_t index, std::span<const float>) {
                                if (index == 15) fail("the sink wants no more");
                              }),
               Error);
  EXPECT_EQ(s.length(), 40);
  const auto vocab = static_cast<size_t>(engine->model().hparams().vocab);
  EXPECT_TRUE(same_bits(feed(context, s, std::span(tokens).subspan(40)), std::span(want).subspan(40 * vocab)));
}

}  // namespace
}  // namespace moetier
