// A model file that is cut short while its engine runs: the request ends with an error, the process lives on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "engine/fixtures.h"
#include "support/error_of.h"

namespace moetier {
namespace {

namespace fs = std::filesystem;
using namespace testing_support;

/// With everything in the mapped file: what was read into memory of our own does not notice.
EngineOptions mapped() {
  EngineOptions options;
  options.residency.mode = ExpertMode::mmap;
  options.residency.dense = DensePolicy::mmap;
  return options;
}

/// A committed model's copy, which a test may destroy.
class Faults : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path = testing::TempDir() + "faults_" + std::to_string(getpid()) + ".gguf";
    fs::copy_file(model_path(GetParam()), path, fs::copy_options::overwrite_existing);
  }
  void TearDown() override { fs::remove(path); }

  std::string path;
};

TEST_P(Faults, EndTheRequestAndNotTheProcess) {
  EngineOptions options = mapped();
  options.cpu.threads = 2;
  const auto engine = Engine::load(path, options);
  const auto other = load(GetParam(), 2);
  Context context(*engine, small_context()), sound(*other, small_context());
  SequenceState a = context.new_sequence(), b = sound.new_sequence();
  const std::vector<TokenId> tokens = some_tokens(*engine, 20, 1);
  const std::vector<float> want = feed(context, a, tokens);
  const std::string held = a.save();
  fs::resize_file(path, 0);
  for (int i = 0; i < 3; ++i) {  // the first runs into it, the others know
    EXPECT_THAT(error_of([&] { feed(context, a, tokens); }),
                testing::AllOf(testing::HasSubstr(path), testing::HasSubstr("cut short")));
    EXPECT_EQ(context.logits_count(), 0);
    EXPECT_EQ(a.save(), held);
  }

  EXPECT_TRUE(same_bits(feed(sound, b, tokens), want)) << "another model does not notice";
}

TEST_P(Faults, NoLogitsOfADamagedModelAreHandedOut) {
  const auto engine = Engine::load(path, mapped());
  Context context(*engine, small_context(TensorType::f32, 4));
  SequenceState a = context.new_sequence();
  std::vector<BatchRow> rows;
  for (const TokenId t : some_tokens(*engine, 20, 1)) rows.push_back({t, &a, true});
  int64_t given = 0;
  const auto cut_at = [&](int64_t index, std::span<const float>) {
    ++given;
    if (index == 3) fs::resize_file(path, 0);
  };
  EXPECT_THAT(error_of([&] { context.decode(rows, cut_at); }), testing::HasSubstr("cut short"));
  EXPECT_EQ(given, 4);
  EXPECT_EQ(a.length(), 0);
  // Rows that want no logits are not computed in vain, either.
  const BatchRow unwanted{1, &a, false};
  EXPECT_THROW(context.decode({&unwanted, 1}), Error);
}

INSTANTIATE_TEST_SUITE_P(Models, Faults, testing::Values("mini-qwen3moe-q8_0", "mini-qwen3-f32"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(FaultsDeathTest, AreLeftToTheProgramIfItSaysSo) {
  const std::string path = testing::TempDir() + "faults_off_" + std::to_string(getpid()) + ".gguf";
  fs::copy_file(model_path("mini-qwen3moe-q8_0"), path, fs::copy_options::overwrite_existing);
  const auto run = [&] {
    signal(SIGBUS, SIG_DFL);
    EngineOptions options = mapped();
    options.survive_faults = false;
    options.cpu.threads = 1;
    const auto engine = Engine::load(path, options);
    Context context(*engine, small_context());
    SequenceState a = context.new_sequence();
    fs::resize_file(path, 0);
    feed(context, a, some_tokens(*engine, 2, 1));
    _exit(0);
  };
  EXPECT_EXIT(run(), testing::KilledBySignal(SIGBUS), "");
  fs::remove(path);
}

}  // namespace
}  // namespace moetier
