#include "engine/stop_text.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/random.h"

namespace moetier {
namespace {

TEST(StopText, NothingToStopAtPassesEverythingOn) {
  StopText none({});
  EXPECT_EQ(none.push("abc"), "abc");
  EXPECT_EQ(none.finish(), "");
  EXPECT_FALSE(none.stopped());
}

TEST(StopText, HoldsBackWhatMayBecomeAStop) {
  StopText stop({"END"});
  EXPECT_EQ(stop.push("the E"), "the ");
  EXPECT_EQ(stop.push("N"), "");
  EXPECT_EQ(stop.push("E"), "EN");  // the last E may begin anew
  EXPECT_EQ(stop.push("ND and more"), "");
  EXPECT_TRUE(stop.stopped());
  EXPECT_EQ(stop.push("nothing comes after"), "");
  EXPECT_EQ(stop.finish(), "");
}

TEST(StopText, GivesTheRestWhenNoStopCame) {
  StopText stop({"END"});
  EXPECT_EQ(stop.push("the EN"), "the ");
  EXPECT_EQ(stop.finish(), "EN");
  EXPECT_FALSE(stop.stopped());
}

TEST(StopText, TheFirstToBeCompleteStops) {
  StopText stop({"abcd", "bc"});
  EXPECT_EQ(stop.push("xab"), "x");
  EXPECT_EQ(stop.push("cd"), "a");
  EXPECT_TRUE(stop.stopped());
  // Of those complete at once the longest counts: nothing of it may be shown.
  StopText both({"c", "abc"});
  EXPECT_EQ(both.push("xabc"), "x");
  StopText periodic({"aab"});
  EXPECT_EQ(periodic.push("aaaa"), "aa");
  EXPECT_EQ(periodic.push("b"), "");
  EXPECT_TRUE(periodic.stopped());
}

TEST(StopText, RefusesAnEmptyStop) {
  EXPECT_THROW(StopText({"x", ""}), Error);
}

/// Random texts in random pieces against a search of the whole.
TEST(StopText, AgreesWithSearchingTheWholeText) {
  Random random(7);
  const auto text = [&](size_t n) {
    std::string s;
    for (size_t i = 0; i < n; ++i) s += static_cast<char>('a' + random.next() % 2);
    return s;
  };
  int stopped = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = 0; i <= random.next() % 3; ++i) stops.push_back(text(1 + random.next() % 7));
    const std::string whole = text(random.next() % 40);
    size_t begin = std::string::npos, end = std::string::npos;
    for (const std::string& s : stops) {
      const size_t at = whole.find(s);
      if (at == std::string::npos) continue;
      if (at + s.size() < end || (at + s.size() == end && at < begin)) {
        begin = at;
        end = at + s.size();
      }
    }
    StopText stop(stops);
    std::string got;
    for (size_t i = 0; i < whole.size();) {
      const size_t n = 1 + random.next() % 5;
      got += stop.push(whole.substr(i, n));
      i += n;
      ASSERT_EQ(got, whole.substr(0, got.size()));
      ASSERT_LE(got.size(), std::min(begin, whole.size()));
    }
    got += stop.finish();
    ASSERT_EQ(stop.stopped(), begin != std::string::npos);
    ASSERT_EQ(got, whole.substr(0, begin));
    stopped += stop.stopped();
  }
  EXPECT_GT(stopped, 500);
  EXPECT_LT(stopped, 1900);
}

}  // namespace
}  // namespace moetier
