// Everything that keeps a file from running is told at once, and loading itself is as it was.
#include "model/survey.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/log.h"
#include "compute/cpu/cpu_compute.h"
#include "model/model.h"
#include "rewrite.h"

namespace moetier {
namespace {

using ::testing::HasSubstr;
using testing::Rewritten;

LoadProblems problems_of(const GgufFile& file, size_t most = 1000) {
  const auto compute = make_cpu_compute({.threads = 1});
  return find_load_problems(file, *compute, most);
}

/// Every tensor of every family, one by one and all together: nothing is read of a stand-in.
TEST(Survey, GoesOnBehindAnyTensor) {
  for (const Architecture& architecture : architectures()) {
    const std::string name =
        architecture.name == "llama" ? "mini-llama-f32" : "mini-" + std::string(architecture.name) + "-f32";
    SCOPED_TRACE(name);
    const GgufFile whole = GgufFile::open(testing::fixture(name));
    EXPECT_EQ(problems_of(whole).sentences, std::vector<std::string>{});
    std::vector<std::string> all;
    for (const TensorInfo& tensor : whole.tensors()) all.push_back(tensor.name);
    Rewritten empty(name, {.drop_tensors = all, .add = {{"nothing.weight", TensorType::f32, {4}}}});
    const LoadProblems found = problems_of(empty.file());
    // Optional tensors, and other forms of what is missing, make a difference.
    EXPECT_GT(found.sentences.size(), whole.tensors().size() / 2);
    EXPECT_EQ(found.more, 0u);
    EXPECT_EQ(found.ignored, std::vector<std::string>{"nothing.weight"});
    const LoadProblems cut = problems_of(empty.file(), 3);
    EXPECT_EQ(cut.sentences.size(), 3u);
    EXPECT_EQ(cut.more, found.sentences.size() - 3);
    testing::Changes misshapen;
    for (const TensorInfo& tensor : whole.tensors()) {
      std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims);
      shape.back() += 1;
      misshapen.reshape.push_back({tensor.name, tensor.type, shape});
    }
    Rewritten wrong(name, misshapen);
    EXPECT_GT(problems_of(wrong.file()).sentences.size(), whole.tensors().size() / 2);
  }
}

/// A needed key that is missing is named, alone or with others, and hides nothing but tensors.
TEST(Survey, NamesKeys) {
  for (const Architecture& architecture : architectures()) {
    const std::string name =
        architecture.name == "llama" ? "mini-llama-f32" : "mini-" + std::string(architecture.name) + "-f32";
    SCOPED_TRACE(name);
    const std::string prefix = std::string(architecture.name) + ".";
    Rewritten keyless(name, {.drop_keys = {prefix + "embedding_length", prefix + "context_length"}});
    const LoadProblems found = problems_of(keyless.file());
    ASSERT_EQ(found.sentences.size(), 2u);
    EXPECT_THAT(found.sentences[0], HasSubstr("the key " + prefix + "context_length is missing"));
    EXPECT_THAT(found.sentences[1], HasSubstr("the key " + prefix + "embedding_length is missing"));
  }
}

TEST(Survey, LeavesLoadingAsItWas) {
  Rewritten without("mini-qwen3moe-f32", {.drop_tensors = {"output_norm.weight", "blk.0.attn_q.weight"},
                                          .add = {{"blk.1.unheard_of.weight", TensorType::f32, {4}}}});
  const std::vector<std::string> sentences = problems_of(without.file()).sentences;
  ASSERT_EQ(sentences.size(), 2u);
  EXPECT_THAT(log::warnings(), ::testing::Not(::testing::Contains(HasSubstr("blk.1.unheard_of.weight"))));
  const auto compute = make_cpu_compute({.threads = 1});
  try {
    load_model(without.file(), *compute);
    ADD_FAILURE() << "it loads";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), sentences[0]);
  }
}

}  // namespace
}  // namespace moetier
