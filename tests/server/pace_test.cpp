#include "server/pace.h"

#include <gtest/gtest.h>

namespace moetier {
namespace {

TEST(Pace, APromptAloneGoesThroughWhole) {
  const Pace pace({.ubatch = 512, .group_rows = 4096, .slice = 0, .streaming = true});
  EXPECT_EQ(pace.prompt_rows(0), 4096);
}

TEST(Pace, PromptsTakeHalfOfTheTimeWhileOthersGenerate) {
  Pace pace({.ubatch = 512, .group_rows = 512, .slice = 100, .streaming = false});
  double prompts = 0, others = 0;
  constexpr double kDecode = 0.02, kRow = 0.001;
  for (int i = 0; i < 1000; ++i) {
    const int64_t rows = pace.prompt_rows(3);
    const double seconds = kDecode + kRow * static_cast<double>(rows);
    prompts += seconds - kDecode;
    others += kDecode;
    pace.note(3, rows, seconds);
  }
  EXPECT_NEAR(prompts / (prompts + others), 0.5, 0.06);
}

TEST(Pace, ASliceIsSizedFromTheSpeed) {
  Pace pace({.ubatch = 512, .group_rows = 512, .slice = 0, .streaming = false});
  for (int i = 0; i < 100; ++i) pace.note(0, 512, 512 * 0.001);
  EXPECT_NEAR(static_cast<double>(pace.prompt_rows(1)), Pace::kSliceSeconds / 0.001, 1);
  for (int i = 0; i < 100; ++i) pace.note(0, 512, 512 * 1.0);
  EXPECT_EQ(pace.prompt_rows(1), Pace::kLeastSlice);
  for (int i = 0; i < 200; ++i) pace.note(0, 512, 512 * 1e-6);
  EXPECT_EQ(pace.prompt_rows(4), 508) << "an ubatch with what others decode";
}

TEST(Pace, WhereEntriesAreStreamedASliceIsAnUbatch) {
  Pace pace({.ubatch = 256, .group_rows = 4096, .slice = 0, .streaming = true});
  pace.note(0, 4096, 100.0);
  EXPECT_EQ(pace.prompt_rows(1), 255);
  pace.note(1, 255, 3.0);
  EXPECT_EQ(pace.prompt_rows(1), 0);
  for (int i = 0; i < 40; ++i) pace.note(1, 0, 0.1);
  EXPECT_EQ(pace.prompt_rows(1), 255);
}

}  // namespace
}  // namespace moetier
