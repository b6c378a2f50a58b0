#include "io/drive_probe.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "io/block_device.h"
#include "io/drive_cache.h"
#include "io/temp_files.h"

namespace moetier {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::TempFiles;

class DriveProbeTest : public testing::TestWithParam<ReadKind> {
 protected:
  ProbeOptions options() const {
    ProbeOptions options;
    options.kind = GetParam();
    options.request_bytes = 100'000;
    options.seconds = 0.05;
    options.most_bytes = 16 << 20;
    options.cache_directory = files_.name("cache/below");
    return options;
  }
  std::string cache_file() const { return files_.name("cache/below/drives.json"); }

  TempFiles files_;
  ReadFile file_{files_.make("model", (20 << 20) + 77, 1), true};
};

TEST_P(DriveProbeTest, MeasuresAndKeepsWhatItMeasured) {
  if (!file_.direct()) GTEST_SKIP() << file_.why_buffered();
  const bool uring = GetParam() == ReadKind::io_uring;
  const auto start = std::chrono::steady_clock::now();
  const DriveRate rate = probe_drive(file_, options());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_THAT(rate.why_unknown, IsEmpty());
  EXPECT_EQ(rate.engine, uring ? "io_uring" : "threads");
  EXPECT_EQ(rate.request_bytes, 102'400u);
  EXPECT_FALSE(rate.from_cache);
  ASSERT_FALSE(rate.steps.empty());
  EXPECT_LE(rate.steps.size(), uring ? 6u : 4u);
  double best = 0;
  for (size_t i = 0; i < rate.steps.size(); ++i) {
    EXPECT_EQ(rate.steps[i].depth, 1 << i);
    EXPECT_GT(rate.steps[i].bytes_per_second, 0);
    best = std::max(best, rate.steps[i].bytes_per_second);
  }
  EXPECT_EQ(rate.best_bytes_per_second, best);
  for (const DriveRate::Step& step : rate.steps) {
    if (step.depth < rate.depth) {
      EXPECT_LT(step.bytes_per_second, best * 0.95);
    } else if (step.depth == rate.depth) {
      EXPECT_EQ(step.bytes_per_second, rate.bytes_per_second);
      EXPECT_GE(step.bytes_per_second, best * 0.95);
    }
  }
  EXPECT_THAT(describe(rate), HasSubstr("MiB/s"));

  if (block_device(file_.path()).id.empty())
    GTEST_SKIP() << "this file system does not tell its device: nothing is kept";
  const DriveRate again = probe_drive(file_, options());
  EXPECT_TRUE(again.from_cache);
  EXPECT_EQ(again.engine, rate.engine);
  EXPECT_EQ(again.depth, rate.depth);
  EXPECT_EQ(again.steps.size(), rate.steps.size());
  EXPECT_DOUBLE_EQ(again.bytes_per_second, rate.bytes_per_second);

  ProbeOptions other = options();
  other.ignore_cache = true;
  EXPECT_FALSE(probe_drive(file_, other).from_cache);
  other = options();
  other.request_bytes = 120'000;
  EXPECT_TRUE(probe_drive(file_, other).from_cache) << "sizes up to the same power of two share a measurement";
  other.request_bytes = 10'000;
  EXPECT_FALSE(probe_drive(file_, other).from_cache);
}

TEST_P(DriveProbeTest, StaysWithinItsBytes) {
  if (!file_.direct()) GTEST_SKIP() << file_.why_buffered();
  ProbeOptions few = options();
  few.request_bytes = 1 << 20;
  few.seconds = 10;
  few.most_bytes = 8 << 20;
  const DriveRate rate = probe_drive(file_, few);
  EXPECT_THAT(rate.why_unknown, IsEmpty());
  ASSERT_FALSE(rate.steps.empty());
  EXPECT_LE(rate.steps.back().depth, 4) << "deeper would read more than was allowed";
}

TEST_P(DriveProbeTest, AnUnusableCacheIsIgnoredAndReplaced) {
  if (!file_.direct()) GTEST_SKIP() << file_.why_buffered();
  if (block_device(file_.path()).id.empty())
    GTEST_SKIP() << "this file system does not tell its device: nothing is kept";
  std::filesystem::create_directories(files_.path() / "cache/below");
  for (const std::string text : {"", "[]", "{", "\xff\xfe", "{\"a\":3}"}) {
    std::ofstream(cache_file()) << text;
    EXPECT_FALSE(probe_drive(file_, options()).from_cache) << text;
    EXPECT_TRUE(probe_drive(file_, options()).from_cache) << text;
  }
  // No directory can be where a file is.
  ProbeOptions nowhere = options();
  nowhere.cache_directory = cache_file();
  EXPECT_FALSE(probe_drive(file_, nowhere).from_cache);
  EXPECT_FALSE(probe_drive(file_, nowhere).from_cache);
}

TEST_P(DriveProbeTest, BufferedOrLittleIsUnknownWithAUsualDepth) {
  const ReadFile buffered(file_.path(), false);
  const DriveRate rate = probe_drive(buffered, options());
  EXPECT_THAT(rate.why_unknown, HasSubstr("page cache"));
  EXPECT_EQ(rate.bytes_per_second, 0);
  EXPECT_EQ(rate.depth, GetParam() == ReadKind::io_uring ? 16 : 4);
  EXPECT_THAT(describe(rate), HasSubstr("unknown"));
  if (!file_.direct()) GTEST_SKIP() << file_.why_buffered();
  ProbeOptions little = options();
  little.offset = 10 << 20;
  little.bytes = 1 << 20;
  EXPECT_THAT(probe_drive(file_, little).why_unknown, HasSubstr("1.00 MiB"));
  little.offset = ~uint64_t{0};
  EXPECT_THAT(probe_drive(file_, little).why_unknown, HasSubstr("too little"));
}

TEST_P(DriveProbeTest, AFileCutShortIsUnknown) {
  if (!file_.direct()) GTEST_SKIP() << file_.why_buffered();
  std::filesystem::resize_file(file_.path(), 4096);
  EXPECT_THAT(probe_drive(file_, options()).why_unknown, HasSubstr("failed"));
  EXPECT_FALSE(std::filesystem::exists(cache_file()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, DriveProbeTest, testing::Values(ReadKind::io_uring, ReadKind::threads),
                         [](const testing::TestParamInfo<ReadKind>& kind) {
                           return kind.param == ReadKind::io_uring ? "io_uring" : "threads";
                         });

class DriveCacheTest : public testing::Test {
 protected:
  std::optional<DriveRate> find_in(const std::string& text) const {
    std::ofstream(files_.name("drives.json")) << text;
    return DriveCache(files_.path()).find("k");
  }
  TempFiles files_;
};

constexpr const char* kGood =
    R"({"k":{"depth":8,"bytes_per_second":2e9,"best_bytes_per_second":2.1e9,"request_bytes":4096,"steps":[]}})";

TEST_F(DriveCacheTest, ChecksWhatItReads) {
  ASSERT_TRUE(find_in(kGood).has_value());
  EXPECT_EQ(find_in(kGood)->depth, 8);
  const std::string good = kGood;
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return find_in(text);
  };
  EXPECT_FALSE(with("\"depth\":8", "\"depth\":0"));
  EXPECT_FALSE(with("\"depth\":8", "\"depth\":-1"));
  EXPECT_FALSE(with("\"depth\":8", "\"depth\":1e9"));
  EXPECT_FALSE(with("\"depth\":8", "\"depth\":8.5"));
  EXPECT_FALSE(with("\"depth\":8", "\"depth\":\"8\""));
  EXPECT_FALSE(with("2e9", "-2e9"));
  EXPECT_FALSE(with("2e9", "1e999"));
  EXPECT_FALSE(with("\"steps\":[]", "\"steps\":3"));
  EXPECT_FALSE(with("\"steps\":[]", "\"steps\":[3]"));
  EXPECT_FALSE(with("\"steps\":[]", "\"steps\":[{\"depth\":1}]"));
  EXPECT_FALSE(with("\"k\":{", "\"other\":{"));
  EXPECT_FALSE(find_in(std::string(100'000, '[')));
  EXPECT_FALSE(find_in("{\"k\":" + std::string(3 << 20, ' ') + "1}"));
}

TEST_F(DriveCacheTest, APipeInItsPlaceIsLeftAlone) {
  const std::string path = files_.name("drives.json");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int other_end = ::open(path.c_str(), O_RDWR | O_NONBLOCK);  // or a fault here would wait for ever
  const DriveCache cache(files_.path());
  EXPECT_FALSE(cache.find("k").has_value());
  EXPECT_FALSE(cache.keep("k", DriveRate{}));
  ::close(other_end);
}

TEST_F(DriveCacheTest, KeepsOthersAndNeverGrowsWithoutEnd) {
  const DriveCache cache(files_.path());
  DriveRate rate;
  rate.depth = 4;
  rate.bytes_per_second = rate.best_bytes_per_second = 1e9;
  rate.request_bytes = 4096;
  rate.steps = {{4, 1e9}};
  EXPECT_TRUE(cache.keep("a", rate));
  rate.depth = 2;
  EXPECT_TRUE(cache.keep("b", rate));
  EXPECT_EQ(cache.find("a")->depth, 4);
  EXPECT_EQ(cache.find("b")->depth, 2);
  for (int i = 0; i < 70; ++i) cache.keep(std::to_string(i), rate);
  EXPECT_TRUE(cache.find("69").has_value());
  EXPECT_LT(std::filesystem::file_size(files_.name("drives.json")), 30'000u);
}

TEST_F(DriveCacheTest, NoDirectoryKeepsNothing) {
  const DriveCache cache{std::filesystem::path()};
  EXPECT_FALSE(cache.keep("a", {}));
  EXPECT_FALSE(cache.find("a").has_value());
}

TEST_F(DriveCacheTest, LiesWhereTheEnvironmentSays) {
  const char* const old = std::getenv("XDG_CACHE_HOME");
  const std::optional<std::string> before = old == nullptr ? std::nullopt : std::optional<std::string>(old);
  setenv("XDG_CACHE_HOME", "/some/where", 1);
  EXPECT_EQ(default_cache_directory(), "/some/where/moetier");
  setenv("XDG_CACHE_HOME", "relative", 1);
  const char* const home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') {
    EXPECT_EQ(default_cache_directory(), std::string(home) + "/.cache/moetier");
  }
  before ? setenv("XDG_CACHE_HOME", before->c_str(), 1) : unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace moetier
