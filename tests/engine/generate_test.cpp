#include "engine/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/fixtures.h"

namespace moetier {
namespace {

using namespace testing_support;

GenerateOptions greedy(int64_t n) {
  GenerateOptions o;
  o.sampler.temperature = 0;
  o.max_tokens = n;
  return o;
}

class Generate : public testing::Test {
 protected:
  std::unique_ptr<Engine> engine = load("mini-qwen3moe-f32");
  Context context{*engine, small_context(TensorType::f32, 8)};
  SequenceState sequence = context.new_sequence();
  std::vector<TokenId> held;
  std::vector<TokenId> prompt = engine->tokenizer().encode("Once upon a time there was a small model");

  GenerateResult run(const GenerateOptions& options, const std::function<bool(std::string_view)>& on_text = {}) {
    return generate(context, sequence, held, prompt, options, on_text);
  }
  std::string text_of(std::span<const TokenId> tokens) {
    StreamDecoder decoder(engine->tokenizer());
    std::string text;
    for (const TokenId t : tokens) text += decoder.push(t);
    return text + decoder.finish();
  }
};

TEST_F(Generate, GreedyIsWhatDecodingByHandGives) {
  std::string streamed;
  const GenerateResult r = run(greedy(20), [&](std::string_view piece) {
    streamed += piece;
    return true;
  });
  EXPECT_EQ(r.reason, StopReason::length);
  ASSERT_EQ(r.tokens.size(), 20u);
  EXPECT_EQ(r.text, streamed);
  EXPECT_EQ(r.text, text_of(r.tokens));
  EXPECT_EQ(r.prompt_tokens, static_cast<int64_t>(prompt.size()));
  EXPECT_EQ(r.reused_tokens, 0);
  EXPECT_EQ(r.token_seconds.size(), 20u);
  EXPECT_GT(r.prompt_seconds, 0.0);

  SequenceState by_hand = context.new_sequence();
  feed(context, by_hand, prompt);
  TokenId token = argmax(context.logits(context.logits_count() - 1));
  for (const TokenId got : r.tokens) {
    ASSERT_EQ(got, token);
    feed(context, by_hand, {&token, 1});
    token = argmax(context.logits(0));
  }
  // The sequence holds the prompt and all but the last token.
  std::vector<TokenId> want = prompt;
  want.insert(want.end(), r.tokens.begin(), r.tokens.end() - 1);
  EXPECT_EQ(held, want);
  EXPECT_EQ(sequence.length(), static_cast<int64_t>(want.size()));
}

TEST_F(Generate, ReusesACommonPrefixAndTheAnswerIsTheSame) {
  const GenerateResult first = run(greedy(12));
  const GenerateResult again = run(greedy(12));
  EXPECT_EQ(again.tokens, first.tokens);
  EXPECT_EQ(again.reused_tokens, static_cast<int64_t>(prompt.size()) - 1);  // the last one's logits are needed

  // A second turn goes on from the whole first one.
  prompt.insert(prompt.end(), first.tokens.begin(), first.tokens.end());
  const std::vector<TokenId> more = engine->tokenizer().encode(" and then", {false, false});
  prompt.insert(prompt.end(), more.begin(), more.end());
  const GenerateResult second = run(greedy(12));
  EXPECT_EQ(second.reused_tokens, static_cast<int64_t>(prompt.size() - more.size()) - 1);
  sequence.truncate(0);
  held.clear();
  EXPECT_EQ(run(greedy(12)).tokens, second.tokens);

  // Another prompt cuts what it does not share.
  prompt[3] = prompt[3] == 5 ? 6 : 5;
  const GenerateResult other = run(greedy(4));
  EXPECT_EQ(other.reused_tokens, 3);
  EXPECT_EQ(held.size(), prompt.size() + 3);
}

TEST_F(Generate, SamplingIsRepeatable) {
  GenerateOptions o = greedy(30);
  o.sampler.temperature = 1.5f;
  o.sampler.seed = 4;
  const GenerateResult a = run(o), b = run(o);
  EXPECT_EQ(a.tokens, b.tokens);
  o.sampler.seed = 5;
  EXPECT_NE(run(o).tokens, a.tokens);
}

TEST_F(Generate, StopTextsAcrossTokensAreNeverShown) {
  const std::string whole = run(greedy(30)).text;
  ASSERT_GT(whole.size(), 30u);
  int cut_inside = 0;
  for (const size_t at : {0u, 5u, 11u, 17u}) {
    for (const size_t length : {1u, 4u, 9u}) {
      const std::string stop = whole.substr(at, length);
      if (stop.find("\xEF\xBF\xBD") != std::string::npos) continue;
      const size_t first = whole.find(stop);
      GenerateOptions o = greedy(30);
      o.stop = {"never in the text", stop};
      std::string streamed;
      const GenerateResult r = run(o, [&](std::string_view piece) {
        streamed += piece;
        return true;
      });
      EXPECT_EQ(r.reason, StopReason::stop_text);
      EXPECT_EQ(r.text, whole.substr(0, first)) << stop;
      EXPECT_EQ(streamed, r.text);
      cut_inside += text_of(r.tokens) != r.text;
      EXPECT_EQ(held.size(), prompt.size() + r.tokens.size());
    }
  }
  EXPECT_GT(cut_inside, 0) << "no stop text began inside an earlier token: choose others";
}

TEST_F(Generate, EndsAtEndOfGenerationUnlessIgnored) {
  TokenId end = -1;
  for (TokenId id = 0; id < engine->tokenizer().vocab_size() && end < 0; ++id) {
    if (engine->tokenizer().is_end_of_generation(id)) end = id;
  }
  ASSERT_GE(end, 0);
  GenerateOptions o = greedy(10);
  o.sampler.logit_bias = {{end, 1e6f}};
  GenerateResult r = run(o);
  EXPECT_EQ(r.reason, StopReason::end_of_generation);
  EXPECT_TRUE(r.tokens.empty());
  EXPECT_EQ(r.text, "");
  EXPECT_EQ(r.token_seconds.size(), 1u);
  o.ignore_eog = true;
  r = run(o);
  EXPECT_EQ(r.reason, StopReason::length);
  EXPECT_THAT(r.tokens, testing::Not(testing::Contains(end)));
}

TEST_F(Generate, FillsTheContextAndSaysSo) {
  const GenerateResult r = run(greedy(-1));
  EXPECT_TRUE(r.reason == StopReason::context_full || r.reason == StopReason::end_of_generation);
  if (r.reason == StopReason::context_full) {
    EXPECT_EQ(sequence.length(), 256);
    EXPECT_EQ(r.tokens.size(), 256 - prompt.size() + 1);  // the last one needs no position
  }
  prompt = some_tokens(*engine, 256, 3);
  const GenerateResult full = run(greedy(5));
  EXPECT_EQ(full.reason, StopReason::context_full);
  EXPECT_EQ(full.tokens.size(), 1u);
  prompt.push_back(1);
  EXPECT_THROW(run(greedy(5)), Error);
}

TEST_F(Generate, MaxTokensZeroOnlyFeeds) {
  const GenerateResult r = run(greedy(0));
  EXPECT_EQ(r.reason, StopReason::length);
  EXPECT_TRUE(r.tokens.empty());
  EXPECT_EQ(held, prompt);
}

TEST_F(Generate, Cancels) {
  std::atomic<bool> cancel{true};
  GenerateOptions o = greedy(50);
  o.cancel = &cancel;
  GenerateResult r = run(o);
  EXPECT_EQ(r.reason, StopReason::cancelled);
  EXPECT_TRUE(held.empty());
  cancel = false;
  int calls = 0;
  r = run(o, [&](std::string_view) {
    cancel = ++calls == 3;
    return true;
  });
  EXPECT_EQ(r.reason, StopReason::cancelled);
  EXPECT_EQ(calls, 3);
  cancel = false;
  calls = 0;
  r = run(o, [&](std::string_view) { return ++calls < 4; });
  EXPECT_EQ(r.reason, StopReason::cancelled);
  EXPECT_EQ(calls, 4);
  EXPECT_LT(r.tokens.size(), 50u);
}

TEST_F(Generate, RefusesWhatCannotBe) {
  const std::vector<TokenId> good = prompt;
  prompt.clear();
  EXPECT_THROW(run(greedy(1)), Error);
  prompt = good;
  held = {1, 2, 3};  // which the sequence does not hold
  EXPECT_THROW(run(greedy(1)), Error);
  held.clear();
  GenerateOptions o = greedy(1);
  o.stop = {""};
  EXPECT_THROW(run(o), Error);
  prompt.push_back(1 << 30);
  EXPECT_THROW(run(greedy(1)), Error);
  EXPECT_EQ(static_cast<int64_t>(held.size()), sequence.length());
}

TEST_F(Generate, PenaltiesSeeThePrompt) {
  GenerateOptions o = greedy(1);
  o.sampler.penalty_window = -1;
  const TokenId usual = run(o).tokens.at(0);
  prompt.insert(prompt.begin(), usual);
  const TokenId usual_now = run(o).tokens.at(0);
  o.sampler.presence_penalty = 1000;
  EXPECT_THAT(prompt, testing::Not(testing::Contains(run(o).tokens.at(0))));
  o.sampler.presence_penalty = -1000;
  EXPECT_THAT(prompt, testing::Contains(run(o).tokens.at(0)));
  o.sampler.presence_penalty = 0;
  EXPECT_EQ(run(o).tokens.at(0), usual_now);
}

TEST_F(Generate, WorksWithoutAVocabularyInIdsOnly) {
  EngineOptions e;
  e.overrides = {"tokenizer.ggml.model=str:runes"};
  const auto bare = Engine::load(model_path("mini-qwen3moe-f32"), e);
  Context c(*bare, small_context());
  SequenceState s = c.new_sequence();
  std::vector<TokenId> h;
  const GenerateResult r = generate(c, s, h, prompt, greedy(5));
  EXPECT_EQ(r.tokens.size(), 5u);
  EXPECT_EQ(r.text, "");
  GenerateOptions o = greedy(5);
  o.stop = {"x"};
  EXPECT_THROW(generate(c, s, h, prompt, o), Error);
}

/// A model with recurrent layers goes on from what it holds, or from the end of an earlier prompt.
TEST(GenerateRecurrent, ReusesWhatItCanGoBackTo) {
  const auto engine = load("mini-qwen3next-f32");
  Context context(*engine, small_context(TensorType::f32, 32, 2));
  const std::vector<TokenId> first = some_tokens(*engine, 30, 1), second = some_tokens(*engine, 12, 2);
  const auto fresh = [&](const std::vector<TokenId>& prompt) {
    SequenceState s = context.new_sequence();
    std::vector<TokenId> held;
    return generate(context, s, held, prompt, greedy(8));
  };
  SequenceState sequence = context.new_sequence();
  std::vector<TokenId> held;
  const GenerateResult one = generate(context, sequence, held, first, greedy(8));
  EXPECT_EQ(one.tokens, fresh(first).tokens);
  // The answer and more: all that is held is used again.
  std::vector<TokenId> longer = held;
  longer.insert(longer.end(), second.begin(), second.end());
  const GenerateResult two = generate(context, sequence, held, longer, greedy(8));
  EXPECT_EQ(two.reused_tokens, static_cast<int64_t>(longer.size() - second.size()));
  EXPECT_EQ(two.tokens, fresh(longer).tokens);
  // Another answer to the first prompt: back to where that ended.
  std::vector<TokenId> other = first;
  other.push_back((one.tokens[0] + 1) % 500);
  other.insert(other.end(), second.begin(), second.end());
  const GenerateResult three = generate(context, sequence, held, other, greedy(8));
  EXPECT_EQ(three.reused_tokens, static_cast<int64_t>(first.size()));
  EXPECT_EQ(three.tokens, fresh(other).tokens);
  EXPECT_EQ(held.size(), static_cast<size_t>(sequence.length()));
}

TEST(SuppressedTokens, AreTheVocabularysAndTheRowsBeyondIt) {
  const auto engine = load("mini-qwen3moe-f32");
  const Tokenizer& tokenizer = engine->tokenizer();
  const TokenId known = tokenizer.vocab_size();
  std::vector<TokenId> want(tokenizer.suppressed().begin(), tokenizer.suppressed().end());
  EXPECT_EQ(suppressed_tokens(tokenizer, known), want);
  want.insert(want.end(), {known, known + 1});
  EXPECT_EQ(suppressed_tokens(tokenizer, known + 2), want);
  for (const TokenId id : suppressed_tokens(tokenizer, 3)) EXPECT_LT(id, 3);
}

}  // namespace
}  // namespace moetier
