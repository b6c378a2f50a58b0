// MADV_RANDOM for advised entries: what decides, and that measuring is honest.
#include "experts/random_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "gguf/writer.h"
#include "io/page_cache.h"
#include "io/read_file.h"

namespace moetier {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20, kNarrow = uint64_t{128} << 10, kWide = uint64_t{8} << 20;

RandomTrial trial(double milliseconds_a_mib, double brought = 1, int slices = 8) {
  const uint64_t wanted = kMiB * static_cast<uint64_t>(slices);
  return {slices, milliseconds_a_mib * 1e-3 * slices, wanted,
          static_cast<uint64_t>(brought * static_cast<double>(wanted))};
}

TEST(RandomProbe, TheFasterWayWins) {
  for (const uint64_t read_ahead : {uint64_t{0}, kNarrow, kWide}) {
    const RandomChoice off = judge_random(trial(8), trial(3.5), read_ahead);
    EXPECT_TRUE(off.random && off.measured);
    EXPECT_THAT(off.why, HasSubstr("8.00 ms with read-around"));
    EXPECT_THAT(off.why, HasSubstr("3.50 ms without; it is turned off"));
    const RandomChoice on = judge_random(trial(2), trial(3), read_ahead);
    EXPECT_TRUE(!on.random && on.measured);
    // What drags much along must be clearly faster.
    EXPECT_TRUE(judge_random(trial(2), trial(2.1), read_ahead).random == (read_ahead == kWide));
    EXPECT_TRUE(judge_random(trial(2, 4), trial(2.1), read_ahead).random);
    EXPECT_FALSE(judge_random(trial(2, 4), trial(3), read_ahead).random);
  }
}

TEST(RandomProbe, WithoutAMeasurementTheRuleDecides) {
  for (const RandomTrial& few : {RandomTrial{}, trial(1, 1, 3)}) {
    const RandomChoice wide = judge_random(few, trial(9), kWide), narrow = judge_random(trial(9), few, kNarrow);
    EXPECT_TRUE(wide.random);
    EXPECT_FALSE(narrow.random);
    EXPECT_FALSE(wide.measured || narrow.measured);
    EXPECT_THAT(wide.why, HasSubstr("too little of the experts is out of memory"));
    EXPECT_THAT(wide.why, HasSubstr("8.00 MiB"));
  }
  EXPECT_FALSE(judge_random({}, {}, 0).random);
  const RandomChoice alike = judge_random(trial(2), trial(2), kWide);
  EXPECT_FALSE(alike.measured);
  EXPECT_TRUE(alike.random);
  EXPECT_THAT(alike.why, HasSubstr("no difference"));
}

TEST(RandomProbe, MeasuresWhatIsColdAndNothingElse) {
  const std::string path = ::testing::TempDir() + "random_probe_" + std::to_string(::getpid()) + ".gguf";
  GgufWriter writer;
  writer.set("general.architecture", std::string("qwen3moe"));
  constexpr int64_t kColumns = 256, kRows = 256, kExperts = 32;  // 256 KiB a slice, 24 MiB in all
  for (const char* name : {"gate", "up", "down"}) {
    writer.add_tensor(std::string("blk.0.ffn_") + name + "_exps.weight", TensorType::f32, {kColumns, kRows, kExperts},
                      std::vector<std::byte>(static_cast<size_t>(kColumns * kRows * kExperts) * 4, std::byte{1}));
  }
  writer.write(path);
  const GgufFile file = GgufFile::open(path);
  const EntryMap map = EntryMap::from_gguf(file, 2);
  const std::span<const std::byte> bytes = file.shard_bytes(0);
  const auto in_memory = [&] { return bytes_in_memory(bytes.data(), bytes.size()); };
  {
    const ReadFile buffered(path, false);
    ASSERT_EQ(::fsync(buffered.fd()), 0);
    buffered.drop_from_page_cache(0, 0);  // all of it
  }
  if (in_memory() < bytes.size() / 4) {
    const auto start = std::chrono::steady_clock::now();
    const RandomChoice cold = choose_random(file, map, kNarrow, kNarrow);
    EXPECT_THAT(cold.why, HasSubstr("slices that were out of memory"));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    EXPECT_LT(in_memory(), bytes.size() * 3 / 4) << "it looks at a part";
  }
  for (size_t at = 0; at < bytes.size(); at += 4096) {
    static_cast<void>(*static_cast<const volatile std::byte*>(bytes.data() + at));
  }
  const RandomChoice warm = choose_random(file, map, kNarrow, kWide);
  EXPECT_FALSE(warm.measured);
  EXPECT_TRUE(warm.random);
  EXPECT_THAT(warm.why, HasSubstr("too little"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace moetier
