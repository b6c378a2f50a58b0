#include "experts/trace_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "base/random.h"
#include "experts/trace.h"
#include "support/error_of.h"

namespace moetier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::error_of;

class TraceFile : public testing::Test {
 protected:
  ~TraceFile() override { std::filesystem::remove(path_); }
  std::string written() const { return read_file(path_); }
  // Of this process: tests run side by side.
  const std::string path_ = testing::TempDir() + "trace_writer_" + std::to_string(getpid());
};

TEST_F(TraceFile, CsvHasTheSeedsLines) {
  const TraceHead head = {"a b.gguf", "qwen3moe", 2, 8, 2, {100, 200}, {7, 9}};
  const int32_t ids[] = {5, 3};
  const float weights[] = {0.75f, 0.10022f};
  const int8_t residency[] = {0, 1};
  const uint64_t bytes[] = {100, 0};
  {
    CsvTraceWriter writer(path_, head);
    writer.add({true, 0, 1, ids, weights, residency, bytes});
    writer.next_turn();
    writer.add({false, 12, 0, ids, weights});
  }
  EXPECT_EQ(written(),
            "# route_trace v1\n# model=a b.gguf arch=qwen3moe n_layer=2 n_expert=8 n_expert_used=2\n"
            "# layer=0 expert_bytes=100 dense_bytes=7\n# layer=1 expert_bytes=200 dense_bytes=9\n"
            "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n"
            "0,0,0,1,0,5,0.75,0,100\n0,0,0,1,1,3,0.10022,1,0\n1,1,12,0,0,5,0.75,0,0\n1,1,12,0,1,3,0.10022,0,0\n");
}

TEST_F(TraceFile, CsvTellsDroppedPicksAndKeepsToItsLines) {
  const int32_t id[] = {1};
  const float weight[] = {1};
  const int8_t dropped[] = {-1};
  {
    CsvTraceWriter writer(path_, {"a\nturn,x", "y", 1, 2, 1, {}, {}}, true);
    writer.add({false, 0, 0, id, weight, dropped});
    writer.add({false, 1, 0, id, weight});
  }
  const RoutingTrace t = read_trace(path_);
  EXPECT_EQ(t.model, "a turn,x");
  EXPECT_THAT(t.residency, ElementsAre(-1, 0));
  EXPECT_THAT(written(), HasSubstr("0,1,0,0,0,1,1,0,0,1\n"));
}

TEST_F(TraceFile, BinaryHasTheSeedsBytes) {
  const int32_t ids[] = {258, 3};
  const float weights[] = {1.0f, 0.5f};
  BinaryTraceWriter writer(path_);
  writer.add(4, ids, weights);
  EXPECT_FALSE(std::filesystem::exists(path_));
  writer.commit();
  EXPECT_EQ(written(), std::string("\4\0\0\0\2\0\0\0\2\1\0\0\3\0\0\0\0\0\x80\x3f\0\0\0\x3f", 24));
}

TEST_F(TraceFile, CsvReachesTheFileAtEveryFlush) {
  const int32_t id[] = {1};
  const float weight[] = {1};
  CsvTraceWriter writer(path_, {"m", "a", 1, 2, 1, {}, {}});
  writer.add({false, 0, 0, id, weight});
  writer.flush();
  EXPECT_EQ(read_trace(path_).routings.size(), 1u);
}

TEST_F(TraceFile, ErrorsNameTheFile) {
  EXPECT_THAT(error_of([] { CsvTraceWriter("/no/such/folder/t.csv", {}); }), HasSubstr("/no/such/folder/t.csv"));
  EXPECT_THAT(error_of([] { BinaryTraceWriter("/no/such/folder/t.bin"); }), HasSubstr("/no/such/folder/t.bin"));
  EXPECT_THAT(error_of([] { CsvTraceWriter("/dev/full", {}).flush(); }),
              HasSubstr("cannot write /dev/full: No space left on device"));
}

