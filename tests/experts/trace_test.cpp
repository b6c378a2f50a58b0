#include "experts/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <set>
#include <tuple>

#include "support/error_of.h"

namespace moetier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::error_of;

RoutingTrace parse(std::string_view text, int64_t prompt_tokens = 0) {
  return parse_trace(std::as_bytes(std::span(text.data(), text.size())), "trace", prompt_tokens);
}

std::string error_in(std::string_view text) {
  return error_of([&] { parse(text); });
}

constexpr std::string_view kHead =
    "# route_trace v1\n# model=a b.gguf arch=qwen3moe n_layer=2 n_expert=8 n_expert_used=2\n"
    "# layer=0 expert_bytes=100 dense_bytes=7\n# layer=1 expert_bytes=200 dense_bytes=9\n"
    "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n";

std::string with_head(std::string_view rows) {
  return std::string(kHead) + std::string(rows);
}

/// Binary records: layer, ids, weights.
std::string record(int32_t layer, std::initializer_list<int32_t> ids, std::initializer_list<float> weights) {
  std::string out;
  const auto put = [&](auto value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    out.append(bytes, sizeof value);
  };
  put(layer);
  put(static_cast<int32_t>(ids.size()));
  for (const int32_t id : ids) put(id);
  for (const float w : weights) put(w);
  return out;
}

TEST(Trace, CsvIsReadTokenByToken) {
  // Layer by layer in the file; the last layer has the prompt's last token only.
  const RoutingTrace t =
      parse(with_head("0,0,0,0,0,5,0.75,0,100\n0,0,0,0,1,3,0.25,0,100\n0,0,1,0,0,5,nan,0,0\n0,0,1,0,1,4,0.5,1,0\n"
                      "0,0,1,1,0,7,1,0,200\n0,1,2,0,0,3,1,1,0\n\n0,1,2,1,0,7,1,2,0\n"));
  EXPECT_EQ(t.model, "a b.gguf");
  EXPECT_EQ(t.arch, "qwen3moe");
  EXPECT_EQ(std::tuple(t.n_layer, t.n_expert, t.top_k, t.tokens), std::tuple(2, 8, 2, 3));
  EXPECT_THAT(t.entry_bytes, ElementsAre(100, 200));
  EXPECT_THAT(t.dense_bytes, ElementsAre(7, 9));
  ASSERT_EQ(t.routings.size(), 5u);
  std::vector<std::tuple<int, int, bool>> order;
  for (const Routing& r : t.routings) order.emplace_back(r.token, r.layer, r.prompt);
  EXPECT_THAT(order, ElementsAre(std::tuple(0, 0, true), std::tuple(1, 0, true), std::tuple(1, 1, true),
                                 std::tuple(2, 0, false), std::tuple(2, 1, false)));
  EXPECT_THAT(t.picks(t.routings[0]), ElementsAre(5, 3));
  EXPECT_THAT(t.pick_weights(t.routings[0]), ElementsAre(0.75f, 0.25f));
  EXPECT_THAT(t.pick_weights(t.routings[1]), ElementsAre(0.0f, 0.5f));
  EXPECT_THAT(t.picks(t.routings[2]), ElementsAre(7));
  EXPECT_THAT(t.residency, ElementsAre(0, 0, 0, 1, 0, 1, 2));
}

TEST(Trace, CsvWithoutPreambleOrSomeColumnsAndWithOthers) {
  const RoutingTrace t =
      parse("phase,step,extra,layer,expert,dropped,residency\r\n1,7,x,3,9,0,1\r\n1,7,x,3,2,1,0\r\n1,8,x,3,9,0,0");
  EXPECT_EQ(std::tuple(t.n_layer, t.n_expert, t.top_k, t.tokens), std::tuple(4, 10, 2, 2));
  EXPECT_THAT(t.residency, ElementsAre(1, -1, 0));
  EXPECT_THAT(t.weights, ElementsAre(0.0f, 0.0f, 0.0f));
  EXPECT_TRUE(t.entry_bytes.empty());
  EXPECT_EQ(t.routings[1].token, 1);
}

