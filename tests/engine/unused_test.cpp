// Cache options where there is no cache: the engine says it once, whoever asked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/log.h"
#include "engine/fixtures.h"

namespace moetier {
namespace {

using namespace testing_support;

/// Everything that was warned of so far, a load with these options included (each sentence is kept once).
std::vector<std::string> said(const std::string& model, const std::function<void(ResidencyOptions&)>& change) {
  EngineOptions options;
  options.cpu.threads = 1;
  change(options.residency);
  const auto engine = Engine::load(model_path(model), options);
  return log::warnings();
}

using testing::Contains;

TEST(UnusedCacheOptions, AreToldInOneSentence) {
  EXPECT_THAT(said("mini-qwen3moe-q8_0",
                   [](ResidencyOptions& o) {
                     o.mode = ExpertMode::mmap;
                     o.profile = "a.strp";
                   }),
              Contains("--moe-cache-profile changes nothing: it needs a cache, and experts are mapped"));
  EXPECT_THAT(said("mini-qwen3moe-q8_0",
                   [](ResidencyOptions& o) {
                     o.mode = ExpertMode::resident;
                     o.cache_bytes = uint64_t{2} << 30;
                     o.floor_bytes = 5;
                     o.ceil_bytes = 5;
                     o.policy = CachePolicy::lru;
                   }),
              Contains("--cache-mb, --cache-floor-mb, --cache-ceil-mb, --cache-policy change nothing: they need a "
                       "cache, and experts are resident"));
  EXPECT_THAT(said("mini-qwen3moe-q8_0",
                   [](ResidencyOptions& o) {
                     o.mode = ExpertMode::stream;
                     o.cache_bytes = 0;
                     o.policy = CachePolicy::heat;
                   }),
              Contains("--cache-policy changes nothing: it needs a cache, and experts are streamed without one"));
  EXPECT_THAT(said("mini-qwen3-f32", [](ResidencyOptions& o) { o.policy = CachePolicy::lru; }),
              Contains("--cache-policy changes nothing: it needs a cache, and the model has no experts"));
}

TEST(UnusedCacheOptions, NobodySpeaksWhereNothingIsUnused) {
  const std::vector<std::string> before = log::warnings();
  EXPECT_EQ(said("mini-qwen3moe-q8_0", [](ResidencyOptions& o) { o.mode = ExpertMode::mmap; }), before);
  EXPECT_EQ(said("mini-qwen3moe-q8_0",
                 [](ResidencyOptions& o) {
                   o.mode = ExpertMode::stream;
                   o.cache_bytes = uint64_t{64} << 20;
                   o.policy = CachePolicy::lru;
                 }),
            before);
}

}  // namespace
}  // namespace moetier
