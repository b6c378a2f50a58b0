// The rules between the parameters that say how experts and dense weights are kept.
#include "cli/residency_params.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "cli/command.h"
#include "cli/parse.h"

namespace moetier::cli {
namespace {

using Arguments = std::vector<std::string>;

const Command& run_it() {
  return *find_command("run");
}

std::string complaint(const Arguments& arguments) {
  return validate(run_it().params, parse_arguments(run_it(), arguments).given);
}

std::vector<std::string> notes(const Arguments& arguments) {
  return noop_notes(run_it().params, parse_arguments(run_it(), arguments).given);
}

ResidencyOptions options(const Arguments& arguments) {
  const Parsed parsed = parse_arguments(run_it(), arguments);
  EXPECT_EQ(validate(run_it().params, parsed.given), "");
  return residency_options(Settings(run_it().params, parsed.given));
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// An environment variable for as long as it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(ResidencyParams, DefaultsAreTheOptionsOwn) {
  const ResidencyOptions given = options({}), own;
  EXPECT_EQ(given.mode, own.mode);
  EXPECT_EQ(given.dense, own.dense);
  EXPECT_EQ(given.cache_bytes, own.cache_bytes);
  EXPECT_EQ(given.floor_bytes, own.floor_bytes);
  EXPECT_EQ(given.ceil_bytes, own.ceil_bytes);
  EXPECT_EQ(given.policy, own.policy);
  EXPECT_EQ(given.direct, own.direct);
  EXPECT_EQ(given.overlap, own.overlap);
  EXPECT_EQ(given.io, own.io);
  EXPECT_EQ(given.io_depth, own.io_depth);
  EXPECT_EQ(given.io_lanes, own.io_lanes);
  EXPECT_TRUE(notes({}).empty());
}

TEST(ResidencyParams, EveryFlagReachesItsOption) {
  const ResidencyOptions o = options({"--experts",
                                      "stream",
                                      "--cache-mb",
                                      "2000",
                                      "--cache-policy",
                                      "heat",
                                      "--moe-cache-profile",
                                      "p.strp",
                                      "--io",
                                      "threads",
                                      "--io-threads",
                                      "3",
                                      "--io-depth",
                                      "9",
                                      "--io-probe",
                                      "--no-odirect",
                                      "--no-overlap",
                                      "--prefetch",
                                      "2",
                                      "--load-all",
                                      "--mlock",
                                      "--dense-weights",
                                      "warm"});
  EXPECT_EQ(o.mode, ExpertMode::stream);
  EXPECT_EQ(o.cache_bytes, 2000 * kMiB);
  EXPECT_EQ(o.policy, CachePolicy::heat);
  EXPECT_EQ(o.profile, "p.strp");
  EXPECT_EQ(o.io, ReadKind::threads);
  EXPECT_EQ(o.io_lanes, 3);
  EXPECT_EQ(o.io_depth, 9);
  EXPECT_TRUE(o.io_probe);
  EXPECT_FALSE(o.direct);
  EXPECT_FALSE(o.overlap);
  EXPECT_EQ(o.prefetch, 2);
  EXPECT_TRUE(o.load_all);
  EXPECT_TRUE(o.mlock);
  EXPECT_EQ(o.dense, DensePolicy::warm);
  const ResidencyOptions automatic = options({"--cache-floor-mb", "100", "--cache-ceil-mb", "3000", "--advise-always"});
  EXPECT_EQ(automatic.floor_bytes, 100 * kMiB);
  EXPECT_EQ(automatic.ceil_bytes, 3000 * kMiB);
  EXPECT_TRUE(automatic.advise_always);
  for (const auto& [name, mode] : {std::pair{"resident", ExpertMode::resident},
                                   {"mmap", ExpertMode::mmap},
                                   {"advise", ExpertMode::advise},
                                   {"noop", ExpertMode::noop},
                                   {"auto", ExpertMode::automatic}}) {
    EXPECT_EQ(options({"--experts", name}).mode, mode) << name;
  }
}

TEST(ResidencyParams, OtherToolsSpellings) {
  EXPECT_EQ(options({"--moe-stream"}).mode, ExpertMode::stream);
  EXPECT_EQ(options({"--experts", "auto", "--moe-stream"}).mode, ExpertMode::stream);
  EXPECT_EQ(options({"--expert-cache-size", "1"}).mode, ExpertMode::advise);
  EXPECT_EQ(options({"--expert-cache-size", "0"}).mode, ExpertMode::automatic);
  EXPECT_EQ(options({"--no-warm-dense"}).dense, DensePolicy::mmap);
  EXPECT_EQ(options({"--dense-odirect"}).dense, DensePolicy::anon);
  EXPECT_EQ(options({"--moe-cache-adaptive"}).policy, CachePolicy::adaptive);
  {
    const Variable noop("EXPERT_CACHE_NOOP", "1");
    EXPECT_EQ(options({"--expert-cache-size", "7"}).mode, ExpertMode::noop);
    EXPECT_EQ(options({}).mode, ExpertMode::automatic) << "the variable alone does nothing";
    EXPECT_EQ(options({"--experts", "advise"}).mode, ExpertMode::advise) << "the variable alone does nothing";
  }
  const auto said = notes({"--expert-cache-size", "7"});
  ASSERT_EQ(said.size(), 1u);
  EXPECT_TRUE(has(said[0], "--expert-cache-size 7 means --experts advise"));
  ASSERT_EQ(notes({"--no-warm-dense"}).size(), 1u);
  EXPECT_TRUE(has(notes({"--no-warm-dense"})[0], "--dense-weights mmap"));
  ASSERT_EQ(notes({"--dense-odirect"}).size(), 1u);
  EXPECT_TRUE(has(notes({"--dense-odirect"})[0], "--dense-weights anon"));
}

TEST(ResidencyParams, ASizeMeansStream) {
  EXPECT_EQ(options({"--cache-mb", "2000"}).mode, ExpertMode::stream);
  EXPECT_EQ(options({"--cache-mb", "0"}).mode, ExpertMode::stream);
  EXPECT_EQ(options({"--cache-mb", "0"}).cache_bytes, 0u);
  EXPECT_EQ(options({"--cache-mb", "auto"}).mode, ExpertMode::automatic);
  EXPECT_FALSE(options({"--cache-mb", "auto", "--moe-stream"}).cache_bytes.has_value());
  const Variable size("MOETIER_CACHE_MB", "1700");
  EXPECT_EQ(options({}).mode, ExpertMode::stream);
  EXPECT_EQ(options({}).cache_bytes, 1700 * kMiB);
  EXPECT_EQ(options({"--cache-mb", "1800"}).cache_bytes, 1800 * kMiB) << "a typed flag wins";
}

TEST(ResidencyParams, SmallSizesNeedToBeForced) {
  for (const char* size : {"1", "750", "1499"}) {
    const std::string text = complaint({"--cache-mb", size});
    EXPECT_TRUE(has(text, std::string("--cache-mb ") + size)) << text;
    EXPECT_TRUE(has(text, "--force-cache")) << text;
    EXPECT_EQ(options({"--cache-mb", size, "--force-cache"}).cache_bytes, std::stoull(size) * kMiB);
  }
  EXPECT_EQ(complaint({"--cache-mb", "1500"}), "");
  EXPECT_EQ(complaint({"--cache-mb", "0"}), "");
  for (const char* bad : {"lots", "-1", "1e3", "2000MB"}) {
    EXPECT_TRUE(has(complaint({"--cache-mb", bad}), "--cache-mb takes a whole number")) << bad;
  }
}

TEST(ResidencyParams, WhatExcludesEachOther) {
  EXPECT_TRUE(has(complaint({"--cache-mb", "auto", "--cache-mb", "2000"}), "auto and 2000 exclude each other"));
  EXPECT_TRUE(has(complaint({"--experts", "mmap", "--moe-stream"}), "--experts mmap and --moe-stream"));
  EXPECT_TRUE(has(complaint({"--moe-stream", "--expert-cache-size", "1"}), "--moe-stream and --expert-cache-size 1"));
  EXPECT_TRUE(
      has(complaint({"--dense-weights", "warm", "--no-warm-dense"}), "--dense-weights warm and --no-warm-dense"));
  EXPECT_TRUE(has(complaint({"--no-warm-dense", "--dense-odirect"}), "--no-warm-dense and --dense-odirect"));
  EXPECT_TRUE(
      has(complaint({"--cache-policy", "lru", "--moe-cache-adaptive"}), "--cache-policy lru and --moe-cache-adaptive"));
  EXPECT_EQ(complaint({"--experts", "stream", "--moe-stream"}), "");
  EXPECT_EQ(complaint({"--dense-weights", "anon", "--dense-odirect"}), "");
  EXPECT_EQ(complaint({"--cache-policy", "adaptive", "--moe-cache-adaptive"}), "");
}

TEST(ResidencyParams, PrefetchAndDroppingNeedACache) {
  EXPECT_TRUE(has(complaint({"--prefetch", "2", "--cache-mb", "0"}), "--prefetch 2 needs a cache"));
  EXPECT_TRUE(has(complaint({"--prefetch", "2", "--experts", "mmap"}), "--experts mmap has none"));
  EXPECT_TRUE(has(complaint({"--prefetch", "9"}), "--prefetch takes a whole number from 0 to 8"));
  for (const Arguments& good :
       {Arguments{"--prefetch", "2"}, Arguments{"--prefetch", "2", "--moe-stream"},
        Arguments{"--prefetch", "2", "--cache-mb", "1500"}, Arguments{"--prefetch", "0", "--experts", "mmap"}}) {
    EXPECT_EQ(complaint(good), "");
  }
  EXPECT_TRUE(
      has(complaint({"--drop-cold-experts", "0.5", "--cache-mb", "0"}), "--drop-cold-experts 0.5 needs a cache"));
  EXPECT_EQ(complaint({"--drop-cold-experts", "0.0", "--cache-mb", "0"}), "");
  EXPECT_TRUE(has(complaint({"--drop-cold-experts", "nan"}), "--drop-cold-experts takes a number"));
}

TEST(ResidencyParams, WhatDoesNothingSaysSo) {
  // Of what needs a cache and finds none, the engine speaks (tests/engine/unused_test.cpp).
  EXPECT_EQ(notes({"--experts", "mmap", "--cache-policy", "lru", "--moe-cache-profile", "p"}).size(), 0u);
  EXPECT_EQ(notes({"--cache-mb", "1500", "--cache-floor-mb", "10"}).size(), 1u) << "the floor is for auto";
  EXPECT_EQ(notes({"--experts", "mmap", "--load-all"}).size(), 1u);
  EXPECT_EQ(notes({"--experts", "mmap", "--preload"}).size(), 1u);
  EXPECT_EQ(notes({"--experts", "mmap", "--advise-always"}).size(), 1u);
  EXPECT_EQ(notes({"--experts", "advise", "--advise-always"}).size(), 0u);
}

TEST(ResidencyParams, WhatNeedsADeviceSaysSo) {
  const auto said = notes({"--moe-cache-mib", "256", "--moe-cache-hybrid"});
  ASSERT_EQ(said.size(), 1u);
  EXPECT_TRUE(has(said[0], "--moe-cache-mib changes nothing here: it needs a device"));
  EXPECT_TRUE(has(said[0], "--moe-cache-hybrid changes nothing here: it needs a device"));
  const Variable size("LLAMA_ARG_MOE_CACHE_MIB", "256"), hybrid("LLAMA_ARG_MOE_CACHE_HYBRID", "1");
  EXPECT_EQ(notes({}).size(), 1u);
}

TEST(ResidencyParams, TheEnvironmentIsHonoured) {
  {
    const Variable profile("LLAMA_ARG_MOE_CACHE_PROFILE", "p.strp"), adaptive("LLAMA_ARG_MOE_CACHE_ADAPTIVE", "1");
    EXPECT_EQ(options({}).profile, "p.strp");
    EXPECT_EQ(options({}).policy, CachePolicy::adaptive);
    EXPECT_EQ(options({"--moe-cache-profile", "q"}).profile, "q");
  }
  EXPECT_EQ(complaint({"--moe-cache-audit", "f"}), "");
}

TEST(ResidencyParams, EveryCommandThatRunsAModelTakesThem) {
  for (const char* name : {"run", "logits", "bench", "perplexity"}) {
    const Command& command = *find_command(name);
    const auto given = parse_arguments(command, {"--cache-mb", "10"}).given;
    EXPECT_TRUE(has(validate(command.params, given), "--force-cache")) << name;
  }
}

}  // namespace
}  // namespace moetier::cli