TEST(Trace, TurnsAreNumberedThrough) {
  const RoutingTrace t = parse(
      with_head("0,0,0,0,0,1,1,0,0\n0,1,1,0,0,2,1,0,0\n2,0,0,0,0,3,1,0,0\n2,0,1,0,0,4,1,0,0\n2,0,0,1,0,5,1,0,0\n"));
  std::vector<std::tuple<int, int, int>> order;
  for (const Routing& r : t.routings) order.emplace_back(r.token, r.layer, t.picks(r)[0]);
  EXPECT_THAT(order, ElementsAre(std::tuple(0, 0, 1), std::tuple(1, 0, 2), std::tuple(2, 0, 3), std::tuple(2, 1, 5),
                                 std::tuple(3, 0, 4)));
  EXPECT_EQ(t.tokens, 4);
}

TEST(Trace, CsvErrorsNameTheLine) {
  EXPECT_THAT(error_in(""), HasSubstr("trace is empty"));
  EXPECT_THAT(error_in("# route_trace v2\n"), HasSubstr("trace: line 1 says 'route_trace v2'"));
  EXPECT_THAT(error_in("# route_trace v1\n"), HasSubstr("no line that names its columns"));
  EXPECT_THAT(error_in(kHead), HasSubstr("holds no routing"));
  EXPECT_THAT(error_in("some text\n1,2,3\n"), HasSubstr("line 1 should name the columns of a routing trace"));
  EXPECT_THAT(error_in("phase,step,layer,expert,step\n"), HasSubstr("names the column step twice"));
  EXPECT_THAT(error_in(with_head("0,0,0,0,0,8,1,0,0\n")), HasSubstr("line 6 has '8' for expert"));
  EXPECT_THAT(error_in(with_head("0,0,0,2,0,0,1,0,0\n")), HasSubstr("line 6 has '2' for layer"));
  EXPECT_THAT(error_in(with_head("0,0,0,-1,0,0,1,0,0\n")), HasSubstr("'-1' for layer"));
  EXPECT_THAT(error_in(with_head("0,2,0,0,0,0,1,0,0\n")), HasSubstr("'2' for phase"));
  EXPECT_THAT(error_in(with_head("0,0,99999999999,0,0,0,1,0,0\n")), HasSubstr("for step"));
  EXPECT_THAT(error_in(with_head("0,0,0x,0,0,0,1,0,0\n")), HasSubstr("'0x' for step"));
  EXPECT_THAT(error_in(with_head("0,0,0,0,0,0,one,0,0\n")), HasSubstr("'one' for weight"));
  EXPECT_THAT(error_in(with_head("0,0,0,0,0,0,inf,0,0\n")), HasSubstr("'inf' for weight"));
  EXPECT_THAT(error_in(with_head("0,0,0,0,0,0,1,3,0\n")), HasSubstr("'3' for residency"));
  EXPECT_THAT(error_in(with_head("0,0,0,0,0,0,1,0,9999999999999999\n")), HasSubstr("for expert_bytes"));
  EXPECT_THAT(error_in(with_head("0,0,0,0,0,0,1\n")), HasSubstr("line 6 has 7 fields"));
  EXPECT_THAT(error_in(with_head("0,0,0,0,0,3,1,0,0\n0,0,0,0,1,3,1,0,0\n")),
              HasSubstr("line 7 picks expert 3 a second time"));
  EXPECT_THAT(error_in(with_head("1,0,0,0,0,3,1,0,0\n0,0,0,0,0,3,1,0,0\n")), HasSubstr("goes back to turn 0"));
  EXPECT_THAT(error_in(with_head("0,0,0,0,0,3,1,0,0\n0,0,0,0,0,4,1,0,0\n")),
              HasSubstr("layer 0 of step 0 occurs twice"));
  EXPECT_THAT(error_in(with_head("0,0,4,0,0,3,1,0,0\n0,1,4,1,0,4,1,0,0\n")),
              HasSubstr("step 4 is prompt in layer 0 and decoded in layer 1"));
  EXPECT_THAT(error_in("# model=x arch=y n_layer=70000 n_expert=8\n"), HasSubstr("'70000' for n_layer"));
  EXPECT_THAT(error_in("# layer=65536 expert_bytes=1\n"), HasSubstr("'65536' for layer"));
  EXPECT_THAT(error_in(std::string(70000, 'x')), HasSubstr("line 1 is longer than 65536 bytes"));
}

TEST(Trace, APreambleBehindTheRowsIsNotBelieved) {
  const RoutingTrace t = parse("phase,step,layer,expert\n1,0,3,9\n# model=x arch=y n_layer=1 n_expert=2\n");
  EXPECT_EQ(std::tuple(t.n_layer, t.n_expert), std::tuple(4, 10));
}

