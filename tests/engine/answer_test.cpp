// An answer that a constraint binds.
#include "engine/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "engine/generate.h"

namespace moetier {
namespace {

using testing::HasSubstr;

/// Allows the tokens of a list, one after another.
class OneAfterAnother : public TokenConstraint {
 public:
  explicit OneAfterAnother(std::vector<TokenId> tokens) : tokens_(std::move(tokens)) {}
  void mask(std::span<float> logits) override {
    const TokenId wanted = next_ < tokens_.size() ? tokens_[next_] : -1;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (static_cast<TokenId>(i) != wanted) logits[i] = -std::numeric_limits<float>::infinity();
    }
  }
  void accept(TokenId token) override {
    EXPECT_EQ(token, tokens_.at(next_));
    ++next_;
  }
  bool complete() const override { return finished(); }
  bool finished() const override { return next_ == tokens_.size(); }
  std::unique_ptr<TokenConstraint> clone() const override { return std::make_unique<OneAfterAnother>(*this); }

 private:
  std::vector<TokenId> tokens_;
  size_t next_ = 0;
};

class ConstrainedAnswer : public testing::Test {
 protected:
  GenerateResult run(const GenerateOptions& options) {
    SequenceState sequence = context.new_sequence();
    std::vector<TokenId> held;
    return generate(context, sequence, held, engine->tokenizer().encode("Once upon a time"), options);
  }
  std::unique_ptr<Engine> engine = Engine::load(MOETIER_SOURCE_DIR "/models/fairytale-moe-q8_0.gguf");
  Context context{*engine, {.context = 128}};
};

TEST_F(ConstrainedAnswer, IsWhatTheConstraintAllowsAndEndsWithIt) {
  const std::vector<TokenId> wanted = engine->tokenizer().encode("nobody would say that", {.add_special = false});
  GenerateOptions options;
  options.max_tokens = 60;
  options.constraint = std::make_shared<OneAfterAnother>(wanted);
  const GenerateResult result = run(options);
  EXPECT_EQ(result.tokens, wanted);
  EXPECT_EQ(result.reason, StopReason::end_of_generation);
}

TEST_F(ConstrainedAnswer, StopsAtMaxTokensAndAtStopTexts) {
  const std::vector<TokenId> wanted = engine->tokenizer().encode("nobody would say that", {.add_special = false});
  GenerateOptions options;
  options.max_tokens = 2;
  options.constraint = std::make_shared<OneAfterAnother>(wanted);
  EXPECT_EQ(run(options).reason, StopReason::length);
  options.max_tokens = 60;
  options.constraint = std::make_shared<OneAfterAnother>(wanted);
  options.stop = {"would"};
  const GenerateResult stopped = run(options);
  EXPECT_EQ(stopped.reason, StopReason::stop_text);
  EXPECT_THAT(stopped.text, testing::Not(HasSubstr("would")));
}

TEST_F(ConstrainedAnswer, ThatNothingCanContinueIsAnError) {
  GenerateOptions options;
  options.max_tokens = 5;
  options.sampler.logit_bias = {{7, -std::numeric_limits<float>::infinity()}};
  options.constraint = std::make_shared<OneAfterAnother>(std::vector<TokenId>{7, 8});
  try {
    run(options);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no token of the vocabulary"));
  }
}

TEST_F(ConstrainedAnswer, SaysWhichStopTextEndedIt) {
  StopText stop({"abc", "bc"});
  stop.push("xabc");
  EXPECT_EQ(stop.matched(), "abc");
}

}  // namespace
}  // namespace moetier
