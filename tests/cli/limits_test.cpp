// Memory limits are real: the program runs in a cgroup that holds half of the model.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file.h"

namespace moetier::cli {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::json;

/// A memory cgroup of v1, or of v2 below the process's own.
class MemoryLimit {
 public:
  explicit MemoryLimit(uint64_t bytes) {
    const bool v1 = fs::exists("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    fs::path parent = "/sys/fs/cgroup/memory";
    if (!v1) {
      std::ifstream own("/proc/self/cgroup");
      std::string line;
      std::getline(own, line);
      parent = "/sys/fs/cgroup" + line.substr(std::min(line.size(), line.find("::") + 2));
    }
    folder_ = parent / ("moetier-test-" + std::to_string(::getpid()));
    std::error_code failed;
    fs::create_directory(folder_, failed);
    if (failed) return;
    std::ofstream(folder_ / (v1 ? "memory.limit_in_bytes" : "memory.max")) << bytes << std::flush;
    if (!v1) std::ofstream(folder_ / "memory.swap.max") << 0 << std::flush;
    uint64_t set = 0;
    std::ifstream(folder_ / (v1 ? "memory.limit_in_bytes" : "memory.max")) >> set;
    there_ = set == bytes;
    peak_ = folder_ / (v1 ? "memory.max_usage_in_bytes" : "memory.peak");
  }
  ~MemoryLimit() {
    std::error_code ignored;
    fs::remove(folder_, ignored);
  }
  bool there() const { return there_; }
  uint64_t peak() const {
    uint64_t bytes = 0;
    std::ifstream(peak_) >> bytes;
    return bytes;
  }
  /// The exit status of a program in it, as the shell has it.
  int run(const std::string& arguments) const {
    const std::string command = fmt::format("sh -c 'echo $$ > {}/cgroup.procs && exec {} {}' > /dev/null 2> {}.err",
                                            folder_.string(), MOETIER_BINARY, arguments, error_file());
    return std::system(command.c_str());
  }
  std::string said() const { return read_file(error_file() + ".err"); }

 private:
  std::string error_file() const { return ::testing::TempDir() + "limits_" + std::to_string(::getpid()); }
  fs::path folder_, peak_;
  bool there_ = false;
};

class Limits : public ::testing::Test {
 protected:
  static constexpr uint64_t kPage = 4096;

  static void SetUpTestSuite() {
    model_ = ::testing::TempDir() + "limits_" + std::to_string(::getpid()) + ".gguf";
    const std::string command = fmt::format(
        "{} synth --like tiny --architecture qwen3moe --layers 6 --type q8_0 --set D=512 --set F=512 --set E=24 --set "
        "K=4 "
        "--set V=1000 --skew 1 -o {} 2> /dev/null",
        MOETIER_BINARY, model_);
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  static void TearDownTestSuite() { fs::remove(model_); }

  static json stats() { return json::parse(read_file(stats_file())); }
  static std::string stats_file() { return model_ + ".json"; }
  static inline std::string model_;
};

TEST_F(Limits, HalfOfTheModelIsEnoughInEveryMode) {
  const uint64_t limit = fs::file_size(model_) / 2 / kPage * kPage;
  const MemoryLimit group(limit);
  if (!group.there()) GTEST_SKIP() << "no memory cgroup can be made here (it takes root, or a delegated group)";
  const std::string tokens =
      "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34";
  const std::string plain = model_ + ".resident", limited = model_ + ".limited";
  ASSERT_EQ(
      std::system(fmt::format("{} logits -m {} --tokens {} -o {} -q", MOETIER_BINARY, model_, tokens, plain).c_str()),
      0);
  for (const char* mode : {"auto", "stream --overlap", "stream --no-overlap --cache-policy lru", "mmap", "advise",
                           "noop", "stream --dense-weights warm", "stream --io threads"}) {
    SCOPED_TRACE(mode);
    EXPECT_EQ(group.run(fmt::format("logits -m {} --tokens {} -o {} --experts {} --ubatch 8 --stats-json {}", model_,
                                    tokens, limited, mode, stats_file())),
              0)
        << group.said();
    EXPECT_TRUE(read_file(limited) == read_file(plain)) << "the limit changed a bit";
    EXPECT_LE(group.peak(), limit);
    if (std::string(mode) == "auto") {
      const json s = stats();
      EXPECT_EQ(s["mode"], "stream");
      EXPECT_GT(s["cache_budget_mb"].get<double>(), 0);
      EXPECT_LT(s["cache_budget_mb"].get<double>() * (1 << 20), static_cast<double>(limit));
      EXPECT_NEAR(s["cgroup_limit_mib"].get<double>() * (1 << 20), static_cast<double>(limit), 1 << 20);
    }
  }
  fs::remove(plain);
  fs::remove(limited);
  fs::remove(stats_file());
}

TEST_F(Limits, TheBudgetDoesNotDependOnWhetherDenseWeightsAreWarm) {
  const uint64_t limit = fs::file_size(model_) * 6 / 10 / kPage * kPage;
  const MemoryLimit group(limit);
  if (!group.there()) GTEST_SKIP() << "no memory cgroup can be made here (it takes root, or a delegated group)";
  std::vector<double> budgets, hits;
  for (const char* dense : {"mmap", "warm", "anon"}) {
    ASSERT_EQ(
        group.run(fmt::format("bench -m {} -p 0 -n 16 --repeat 1 --experts stream --dense-weights {} --stats-json {}",
                              model_, dense, stats_file())),
        0)
        << group.said();
    budgets.push_back(stats()["cache_budget_mb"]);
    hits.push_back(stats()["decode"]["cache_hit_pct"]);
  }
  EXPECT_NEAR(budgets[0], budgets[1], 1.0);
  EXPECT_NEAR(hits[0], hits[1], 2.0);  // a budget that differs by a few entries is worth some picks of so short a run
  EXPECT_LT(budgets[2], budgets[1]);
  fs::remove(stats_file());
}

}  // namespace
}  // namespace moetier::cli