TEST(Trace, BinaryIsRead) {
  // The first layer's number is the byte of '#': still no CSV.
  const std::string bytes = record(35, {4, 2}, {0.75f, 0.25f}) + record(36, {1}, {std::nanf("")}) +
                            record(35, {7, 0}, {0, 0}) + record(35, {3}, {1});
  const RoutingTrace t = parse(bytes, 1);
  EXPECT_EQ(std::tuple(t.n_layer, t.n_expert, t.top_k, t.tokens), std::tuple(37, 8, 2, 3));
  std::vector<std::tuple<int, int, bool>> order;
  for (const Routing& r : t.routings) order.emplace_back(r.token, r.layer, r.prompt);
  EXPECT_THAT(order, ElementsAre(std::tuple(0, 35, true), std::tuple(0, 36, true), std::tuple(1, 35, false),
                                 std::tuple(2, 35, false)));
  EXPECT_THAT(t.ids, ElementsAre(4, 2, 1, 7, 0, 3));
  EXPECT_THAT(t.weights, ElementsAre(0.75f, 0.25f, 0.0f, 0.0f, 0.0f, 1.0f));
  EXPECT_TRUE(t.residency.empty());
  EXPECT_TRUE(t.entry_bytes.empty());
}

TEST(Trace, BinaryErrorsNameTheByte) {
  const std::string good = record(0, {1, 2}, {0, 0});
  EXPECT_THAT(error_in(good + record(-1, {1}, {0})), HasSubstr("the record at byte 24 has layer -1"));
  EXPECT_THAT(error_in(record(0, {}, {})), HasSubstr("layer 0 and 0 picks"));
  EXPECT_THAT(error_in(std::string("\0\0\0\0\xff\xff\xff\x7f", 8)), HasSubstr("2147483647 picks"));
  EXPECT_THAT(error_in(record(0, {65536}, {0})), HasSubstr("picks expert 65536"));
  EXPECT_THAT(error_in(record(0, {-1}, {0})), HasSubstr("picks expert -1"));
  EXPECT_THAT(error_in(record(0, {1}, {-INFINITY})), HasSubstr("with weight -inf"));
  EXPECT_THAT(error_in(record(0, {1, 1}, {0, 0})), HasSubstr("picks expert 1 twice"));
  for (size_t cut = 1; cut < good.size(); ++cut) {
    EXPECT_THAT(error_in(good.substr(0, cut)), HasSubstr("ends within the record at byte 0")) << cut;
  }
  EXPECT_THAT(error_of([&] { parse(good, -1); }), HasSubstr("-1 prompt tokens"));
  EXPECT_THAT(error_of([] { read_trace("/no/such/trace"); }), HasSubstr("cannot open /no/such/trace"));
}

std::string shared_trace(const std::string& name) {
  const char* folder = std::getenv("MOETIER_SHARED");
  return (folder != nullptr ? std::string(folder) : std::string(MOETIER_SOURCE_DIR "/../shared")) + "/traces/" + name;
}

TEST(Trace, TheSharedTracesAreReadWhole) {
  struct Expected {
    const char* file;
    int n_layer;
    int64_t prompt, prompt_of_last_layer;
  };
  for (const Expected& e : {Expected{"qwen.route.csv", 48, 28, 1}, Expected{"gemma.route.csv", 30, 29, 29}}) {
    const std::string path = shared_trace(e.file);
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there: set MOETIER_SHARED to its folder";
    const RoutingTrace t = read_trace(path);
    EXPECT_EQ(std::tuple(t.n_layer, t.n_expert, t.top_k, t.tokens), std::tuple(e.n_layer, 128, 6, e.prompt + 128));
    std::set<int> last_layer;
    int64_t decoded = 0;
    for (const Routing& r : t.routings) {
      EXPECT_EQ(r.count, 6u);
      if (r.layer == e.n_layer - 1 && r.prompt) last_layer.insert(r.token);
      decoded += r.prompt ? 0 : 1;
    }
    EXPECT_EQ(static_cast<int64_t>(last_layer.size()), e.prompt_of_last_layer);
    EXPECT_EQ(*last_layer.rbegin(), e.prompt - 1);
    EXPECT_EQ(decoded, 128 * e.n_layer);
    EXPECT_EQ(t.routings.size(), static_cast<size_t>(decoded + e.prompt * (e.n_layer - 1) + e.prompt_of_last_layer));
    EXPECT_EQ(t.ids.size(), t.routings.size() * 6);
    EXPECT_EQ(t.ids.size(), t.residency.size());
  }
}

}  // namespace
}  // namespace moetier
