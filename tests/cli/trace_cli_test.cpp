// Routing traces from the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/process.h"
#include "experts/trace.h"

namespace moetier {
namespace {

using testing::HasSubstr;

const std::string kDemo = MOETIER_SOURCE_DIR "/models/fairytale-moe-q8_0.gguf";

std::string some_text() {
  std::string text;
  for (int i = 0; i < 12; ++i) text += "Once upon a time there was a king who had three daughters. ";
  return text;
}

bool same_routings(const RoutingTrace& a, const RoutingTrace& b) {
  return a.tokens == b.tokens && a.ids == b.ids && a.weights == b.weights;
}

TEST(TraceCommand, WritesTheSamePicksWhateverTheFormAndTheUbatch) {
  const TemporaryFolder folder;
  const std::string text = folder.write("text.txt", some_text());
  const std::string a = folder.file("a.bin"), b = folder.file("b.bin"), c = folder.file("c.csv");
  const ProcessResult first = run_moetier({"trace", kDemo, text, a, "64", "2"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out, "");
  EXPECT_THAT(first.err, HasSubstr("in windows of 64"));
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{"--ubatch", "5"}, {"--experts", "stream", "--cache-mb", "0"}}) {
    std::vector<std::string> arguments = {"trace", "-m", kDemo, "-f", text, "-o", b, "--ctx", "64"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProcessResult result = run_moetier(arguments);
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(slurp(a) == slurp(b)) << more[0];
  }
  ASSERT_EQ(run_moetier({"trace", kDemo, text, c, "64"}).code, 0);
  const RoutingTrace binary = read_trace(a, 1 << 20), csv = read_trace(c);
  EXPECT_GT(binary.tokens, 128);
  EXPECT_TRUE(std::all_of(csv.routings.begin(), csv.routings.end(), [](const Routing& r) { return r.prompt; }));
  EXPECT_EQ(csv.tokens, binary.tokens);
  ASSERT_EQ(csv.routings.size(), binary.routings.size());
  for (size_t i = 0; i < csv.routings.size(); ++i) {
    const auto equal = [](auto p, auto q) { return std::equal(p.begin(), p.end(), q.begin(), q.end()); };
    EXPECT_TRUE(equal(csv.picks(csv.routings[i]), binary.picks(binary.routings[i])));
    EXPECT_TRUE(equal(csv.pick_weights(csv.routings[i]), binary.pick_weights(binary.routings[i])));
  }
  ASSERT_EQ(run_moetier({"trace", kDemo, text, b, "64", "--no-weights"}).code, 0);
  const RoutingTrace plain = read_trace(b);
  EXPECT_EQ(plain.ids, binary.ids);
  EXPECT_FALSE(same_routings(plain, binary));
  EXPECT_TRUE(std::all_of(plain.weights.begin(), plain.weights.end(), [](float w) { return w == 0; }));
}

TEST(TraceCommand, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  const std::string text = folder.write("text.txt", some_text()), model = folder.write("m.gguf", slurp(kDemo));
  EXPECT_EQ(run_moetier({"trace", model, text}).code, 2);
  EXPECT_EQ(run_moetier({"trace", model, text, model}).code, 2);
  EXPECT_EQ(run_moetier({"trace", model, text, text}).code, 2);
  EXPECT_EQ(run_moetier({"bench", "-m", model, "--route-trace", model}).code, 2);
  EXPECT_TRUE(slurp(model) == slurp(kDemo));
  EXPECT_EQ(run_moetier({"trace", model, text, folder.file("no/t.bin")}).code, 1);
  const ProcessResult dense =
      run_moetier({"logits", "-m", MOETIER_TEST_DATA "/models/mini-llama-dense-f32.gguf", "--tokens", "1,2", "-o",
                   folder.file("l"), "--route-trace", folder.file("t.csv")});
  EXPECT_EQ(dense.code, 1);
  EXPECT_THAT(dense.err, HasSubstr("no routing to trace"));
}

TEST(RouteTrace, OfARunHasPromptAndDecodedTokens) {
  const TemporaryFolder folder;
  const std::string path = folder.file("t.csv");
  const ProcessResult result =
      run_moetier({"run", "-m", kDemo, "-p", "Once upon a time", "-n", "6", "--temp", "0", "--route-trace", path});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(run_moetier({"run", "-m", kDemo, "-p", "Once upon a time", "-n", "6", "--temp", "0"}).out, result.out);
  const RoutingTrace t = read_trace(path);
  EXPECT_EQ(t.model, "fairytale-moe-q8_0.gguf");
  const auto decoded = std::count_if(t.routings.begin(), t.routings.end(), [](const Routing& r) { return !r.prompt; });
  EXPECT_EQ(decoded, 5 * t.n_layer);  // the last token is not computed
  EXPECT_GT(static_cast<int64_t>(t.routings.size()), decoded);
}

TEST(RouteTrace, AFullDiskIsToldBeforeAnyWork) {
  const TemporaryFolder folder;
  const ProcessResult result =
      run_moetier({"run", "-m", kDemo, "-p", "Once upon a time", "-n", "6", "--route-trace", "/dev/full"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot write /dev/full: No space left on device"));
}

}  // namespace
}  // namespace moetier
