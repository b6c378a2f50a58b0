// Every type that can be computed, as a whole model: where the experts lie and which unit computes them changes no bit.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "engine/fixtures.h"
#include "model/synth.h"
#include "quant/tensor_type.h"

namespace moetier {
namespace {

using namespace testing_support;
namespace fs = std::filesystem;

std::vector<TensorType> block_types() {
  std::vector<TensorType> types;
  for (const TypeInfo& info : known_types()) {
    if (info.computable && info.block_length > 1) types.push_back(info.type);
  }
  return types;
}

class ModelsOfEveryType : public ::testing::TestWithParam<TensorType> {
 protected:
  ModelsOfEveryType()
      : path_(fs::path(::testing::TempDir()) / fmt::format("type_{}_{}.gguf", type_name(GetParam()), getpid())) {
    synthesize({.like = "tiny",
                .architecture = "qwen3moe",
                .layers = 2,
                .type = std::string(type_name(GetParam())),
                .pure = true,
                .seed = 3,
                .set = {{"E", 5}, {"K", 2}, {"V", 280}}},
               path_);
  }
  ~ModelsOfEveryType() override { fs::remove(path_); }

  std::vector<float> logits(ExpertMode mode, Isa isa) const {
    EngineOptions options;
    options.cpu.threads = 1;
    options.cpu.isa = isa;
    options.residency.mode = mode;
    if (mode == ExpertMode::stream) {
      const GgufFile file = GgufFile::open(path_);
      options.residency.cache_bytes = EntryMap::from_gguf(file, read_top_k(file)).token_cycle_bytes() / 2;
    }
    const auto engine = Engine::load(path_, options);
    Context context(*engine, small_context());
    SequenceState sequence = context.new_sequence();
    const std::vector<TokenId> tokens = some_tokens(*engine, 12, 5);
    std::vector<float> all = feed(context, sequence, std::span(tokens).first(9));
    const std::vector<float> rest = feed_singly(context, sequence, std::span(tokens).subspan(9));
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }

  std::string path_;
};

TEST_P(ModelsOfEveryType, GiveTheSameBitsEverywhere) {
  const std::vector<float> mapped = logits(ExpertMode::mmap, Isa::portable);
  for (const float l : mapped) ASSERT_TRUE(std::isfinite(l));
  ASSERT_NE(*std::max_element(mapped.begin(), mapped.end()), *std::min_element(mapped.begin(), mapped.end()));
  for (const ExpertMode mode : {ExpertMode::mmap, ExpertMode::resident, ExpertMode::stream}) {
    EXPECT_TRUE(same_bits(logits(mode, Isa::automatic), mapped)) << to_string(mode);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ModelsOfEveryType, ::testing::ValuesIn(block_types()),
                         [](const auto& test) { return std::string(type_name(test.param)); });

}  // namespace
}  // namespace moetier
