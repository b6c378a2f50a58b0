#include "experts/profile_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "experts/pick_counts.h"
#include "experts/profile.h"
#include "experts/trace_writer.h"
#include "support/error_of.h"

namespace moetier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing_support::error_of;
using Pair = std::pair<int, int>;

const std::string kGolden = MOETIER_TEST_DATA "/experts/golden.strp";
const std::vector<Pair> kGoldenRanked = {{2, 4}, {0, 1}, {2, 0}, {1, 3}, {0, 0}, {1, 1}};

ProfileFile parse(const std::string& bytes) {
  return parse_profile_file(std::as_bytes(std::span(bytes.data(), bytes.size())), "p.strp");
}

std::string with_word(std::string bytes, size_t at, uint32_t value) {
  for (size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<char>(static_cast<uint8_t>(value >> (8 * i)));
  return bytes;
}

ProfileFile of(std::vector<Pair> ranked, int layers = 3, int experts = 5) {
  ProfileFile p;
  p.n_layer = layers;
  p.n_expert = experts;
  p.ranked = std::move(ranked);
  return p;
}

TEST(ProfileFiles, TheGoldenFileIsReadAndWrittenByteForByte) {
  const ProfileFile p = read_profile_file(kGolden);
  EXPECT_EQ(p.n_layer, 3);
  EXPECT_EQ(p.n_expert, 5);
  EXPECT_EQ(p.slots, 4u);
  EXPECT_EQ(p.ranked, kGoldenRanked);
  EXPECT_THAT(p.faults, IsEmpty());
  const std::string again = testing::TempDir() + "profile_file_test.strp";
  write_profile(again, 3, 5, p.ranked, p.slots);
  EXPECT_TRUE(read_file(again) == read_file(kGolden));
  std::filesystem::remove(again);
}

TEST(ProfileFiles, EveryBrokenRuleIsNamed) {
  const std::string good = read_file(kGolden);
  const size_t table = 24 + 4 * 6;
  EXPECT_THAT(parse(good).faults, IsEmpty());
  EXPECT_THAT(parse(good.substr(0, table)).faults, ElementsAre(HasSubstr("0 bytes of rank table where 60 belong")));
  EXPECT_THAT(parse(good.substr(0, good.size() - 1)).faults, ElementsAre(HasSubstr("59 bytes of rank table")));
  EXPECT_THAT(parse(good + "xy").faults, ElementsAre(HasSubstr("goes on for 2 bytes")));
  EXPECT_THAT(parse(with_word(good, table + 4 * 2, 3)).faults,
              ElementsAre(HasSubstr("1 places; the first is expert 2 of layer 0, ranked 3 there")));
  // The second pair becomes the first one again: then the table is wrong, too.
  EXPECT_THAT(parse(with_word(good, 28, 2 | 4 << 16)).faults,
              ElementsAre(HasSubstr("ranks 1 entries more than once"), HasSubstr("rank table differs")));
}

TEST(ProfileFiles, WhatACacheWouldRefuseIsAnError) {
  const std::string good = read_file(kGolden);
  const auto error = [](const std::string& bytes) { return error_of([&] { parse(bytes); }); };
  EXPECT_THAT(error(""), HasSubstr("does not begin with STRP"));
  EXPECT_THAT(error(with_word(good, 0, 0)), HasSubstr("does not begin with STRP"));
  EXPECT_THAT(error(good.substr(0, 20)), HasSubstr("ends within its header"));
  EXPECT_THAT(error(with_word(good, 4, 2)), HasSubstr("version 2"));
  EXPECT_THAT(error(with_word(good, 8, 0)), HasSubstr("0 layers of 5 experts, which no model has"));
  EXPECT_THAT(error(with_word(good, 12, 0xffffffff)), HasSubstr("which no model has"));
  EXPECT_THAT(error(with_word(good, 20, 16)), HasSubstr("ranks 16 entries, more than the 15"));
  EXPECT_THAT(error(with_word(good, 24, 3)), HasSubstr("rank 0 is expert 0 of layer 3"));
  EXPECT_THAT(error(good.substr(0, 30)), HasSubstr("cut short"));
}

TEST(ProfileFiles, MergingWeighsPlaces) {
  // Places are worth 1 and 1/2, and 1, 2/3, 1/3: expert 1 of layer 0 has 1/2 + 1, expert 0 has 1 + 1/3.
  const std::vector<ProfileFile> two = {of({{0, 0}, {0, 1}}), of({{0, 1}, {2, 2}, {0, 0}})};
  EXPECT_THAT(merge_profiles(two), ElementsAre(Pair(0, 1), Pair(0, 0), Pair(2, 2)));
  const std::vector<ProfileFile> one = {of(kGoldenRanked)};
  EXPECT_EQ(merge_profiles(one), kGoldenRanked);
  const std::vector<ProfileFile> equal = {of({{1, 1}}), of({{0, 4}})};
  EXPECT_THAT(merge_profiles(equal), ElementsAre(Pair(0, 4), Pair(1, 1)));
  const std::vector<ProfileFile> others = {of({{1, 1}}), of({{0, 1}}, 2, 5)};
  EXPECT_THAT(error_of([&] { merge_profiles(others); }), HasSubstr("cannot be merged"));
  EXPECT_THAT(error_of([] { merge_profiles({}); }), HasSubstr("no profile"));
}

TEST(ProfileFiles, AreCompared) {
  const ProfileFile a = of({{0, 0}, {0, 1}, {0, 2}, {0, 3}}), reversed = of({{0, 3}, {0, 2}, {0, 1}, {0, 0}});
  EXPECT_DOUBLE_EQ(rank_correlation(a, a), 1);
  EXPECT_DOUBLE_EQ(rank_correlation(a, reversed), -1);
  EXPECT_DOUBLE_EQ(shared_share(a, reversed, 1), 0);
  EXPECT_DOUBLE_EQ(shared_share(a, reversed, 3), 2.0 / 3);
  EXPECT_DOUBLE_EQ(shared_share(a, reversed, 100), 1);
  // Entries that only one ranks have no part in it.
  EXPECT_DOUBLE_EQ(rank_correlation(a, of({{1, 1}, {0, 0}, {2, 2}, {0, 3}})), 1);
  EXPECT_DOUBLE_EQ(rank_correlation(a, of({{1, 1}})), 0);
  EXPECT_DOUBLE_EQ(shared_share(a, of({}), 3), 0);
}

TEST(PickCounts, RankByPicks) {
  const std::string path = MOETIER_TEST_DATA "/experts/golden.bin";
  const RoutingTrace trace = read_trace(path);
  PickCounts counts(3, 5);
  counts.add(trace, path);
  EXPECT_EQ(counts.total(), 12u);
  EXPECT_EQ(counts.of(0, 1), 3u);
  EXPECT_EQ(counts.of(2, 4), 3u);
  EXPECT_EQ(counts.of(1, 0), 0u);
  EXPECT_THAT(counts.ranked(),
              ElementsAre(Pair(0, 1), Pair(2, 4), Pair(2, 0), Pair(0, 0), Pair(0, 2), Pair(0, 3), Pair(2, 3)));
  PickCounts few(2, 5), narrow(3, 4);
  EXPECT_THAT(error_of([&] { few.add(trace, "t.bin"); }), HasSubstr("t.bin has a pick of expert 4 in layer 2"));
  EXPECT_THAT(error_of([&] { narrow.add(trace, "t.bin"); }), HasSubstr("3 layers of 4"));
  EXPECT_THAT(error_of([&] { counts.add(3, {}); }), HasSubstr("layer 3"));
}

TEST(PickCounts, TheGoldenTraceIsWrittenByteForByte) {
  const std::string path = MOETIER_TEST_DATA "/experts/golden.bin", again = testing::TempDir() + "golden_again.bin";
  const RoutingTrace trace = read_trace(path);
  ASSERT_THAT(trace.routings, SizeIs(6));
  EXPECT_EQ(trace.tokens, 3);
  BinaryTraceWriter writer(again);
  for (const Routing& r : trace.routings) writer.add(r.layer, trace.picks(r), trace.pick_weights(r));
  writer.commit();
  EXPECT_TRUE(read_file(again) == read_file(path));
  std::filesystem::remove(again);
}

}  // namespace
}  // namespace moetier
