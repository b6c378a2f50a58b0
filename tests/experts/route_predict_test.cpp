#include "experts/route_predict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "base/random.h"
#include "support/error_of.h"

namespace moetier {
namespace {

using testing::HasSubstr;
using testing_support::error_of;

/// Three layers of 8 experts, one pick, three guesses.
GuessLog log_of(int64_t tokens) {
  GuessLog log;
  log.n_expert = 8;
  log.top_k = 1;
  log.width = 3;
  log.tokens = tokens;
  for (const int layer : {1, 2, 5}) log.layers.push_back({layer, 1000, {}, {}});
  return log;
}

PredictionScore score_of(const Prediction& p, std::string_view name) {
  for (const PredictionScore& s : p.scores) {
    if (s.name == name) return s;
  }
  ADD_FAILURE() << name;
  return {};
}

TEST(RoutePrediction, EachPredictorKnowsItsOwnKindOfHabit) {
  // Layer 1 alternates; layer 2 follows it by a fixed map; layer 5 repeats expert 6, but every fourth token 0.
  GuessLog log = log_of(64);
  for (int64_t t = 0; t < log.tokens; ++t) {
    const auto first = static_cast<int32_t>(t % 2);
    log.layers[0].picks.push_back(first);
    log.layers[1].picks.push_back(first == 0 ? 7 : 3);
    log.layers[2].picks.push_back(t % 4 == 3 ? 0 : 6);
    for (const int32_t guess : {first == 0 ? 7 : 3, 1, 2}) log.layers[1].guesses.push_back(guess);
    for (const int32_t guess : {1, 2, 6}) log.layers[2].guesses.push_back(guess);
  }
  const Prediction p = predict_routes(log);
  EXPECT_EQ(p.scored, 32);
  EXPECT_EQ(p.layers, 2);
  EXPECT_DOUBLE_EQ(p.cycle_bytes, 2000);
  // Of layer 2's picks and of layer 5's, with one candidate.
  EXPECT_DOUBLE_EQ(score_of(p, "previous").recall[0], (0 + 0.5) / 2);
  EXPECT_DOUBLE_EQ(score_of(p, "previous").recall[1], 1);
  EXPECT_DOUBLE_EQ(score_of(p, "popularity").recall[1], 1);
  // What alternates is never the more popular one when its turn comes.
  EXPECT_DOUBLE_EQ(score_of(p, "popularity").recall[0], (0 + 0.75) / 2);
  EXPECT_GT(score_of(p, "co-occurrence").recall[0], 0.8);
  EXPECT_DOUBLE_EQ(score_of(p, "next-router").recall[0], (1 + 0) / 2.0);
  EXPECT_DOUBLE_EQ(score_of(p, "next-router").recall[2], (1 + 0.75) / 2);
  for (const PredictionScore& s : p.scores) {
    EXPECT_LE(s.recall[0], s.recall[1]);
    EXPECT_LE(s.recall[1], s.recall[2]);
  }
}

TEST(RoutePrediction, NothingIsKnownOfWhatIsDrawnByChance) {
  GuessLog log = log_of(4000);
  Xoshiro256 random(3);
  for (GuessLog::Layer& layer : log.layers) {
    for (int64_t t = 0; t < log.tokens; ++t) layer.picks.push_back(static_cast<int32_t>(random.next_starstar() % 8));
    if (&layer == &log.layers.front()) continue;
    for (int64_t t = 0; t < 3 * log.tokens; t += 3) {
      for (const int32_t guess : {0, 1, 2}) layer.guesses.push_back(guess);
    }
  }
  for (const PredictionScore& s : predict_routes(log).scores) {
    EXPECT_NEAR(s.recall[0], 1.0 / 8, 0.03) << s.name;
    EXPECT_NEAR(s.recall[2], 3.0 / 8, 0.03) << s.name;
  }
}

TEST(RoutePrediction, NeedsTwoLayersAndTokens) {
  GuessLog log = log_of(1);
  EXPECT_THAT(error_of([&] { predict_routes(log); }), HasSubstr("needs two of each"));
}

class GuessLogFile : public testing::Test {
 protected:
  GuessLogFile() {
    log_ = log_of(2);
    for (GuessLog::Layer& layer : log_.layers) {
      layer.picks = {1, 7};
      if (layer.layer != 1) layer.guesses = {0, 1, 2, 3, 4, 5};
    }
    write_guess_log(path_, log_);
    bytes_ = read_file(path_);
  }
  ~GuessLogFile() override { std::filesystem::remove(path_); }
  std::string error(const std::string& bytes) const {
    return error_of([&] { parse_guess_log(std::as_bytes(std::span(bytes.data(), bytes.size())), "g.bin"); });
  }
  std::string with(size_t at, char value) const {
    std::string bytes = bytes_;
    bytes.at(at) = value;
    return bytes;
  }
  const std::string path_ = testing::TempDir() + "guess_log_test.bin";
  GuessLog log_;
  std::string bytes_;
};

TEST_F(GuessLogFile, IsReadAsWritten) {
  const GuessLog again = read_guess_log(path_);
  EXPECT_EQ(again.n_expert, 8);
  EXPECT_EQ(again.top_k, 1);
  EXPECT_EQ(again.width, 3);
  EXPECT_EQ(again.tokens, 2);
  ASSERT_EQ(again.layers.size(), 3u);
  for (size_t l = 0; l < 3; ++l) {
    EXPECT_EQ(again.layers[l].layer, log_.layers[l].layer);
    EXPECT_EQ(again.layers[l].entry_bytes, 1000u);
    EXPECT_EQ(again.layers[l].picks, log_.layers[l].picks);
    EXPECT_EQ(again.layers[l].guesses, log_.layers[l].guesses);
  }
  EXPECT_EQ(bytes_.size(), 32 + 3 * 16 + 3 * 2 * 2 + 2 * 6 * 2u);
}

TEST_F(GuessLogFile, WhatIsWrongIsASentence) {
  EXPECT_THAT(error(""), HasSubstr("does not begin with MTGUESS"));
  EXPECT_THAT(error(with(0, 'X')), HasSubstr("does not begin with MTGUESS"));
  EXPECT_THAT(error(with(8, 2)), HasSubstr("version 2"));
  EXPECT_THAT(error(with(12, 0)), HasSubstr("0 layers"));
  EXPECT_THAT(error(with(12, 4)), HasSubstr("not what its header tells"));
  EXPECT_THAT(error(with(31, 127)), HasSubstr("not what its header tells"));
  EXPECT_THAT(error(bytes_.substr(0, bytes_.size() - 1)), HasSubstr("cut short"));
  EXPECT_THAT(error(bytes_ + "x"), HasSubstr("cut short"));
  EXPECT_THAT(error(with(48, 1)), HasSubstr("layer 1 comes out of order"));
  EXPECT_THAT(error(with(80, 8)), HasSubstr("names expert 8"));
  GuessLog short_log = log_;
  short_log.layers[1].guesses.pop_back();
  EXPECT_THAT(error_of([&] { write_guess_log(path_, short_log); }), HasSubstr("layer 2 has 2 picks and 5 guesses"));
}

}  // namespace
}  // namespace moetier
