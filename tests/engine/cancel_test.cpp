// Ctrl-C in the middle of a batch: it ends at once, leaves nothing behind, and the next request is served.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "base/error.h"
#include "engine/fixtures.h"
#include "engine/generate.h"
#include "engine/perplexity.h"
#include "model/synth.h"

namespace moetier {
namespace {

using namespace testing_support;
namespace fs = std::filesystem;

/// Raises a flag when a layer's picks are known, so that its reads are submitted with the flag up.
struct Trigger {
  std::atomic<bool> flag{false};
  int layer = -1, calls = 0;
  static void see(void* user, const RoutedPicks& picks) {
    auto& trigger = *static_cast<Trigger*>(user);
    ++trigger.calls;
    if (picks.layer == trigger.layer) trigger.flag = true;
  }
};

int64_t open_files() {
  int64_t n = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator("/proc/self/fd")) ++n;
  return n;
}

class CancelBatch : public testing::Test {
 protected:
  static constexpr int kLayers = 4;
  static void SetUpTestSuite() {
    path = testing::TempDir() + "cancel_" + std::to_string(getpid()) + ".gguf";
    synthesize({.like = "tiny",
                .architecture = "qwen3moe",
                .layers = kLayers,
                .type = "q8_0",
                .seed = 5,
                .set = {{"E", 16}, {"K", 4}, {"V", 300}}},
               path);
  }
  static void TearDownTestSuite() { fs::remove(path); }

  static EngineOptions streamed(ReadKind io, uint64_t budget, int prefetch = 0) {
    EngineOptions options;
    options.cpu.threads = 2;
    options.residency.mode = ExpertMode::stream;
    options.residency.cache_bytes = budget;
    options.residency.io = io;
    options.residency.io_depth = 2;
    options.residency.io_lanes = 2;
    options.residency.prefetch = prefetch;
    return options;
  }

  static inline std::string path;
};

TEST_F(CancelBatch, LeavesEverythingAsItWas) {
  const auto resident = Engine::load(path);
  Context plain(*resident, small_context());
  SequenceState p = plain.new_sequence();
  const std::vector<TokenId> before = some_tokens(*resident, 10, 1), prompt = some_tokens(*resident, 50, 2);
  feed(plain, p, before);
  const std::vector<float> want = feed(plain, p, prompt);
  for (const ReadKind io : {ReadKind::automatic, ReadKind::threads}) {
    for (const uint64_t budget : {uint64_t{0}, uint64_t{1} << 20}) {
      const auto engine = Engine::load(path, streamed(io, budget, budget > 0 ? 1 : 0));
      Context context(*engine, small_context(TensorType::f32, 16));
      Trigger trigger;
      context.observe_picks(&Trigger::see, &trigger);
      context.cancel_on(&trigger.flag);
      SequenceState a = context.new_sequence();
      feed(context, a, before);
      const std::string held = a.save();
      const int64_t files = open_files();
      const int32_t free = context.kv().free_pages();
      for (int i = 0; i < 3 * kLayers; ++i) {
        trigger.layer = i % kLayers;
        trigger.flag = false;
        trigger.calls = 0;
        // A prompt, and a single token.
        const std::span<const TokenId> tokens = i % 2 == 0 ? std::span(prompt) : std::span(prompt).first(1);
        EXPECT_THROW(feed(context, a, tokens), Cancelled);
        EXPECT_EQ(trigger.calls, trigger.layer + 1) << "no layer is begun any more";
        EXPECT_EQ(a.save(), held);
        EXPECT_EQ(context.logits_count(), 0);
      }
      EXPECT_EQ(open_files(), files);
      EXPECT_EQ(context.kv().free_pages(), free);
      trigger.layer = -1;
      trigger.flag = false;
      EXPECT_TRUE(same_bits(feed(context, a, prompt), want));
    }
  }
}

TEST_F(CancelBatch, EndsAGenerationInItsPromptAndInItsAnswer) {
  const auto engine = Engine::load(path, streamed(ReadKind::automatic, 0));
  Context context(*engine, small_context());
  Trigger trigger;
  context.observe_picks(&Trigger::see, &trigger);
  GenerateOptions options;
  options.max_tokens = 4;
  options.sampler.temperature = 0;
  options.ignore_eog = true;
  options.cancel = &trigger.flag;
  const std::vector<TokenId> prompt = some_tokens(*engine, 40, 3);
  SequenceState a = context.new_sequence();
  std::vector<TokenId> held;

  trigger.layer = 1;
  GenerateResult r = generate(context, a, held, prompt, options);
  EXPECT_EQ(r.reason, StopReason::cancelled);
  EXPECT_TRUE(held.empty());
  EXPECT_EQ(a.length(), 0);

  trigger.flag = false;
  trigger.layer = -1;
  r = generate(context, a, held, prompt, options, [&](std::string_view) {
    trigger.layer = 2;  // in the next token
    return true;
  });
  EXPECT_EQ(r.reason, StopReason::cancelled);
  EXPECT_GE(r.tokens.size(), 1u);
  EXPECT_LT(r.tokens.size(), 4u);
  EXPECT_EQ(a.length(), static_cast<int64_t>(held.size()));
  const std::vector<TokenId> said = r.tokens;

  trigger.flag = false;
  trigger.layer = -1;
  r = generate(context, a, held, prompt, options);
  EXPECT_EQ(r.reason, StopReason::length);
  ASSERT_EQ(r.tokens.size(), 4u);
  EXPECT_TRUE(std::equal(said.begin(), said.end(), r.tokens.begin())) << "the same answer, now to its end";
  EXPECT_EQ(context.cancelled_by(), nullptr) << "the flag was this generation's";
}

TEST_F(CancelBatch, APerplexityKeepsItsWholeWindows) {
  const auto engine = Engine::load(path, streamed(ReadKind::automatic, 0));
  Context context(*engine, small_context());
  Trigger trigger;
  context.observe_picks(&Trigger::see, &trigger);
  const std::vector<TokenId> text = some_tokens(*engine, 64, 4);
  PerplexityOptions options;
  options.window = 32;
  options.cancel = &trigger.flag;
  const PerplexityResult one = perplexity(context, std::span(text).first(32), options);
  ASSERT_EQ(one.windows, 1);
  const PerplexityResult cut =
      perplexity(context, text, options, [&](const PerplexityResult&, int64_t) { trigger.layer = 1; });
  EXPECT_TRUE(cut.cancelled);
  EXPECT_EQ(cut.windows, 1);
  EXPECT_EQ(cut.scored, one.scored);
  EXPECT_EQ(cut.perplexity, one.perplexity);
}

}  // namespace
}  // namespace moetier
