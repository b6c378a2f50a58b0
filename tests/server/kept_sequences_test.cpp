#include "server/kept_sequences.h"

#include <gtest/gtest.h>

#include "engine/fixtures.h"

namespace moetier {
namespace {

using namespace testing_support;

class Kept : public testing::Test {
 protected:
  HeldSequence sequence(std::vector<TokenId> tokens) {
    HeldSequence held{context.new_sequence(), std::move(tokens)};
    feed(context, held.state, held.tokens);
    return held;
  }
  std::unique_ptr<Engine> engine = load("mini-qwen3moe-q8_0");
  Context context{*engine, small_context(TensorType::f32, 64, 4)};
};

TEST_F(Kept, WhatBeginsAlikeIsFound) {
  KeptSequences kept(8);
  const std::vector<TokenId> prompt = {1, 2, 3, 4, 5};
  EXPECT_TRUE(kept.find(prompt).empty());
  kept.keep(sequence({1, 2, 9}));
  kept.keep(sequence({1, 2, 3, 4, 8, 8}));
  kept.keep(sequence({2, 3, 4, 5}));
  const std::vector<PrefixMatch> matches = kept.find(prompt);
  ASSERT_EQ(matches.size(), 2u);
  EXPECT_EQ(matches[0].length, 2u);
  EXPECT_EQ(matches[1].length, 4u);
  EXPECT_EQ(matches[1].held->tokens.size(), 6u);
}

TEST_F(Kept, OneThatAnotherBeginsWithIsNotKeptTwice) {
  KeptSequences kept(8);
  kept.keep(sequence({1, 2, 3}));
  kept.keep(sequence({1, 2, 3, 4}));
  EXPECT_EQ(kept.size(), 1u);
  kept.keep(sequence({1, 2}));
  EXPECT_EQ(kept.size(), 1u);
  kept.keep(sequence({}));
  EXPECT_EQ(kept.size(), 1u);
}

TEST_F(Kept, TheOldestGoesFirstAndUseMakesYoung) {
  KeptSequences kept(2);
  kept.keep(sequence({1, 1}));
  kept.keep(sequence({2, 2}));
  kept.used(kept.find(std::vector<TokenId>{1, 5}).front().held);
  kept.keep(sequence({3, 3}));
  EXPECT_EQ(kept.size(), 2u);
  EXPECT_TRUE(kept.find(std::vector<TokenId>{2, 2}).empty());
  EXPECT_EQ(kept.find(std::vector<TokenId>{1, 1}).front().length, 2u);
  EXPECT_TRUE(kept.drop_oldest());
  EXPECT_TRUE(kept.drop_oldest());
  EXPECT_FALSE(kept.drop_oldest());
}

TEST_F(Kept, PagesAreSharedUntilOneGoesItsOwnWay) {
  HeldSequence a = sequence(some_tokens(*engine, 130, 1));
  const int32_t free = context.kv().free_pages();
  const HeldSequence b = fork_prefix(a, 100);
  EXPECT_EQ(context.kv().free_pages(), free);
  EXPECT_EQ(b.state.length(), 100);
  EXPECT_EQ(b.tokens.size(), 100u);
  cut(a, 0);
  EXPECT_EQ(a.state.length(), 0);
  EXPECT_EQ(b.state.length(), 100);
}

}  // namespace
}  // namespace moetier
