// How fast attention is, in the shape of Qwen3-30B-A3B (32 heads, 4 KV heads of 128): decode (one row) by context, and
// prefill (512 rows) by the positions already held; for every KV type, unit and thread count. bytes/s counts every
// key and value once per call, MAC/s both products over what is visible.
//
//   bench_attention --benchmark_filter=decode/f16
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "compute/compute.h"
#include "compute/cpu/cpu_compute.h"
#include "compute/cpu/isa.h"
#include "quant/tensor_type.h"

namespace moetier {
namespace {

constexpr int64_t kHeads = 32, kKvHeads = 4, kWidth = 128;

struct Setup {
  std::unique_ptr<Compute> compute;
  std::vector<std::unique_ptr<Buffer>> buffers;
  int64_t rows, depth;
  Tensor q, out;
  BatchRows batch;
  KvLayer layer;

  /// `n` rows at positions depth .. depth + n - 1 of one sequence whose keys and values are all there.
  Setup(TensorType type, Isa isa, int threads, int64_t n, int64_t held)
      : compute(make_cpu_compute({threads, isa})), rows(n), depth(held) {
    const int64_t pages = (depth + rows + kPagePositions - 1) / kPagePositions;
    q = make(TensorType::f32, {kWidth, kHeads, rows, 1});
    out = make(TensorType::f32, {kWidth, kHeads, rows, 1});
    batch.positions = make(TensorType::i32, {rows, 1, 1, 1});
    batch.sequences = make(TensorType::i32, {rows, 1, 1, 1});
    batch.tokens = batch.sequences;
    batch.page_table = make(TensorType::i32, {pages, 1, 1, 1});
    layer.k = make(type, {kWidth, kPagePositions, kKvHeads, pages});
    layer.v = make(type, {kWidth, kPagePositions, kKvHeads, pages});
    noise(q);
    for (int64_t i = 0; i < pages; ++i) ints(batch.page_table)[i] = static_cast<int32_t>(i);
    store(pages);
    for (int64_t i = 0; i < rows; ++i) ints(batch.positions)[i] = static_cast<int32_t>(depth + i);
  }

  Tensor make(TensorType type, const std::array<int64_t, 4>& shape) {
    Tensor tensor = Tensor::packed(nullptr, 0, type, shape);
    buffers.push_back(compute->allocate(tensor.bytes()));
    tensor.buffer = buffers.back().get();
    return tensor;
  }
  static int32_t* ints(const Tensor& t) { return reinterpret_cast<int32_t*>(t.buffer->host()); }
  static void noise(const Tensor& t) {
    std::mt19937 random(7);
    auto* x = reinterpret_cast<float*>(t.buffer->host());
    for (size_t i = 0; i < t.bytes() / sizeof(float); ++i) x[i] = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
  }
  /// The same 64 positions in every page.
  void store(int64_t pages) {
    const Tensor k = make(TensorType::f32, {kWidth, kKvHeads, kPagePositions, 1});
    noise(k);
    BatchRows page = batch;
    page.positions = make(TensorType::i32, {kPagePositions, 1, 1, 1});
    page.sequences = make(TensorType::i32, {kPagePositions, 1, 1, 1});
    for (int64_t i = 0; i < pages; ++i) {
      for (int64_t j = 0; j < kPagePositions; ++j) {
        ints(page.positions)[j] = static_cast<int32_t>(i * kPagePositions + j);
      }
      compute->store_kv(k, k, page, layer);
    }
  }
};

void attention(benchmark::State& state, TensorType type, Isa isa, int threads, int64_t rows, int64_t depth) {
  Setup setup(type, isa, threads, rows, depth);
  for (auto _ : state) setup.compute->attention(setup.q, setup.batch, setup.layer, {0.0883883f, 0}, setup.out);
  const int64_t visible = rows * depth + rows * (rows + 1) / 2;
  const auto bytes = static_cast<int64_t>(row_bytes(type, kWidth)) * 2 * kKvHeads * (depth + rows);
  state.SetBytesProcessed(state.iterations() * bytes);
  state.counters["MAC/s"] = benchmark::Counter(static_cast<double>(state.iterations() * visible * kHeads * 2 * kWidth),
                                               benchmark::Counter::kIsRate);
}

void register_all() {
  std::vector<int> threads{1};
  if (available_cpus() > 1) threads.push_back(available_cpus());
  const auto add = [](const std::string& name, auto... args) {
    benchmark::RegisterBenchmark(name.c_str(), attention, args...)->UseRealTime()->Unit(benchmark::kMicrosecond);
  };
  for (const auto& [isa, unit] : {std::pair{Isa::avx512, "avx512"}, {Isa::avx2, "avx2"}, {Isa::portable, "portable"}}) {
    if (!isa_available(isa)) continue;
    for (const TensorType type : {TensorType::f16, TensorType::f32}) {
      for (const int t : threads) {
        for (const int64_t context : {512, 4096, 16384, 32768}) {
          add(fmt::format("decode/{}/{}/{}/{}", type_name(type), unit, t, context), type, isa, t, int64_t{1},
              context - 1);
        }
        for (const int64_t depth : {0, 4096, 16384}) {
          add(fmt::format("prefill/{}/{}/{}/{}", type_name(type), unit, t, depth), type, isa, t, int64_t{512}, depth);
        }
      }
    }
  }
}

}  // namespace
}  // namespace moetier

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  moetier::register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