/// A trace of random shape, token by token.
RoutingTrace random_trace(uint64_t seed) {
  Xoshiro256 random(seed);
  const auto below = [&](uint64_t n) { return static_cast<int>(random.next_starstar() % n); };
  RoutingTrace t;
  t.n_layer = 1 + below(5);
  t.n_expert = 2 + below(40);
  t.told = true;
  t.model = "model " + std::to_string(seed) + ".gguf";
  t.arch = "x";
  for (int i = 0; i < t.n_layer; ++i) {
    t.entry_bytes.push_back(static_cast<uint64_t>(below(1 << 20)));
    t.dense_bytes.push_back(static_cast<uint64_t>(below(1 << 20)));
  }
  t.tokens = 1 + below(20);
  const int prompt = below(static_cast<uint64_t>(t.tokens) + 1);
  for (int token = 0; token < t.tokens; ++token) {
    for (int layer = 0; layer < t.n_layer; ++layer) {
      Routing r = {token, layer, token < prompt, static_cast<uint32_t>(t.ids.size()), 0};
      r.count = static_cast<uint32_t>(1 + below(static_cast<uint64_t>(std::min(t.n_expert, 8))));
      std::vector<int32_t> experts(static_cast<size_t>(t.n_expert));
      std::iota(experts.begin(), experts.end(), 0);
      for (size_t i = 0; i < r.count; ++i) {
        std::swap(experts[i], experts[i + static_cast<size_t>(below(experts.size() - i))]);
        t.ids.push_back(experts[i]);
        t.weights.push_back(static_cast<float>(below(1 << 24)) / 3e7f);
        t.residency.push_back(static_cast<int8_t>(below(4) - 1));
      }
      t.top_k = std::max(t.top_k, static_cast<int>(r.count));
      t.routings.push_back(r);
    }
  }
  return t;
}

void expect_same_routings(const RoutingTrace& a, const RoutingTrace& b) {
  ASSERT_EQ(a.routings.size(), b.routings.size());
  EXPECT_EQ(std::tuple(a.top_k, a.tokens), std::tuple(b.top_k, b.tokens));
  for (size_t i = 0; i < a.routings.size(); ++i) {
    const Routing &x = a.routings[i], &y = b.routings[i];
    EXPECT_EQ(std::tuple(x.token, x.layer, x.prompt, x.count), std::tuple(y.token, y.layer, y.prompt, y.count));
    const auto equal = [](auto p, auto q) { return std::equal(p.begin(), p.end(), q.begin(), q.end()); };
    EXPECT_TRUE(equal(a.picks(x), b.picks(y)));
    EXPECT_TRUE(equal(a.pick_weights(x), b.pick_weights(y)));
  }
}

TEST_F(TraceFile, CsvIsReadAsWritten) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const RoutingTrace t = random_trace(seed);
    {
      CsvTraceWriter writer(path_, {t.model, t.arch, t.n_layer, t.n_expert, t.top_k, t.entry_bytes, t.dense_bytes},
                            true);
      const auto add = [&](const Routing& r) {
        writer.add({r.prompt, r.token, r.layer, t.picks(r), t.pick_weights(r),
                    std::span<const int8_t>(t.residency).subspan(r.first, r.count)});
      };
      // The prompt layer by layer, as a run writes it.
      for (int layer = 0; layer < t.n_layer; ++layer) {
        for (const Routing& r : t.routings) {
          if (r.prompt && r.layer == layer) add(r);
        }
      }
      for (const Routing& r : t.routings) {
        if (!r.prompt) add(r);
      }
    }
    const RoutingTrace read = read_trace(path_);
    expect_same_routings(read, t);
    EXPECT_EQ(std::tuple(read.model, read.arch, read.n_layer, read.n_expert, read.told),
              std::tuple(t.model, t.arch, t.n_layer, t.n_expert, t.told));
    EXPECT_EQ(read.entry_bytes, t.entry_bytes);
    EXPECT_EQ(read.dense_bytes, t.dense_bytes);
    for (size_t i = 0; i < read.routings.size(); ++i) {
      for (uint32_t j = 0; j < read.routings[i].count; ++j) {
        EXPECT_EQ(read.residency[read.routings[i].first + j], t.residency[t.routings[i].first + j]);
      }
    }
  }
}

TEST_F(TraceFile, BinaryIsReadAsWritten) {
  for (uint64_t seed = 100; seed < 140; ++seed) {
    const RoutingTrace t = random_trace(seed);
    BinaryTraceWriter writer(path_);
    int64_t prompt = 0;
    for (const Routing& r : t.routings) {
      writer.add(r.layer, t.picks(r), t.pick_weights(r));
      if (r.prompt) prompt = r.token + 1;
    }
    writer.commit();
    const RoutingTrace read = read_trace(path_, prompt);
    expect_same_routings(read, t);
    EXPECT_EQ(std::tuple(read.n_layer, read.told), std::tuple(t.n_layer, false));
  }
}

}  // namespace
}  // namespace moetier
