#include "experts/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "support/error_of.h"

namespace moetier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::error_of;
using Pair = std::pair<int, int>;

std::string word(uint32_t value) {
  std::string out;
  for (int i = 0; i < 4; ++i) out += static_cast<char>(static_cast<uint8_t>(value >> (8 * i)));
  return out;
}

std::string head(uint32_t version, uint32_t layers, uint32_t experts, uint32_t slots, uint32_t ranked) {
  return "STRP" + word(version) + word(layers) + word(experts) + word(slots) + word(ranked);
}

std::string pair(uint32_t layer, uint32_t expert) {
  return word(layer | expert << 16);
}

Profile parse(const std::string& bytes, int layers = 3, int experts = 4) {
  return parse_profile(std::as_bytes(std::span(bytes.data(), bytes.size())), "p.strp", layers, experts);
}

TEST(Profile, IsReadHottestFirst) {
  const Profile p = parse(head(1, 3, 4, 99, 3) + pair(2, 3) + pair(0, 1) + pair(1, 0));
  EXPECT_EQ(p.problem, "");
  EXPECT_EQ(p.slots, 99u);
  EXPECT_THAT(p.ranked, ElementsAre(Pair(2, 3), Pair(0, 1), Pair(1, 0)));
}

TEST(Profile, OfAnEntryRankedTwiceTheFirstPlaceCounts) {
  const Profile p = parse(head(1, 3, 4, 0, 4) + pair(2, 3) + pair(0, 1) + pair(2, 3) + pair(0, 2) + "whatever follows");
  EXPECT_EQ(p.problem, "");
  EXPECT_THAT(p.ranked, ElementsAre(Pair(2, 3), Pair(0, 1), Pair(0, 2)));
}

TEST(Profile, WhatIsWrongIsASentence) {
  const std::string pairs = pair(0, 0) + pair(0, 1);
  const auto problem = [](const std::string& bytes) {
    const Profile p = parse(bytes);
    EXPECT_TRUE(p.ranked.empty());
    return p.problem;
  };
  EXPECT_THAT(problem(""), HasSubstr("p.strp is no profile"));
  EXPECT_THAT(problem("STRX" + head(1, 3, 4, 0, 0)), HasSubstr("does not begin with STRP"));
  EXPECT_THAT(problem(head(1, 3, 4, 0, 0).substr(0, 23)), HasSubstr("ends within its header"));
  EXPECT_THAT(problem(head(2, 3, 4, 0, 0)), HasSubstr("version 2"));
  EXPECT_THAT(problem(head(1, 4, 4, 0, 2) + pairs),
              HasSubstr("4 layers of 4 experts, and the model has 3 layers of 4"));
  EXPECT_THAT(problem(head(1, 3, 8, 0, 2) + pairs), HasSubstr("3 layers of 8 experts"));
  EXPECT_THAT(problem(head(1, 3, 4, 0, 13) + std::string(200, '\0')), HasSubstr("ranks 13 entries, more than the 12"));
  EXPECT_THAT(problem(head(1, 3, 4, 0, 3) + pairs), HasSubstr("cut short"));
  EXPECT_THAT(problem(head(1, 3, 4, 0, 0xffffffff) + pairs), HasSubstr("more than the 12"));
  EXPECT_THAT(problem(head(1, 3, 4, 0, 2) + pair(0, 0) + pair(3, 0)), HasSubstr("rank 1 is expert 0 of layer 3"));
  EXPECT_THAT(problem(head(1, 3, 4, 0, 1) + pair(0, 4)), HasSubstr("expert 4 of layer 0"));
  EXPECT_THAT(read_profile("/no/such/profile", 3, 4).problem, HasSubstr("cannot open /no/such/profile"));
  EXPECT_THAT(read_profile("/", 3, 4).problem, HasSubstr("cannot"));
  EXPECT_THAT(parse(head(1, 0, 4, 0, 0), 0, 4).problem, HasSubstr("0 layers"));
}

class ProfileFile : public testing::Test {
 protected:
  ~ProfileFile() override { std::filesystem::remove(path_); }
  const std::string path_ = testing::TempDir() + "profile_test.strp";
};

TEST_F(ProfileFile, HasTheSeedsBytes) {
  const std::vector<Pair> ranked = {{1, 2}, {0, 1}};
  write_profile(path_, 2, 3, ranked, 7);
  EXPECT_EQ(read_file(path_), head(1, 2, 3, 7, 2) + pair(1, 2) + pair(0, 1) + word(0xffffffff) + word(1) +
                                  word(0xffffffff) + word(0xffffffff) + word(0xffffffff) + word(0));
}

TEST_F(ProfileFile, IsReadAsWritten) {
  std::vector<Pair> ranked;
  for (int i = 0; i < 40 * 128; i += 3) ranked.emplace_back(i * 7 % 40, i % 128);
  std::sort(ranked.begin(), ranked.end(),
            [](Pair a, Pair b) { return a.first * 31 % 40 + a.second > b.first * 31 % 40 + b.second; });
  std::vector<Pair> distinct;
  for (const Pair& p : ranked) {
    if (std::find(distinct.begin(), distinct.end(), p) == distinct.end()) distinct.push_back(p);
  }
  write_profile(path_, 40, 128, distinct, 1234);
  const Profile p = read_profile(path_, 40, 128);
  EXPECT_EQ(p.problem, "");
  EXPECT_EQ(p.slots, 1234u);
  EXPECT_EQ(p.ranked, distinct);
  write_profile(path_, 65536, 1, {}, 0);
  EXPECT_EQ(read_profile(path_, 65536, 1).problem, "");
}

TEST_F(ProfileFile, RefusesWhatTheFormatCannotHold) {
  const auto error = [&](int layers, int experts, std::vector<Pair> ranked) {
    return error_of([&] { write_profile(path_, layers, experts, ranked, 0); });
  };
  EXPECT_THAT(error(0, 4, {}), HasSubstr("0 layers of 4 experts"));
  EXPECT_THAT(error(65537, 4, {}), HasSubstr("65537 layers"));
  EXPECT_THAT(error(2, 4, {{2, 0}}), HasSubstr("expert 0 of layer 2"));
  EXPECT_THAT(error(2, 4, {{0, -1}}), HasSubstr("expert -1"));
  EXPECT_THAT(error(2, 4, {{1, 1}, {1, 1}}), HasSubstr("ranked twice"));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace moetier
