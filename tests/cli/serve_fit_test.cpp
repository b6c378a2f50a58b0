#include "cli/serve_fit.h"

#include <gmock/gmock.h>

namespace moetier::cli {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30, kMiB = uint64_t{1} << 20;

/// In the shape of a 30B model with 3B in use: 96 KiB of KV cache a position.
FitInput large(uint64_t available) {
  FitInput in;
  HParams& h = in.hparams;
  h.context_length = 262144;
  h.width = 2048;
  h.layers = 48;
  h.vocab = 151936;
  h.heads = 32;
  h.kv_heads = 4;
  h.key_length = h.value_length = 128;
  h.experts = 128;
  h.top_k = 8;
  h.expert_width = 768;
  in.bank = 17 * kGiB;
  in.dense = 1 * kGiB;
  in.available = available;
  in.min_cache = 1500 * kMiB;
  in.residency.floor_bytes = 400 * kMiB;
  return in;
}

TEST(ServeFit, RoomForAllGivesTheMost) {
  const ServeFit fit = fit_serve(large(64 * kGiB));
  EXPECT_EQ(fit.context, kMostServeContext);
  EXPECT_EQ(fit.ubatch, 512);
  EXPECT_EQ(fit.plan.mode, ExpertMode::resident);
}

TEST(ServeFit, FavorPromptTakesALargerUbatch) {
  FitInput in = large(64 * kGiB);
  in.favor_prompt = true;
  EXPECT_EQ(fit_serve(in).ubatch, 2048);
}

TEST(ServeFit, TheCacheTakesAtMostAQuarterForKeysAndValues) {
  const ServeFit fit = fit_serve(large(8 * kGiB));
  EXPECT_EQ(fit.plan.mode, ExpertMode::stream);
  EXPECT_LE(fit.bytes.kv, 2 * kGiB);
  EXPECT_EQ(fit.context, 16384);
  EXPECT_GE(fit.plan.budget, 1500 * kMiB);
}

TEST(ServeFit, MoreSlotsMeanShorterOnes) {
  FitInput in = large(16 * kGiB);
  const int64_t one = fit_serve(in).context;
  in.parallel = 4;
  EXPECT_LT(fit_serve(in).context, one);
}

TEST(ServeFit, TheCachesLeastIsKeptBeforeTheContext) {
  FitInput in = large(4 * kGiB);
  const ServeFit fit = fit_serve(in);
  EXPECT_GE(fit.plan.budget, in.min_cache);
  EXPECT_LT(fit.context, kMostServeContext);
}

TEST(ServeFit, WhatIsAskedForIsTakenAndAShortCacheSaid) {
  FitInput in = large(4 * kGiB);
  in.context = 32768;
  in.ubatch = 1024;
  const ServeFit fit = fit_serve(in);
  EXPECT_EQ(fit.context, 32768);
  EXPECT_EQ(fit.ubatch, 1024);
  EXPECT_THAT(fit.why.back(), ::testing::HasSubstr("--min-cache-mib"));
}

TEST(ServeFit, ASizeThatWasAskedForIsNotShort) {
  FitInput in = large(8 * kGiB);
  in.residency.cache_bytes = 100 * kMiB;
  const ServeFit fit = fit_serve(in);
  EXPECT_EQ(fit.context, 16384);
  EXPECT_EQ(fit.ubatch, 512);
  EXPECT_EQ(fit.why.size(), 2u) << fit.why.back();
  in.residency.cache_bytes = std::nullopt;
  in.residency.ceil_bytes = 100 * kMiB;
  EXPECT_EQ(fit_serve(in).why.size(), 2u);
}

TEST(ServeFit, ALargeCacheThatWasAskedForLeavesLessToTheContext) {
  FitInput in = large(8 * kGiB);
  in.residency.cache_bytes = 6 * kGiB;
  ServeFit fit = fit_serve(in);
  EXPECT_LT(fit.context, 16384);
  EXPECT_EQ(fit.why.size(), 2u) << fit.why.back();
  in.residency.cache_bytes = 9 * kGiB;
  fit = fit_serve(in);
  EXPECT_THAT(fit.why.back(), ::testing::HasSubstr("as asked for and the"));
}

TEST(ServeFit, ManySlotsMayTakeMoreThanTheirShare) {
  FitInput in = large(16 * kGiB);
  in.parallel = 32;
  EXPECT_THAT(fit_serve(in).why.back(), ::testing::HasSubstr("more than a quarter"));
}

TEST(ServeFit, AStateOnItsWayToTheDiskTakesASlotsMemory) {
  FitInput in = large(16 * kGiB);
  in.context = 8192;
  in.residency.mode = ExpertMode::stream;
  const ServeFit plain = fit_serve(in);
  in.saves_prompts = true;
  const ServeFit saving = fit_serve(in);
  EXPECT_EQ(plain.plan.budget - saving.plan.budget, plain.bytes.kv);
  EXPECT_EQ(saving.bytes.kv, 2 * plain.bytes.kv);
  EXPECT_THAT(saving.why.front(), ::testing::HasSubstr("a KV cache of 768 MiB, and 768 MiB for a state on its way"));
}

TEST(ServeFit, AShortModelAndUnknownMemory) {
  FitInput in = large(kGiB);
  in.available = std::nullopt;
  in.hparams.context_length = 1024;
  EXPECT_EQ(fit_serve(in).context, 1024);
}

}  // namespace
}  // namespace moetier::cli
