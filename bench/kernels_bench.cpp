// How fast weights are multiplied: decode (one row of activations, weights from memory: bytes per second) and prefill
// (many rows: multiply-adds per second), for every type, unit and thread count; and cache1, cache4, cache32 (as many
// rows of activations, weights in the second-level cache, one thread), for each table of functions, whichever this
// machine would choose. of_limit is the fraction of what this machine can do with that unit and so many threads,
// measured in the same run: of the read bandwidth for one row, of the unit's integer (or float) rate for many.
//
//   bench_kernels --benchmark_filter=decode/q4_k
//
// MOETIER_BENCH_MB sets the size of the weights (default 256): choose several times the last-level cache.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "compute/compute.h"
#include "compute/cpu/activation_codes.h"
#include "compute/cpu/cpu_compute.h"
#include "compute/cpu/dot.h"
#include "compute/cpu/isa.h"
#include "compute/cpu/peak.h"
#include "quant/tensor_type.h"

namespace moetier {
namespace {

constexpr int64_t kColumns = 2048;
constexpr int64_t kWidth = 768;

int64_t weight_bytes() {
  const char* megabytes = std::getenv("MOETIER_BENCH_MB");
  const long value = megabytes == nullptr ? 256 : std::strtol(megabytes, nullptr, 10);
  return std::clamp<int64_t>(value, 1, 65536) << 20;
}

/// Random bytes, with few enough different ones that making them takes no time. Every second byte is 0x20 to 0x2f: as
/// the upper byte of an f16, bf16 or f32 that is a number of ordinary size.
void fill(std::byte* data, size_t bytes) {
  std::mt19937 random(1);
  std::vector<std::byte> pattern(1 << 20);
  for (size_t i = 0; i < pattern.size(); ++i)
    pattern[i] = static_cast<std::byte>(i % 2 == 1 ? (random() & 0x0f) | 0x20 : random());
  for (size_t i = 0; i < bytes; i += pattern.size())
    std::memcpy(data + i, pattern.data(), std::min(pattern.size(), bytes - i));
}

/// What all benchmarks multiply; made once, in huge pages where they can be had, as the engine keeps weights.
std::span<std::byte> weights() {
  static const std::span<std::byte> bytes = [] {
    static const auto compute = make_cpu_compute({1, Isa::automatic});
    static const auto buffer = compute->allocate(static_cast<size_t>(weight_bytes()));
    fill(buffer->host(), buffer->bytes());
    return std::span(buffer->host(), buffer->bytes());
  }();
  return bytes;
}

struct Setup {
  std::unique_ptr<Compute> compute;
  std::unique_ptr<Buffer> weight_buffer, x_buffer, out_buffer;

  Setup(Isa isa, int threads) : compute(make_cpu_compute({threads, isa})) {
    weight_buffer = compute->wrap(weights().data(), weights().size());
  }

  Tensor activations(int64_t columns, int64_t rows) {
    x_buffer = compute->allocate(static_cast<size_t>(columns * rows) * sizeof(float));
    auto* x = reinterpret_cast<float*>(x_buffer->host());
    std::mt19937 random(2);
    for (int64_t i = 0; i < columns * rows; ++i) x[i] = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
    return Tensor::packed(x_buffer.get(), 0, TensorType::f32, {columns, rows, 1, 1});
  }
  Tensor output(int64_t columns, int64_t rows) {
    out_buffer = compute->allocate(static_cast<size_t>(columns * rows) * sizeof(float));
    return Tensor::packed(out_buffer.get(), 0, TensorType::f32, {columns, rows, 1, 1});
  }
};

/// What a unit can do at most with so many threads, measured here once: a kernel is told as a fraction of it.
struct Limit {
  double read = 0;           ///< bytes per second
  double int8 = 0, f32 = 0;  ///< multiply-adds per second
};

template <typename Loop>
double best_rate(ThreadPool& pool, double work, Loop loop) {
  double best = 0;
  for (int i = 0; i < 4; ++i) {
    const auto start = std::chrono::steady_clock::now();
    loop(pool);
    best = std::max(best, work / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

const Limit& limit(Isa isa, int threads) {
  static std::map<std::pair<Isa, int>, Limit> known;
  Limit& out = known[{isa, threads}];
  if (out.read > 0) return out;
  const PeakOps& ops = peak_ops(isa);
  ThreadPool pool(threads);
  constexpr int64_t kChunk = 256 * 1024, kRounds = 5'000'000;
  const auto address = reinterpret_cast<uintptr_t>(weights().data());
  const std::byte* const data = weights().data() + (64 - address % 64) % 64;
  const int64_t chunks = weight_bytes() / kChunk - 1;
  out.read = best_rate(pool, static_cast<double>(chunks * kChunk), [&](ThreadPool& p) {
    p.run(chunks, [&](int64_t i, int) { benchmark::DoNotOptimize(ops.read(data + i * kChunk, kChunk)); });
  });
  const double rounds = static_cast<double>(kRounds) * threads;
  const bool tiles = isa == Isa::avx512 && has_amx_int8();
  out.int8 = best_rate(pool, rounds * static_cast<double>(tiles ? kTileMacs / 64 : ops.int8_macs), [&](ThreadPool& p) {
    p.run(threads, [&](int64_t, int) { tiles ? static_cast<void>(peak_tiles(kRounds / 64)) : ops.int8(kRounds); });
  });
  out.f32 = best_rate(pool, rounds * static_cast<double>(ops.f32_macs),
                      [&](ThreadPool& p) { p.run(threads, [&](int64_t, int) { ops.f32(kRounds); }); });
  return out;
}

/// The counter of_limit: of `work` a second, as a fraction of what the machine can do.
void tell_share(benchmark::State& state, double work, double of) {
  state.counters["of_limit"] =
      benchmark::Counter(work * static_cast<double>(state.iterations()) / of, benchmark::Counter::kIsRate);
}

/// One matmul of [kColumns, rows] weights with n rows of activations.
void matmul(benchmark::State& state, TensorType type, Isa isa, int threads, int64_t n) {
  Setup setup(isa, threads);
  const size_t row = row_bytes(type, kColumns);
  const int64_t all_rows = weight_bytes() / static_cast<int64_t>(row);
  const int64_t rows = n == 1 ? all_rows : std::min<int64_t>(all_rows, 1024);
  const Tensor weight = Tensor::packed(setup.weight_buffer.get(), 0, type, {kColumns, rows, 1, 1});
  const Tensor x = setup.activations(kColumns, n);
  const MatmulTerm term{weight, setup.output(rows, n)};
  for (auto _ : state) setup.compute->matmul(x, {&term, 1});
  const Limit& most = limit(isa, threads);
  if (n == 1) {
    state.SetBytesProcessed(state.iterations() * rows * static_cast<int64_t>(row));
    tell_share(state, static_cast<double>(rows) * static_cast<double>(row), most.read);
  } else {
    const bool floats = activation_kind(type) == ActivationKind::floats;
    tell_share(state, static_cast<double>(rows * kColumns * n), floats ? most.f32 : most.int8);
  }
  state.counters["MAC/s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * rows * kColumns * n), benchmark::Counter::kIsRate);
}

/// A layer of experts (kColumns by kWidth) of one token, 8 picks, a different layer each time.
void experts(benchmark::State& state, TensorType type, Isa isa, int threads) {
  Setup setup(isa, threads);
  constexpr int64_t kTopK = 8;
  const ExpertFfn ffn{kColumns, kWidth, type, type, type, false, Activation::silu};
  const size_t up_bytes = row_bytes(type, kColumns) * kWidth, down_bytes = row_bytes(type, kWidth) * kColumns;
  const size_t entry = 2 * up_bytes + down_bytes, layer = kTopK * entry;
  const size_t layers = weights().size() / layer;
  if (layers == 0) return state.SkipWithError("MOETIER_BENCH_MB is less than one layer");
  const Tensor x = setup.activations(kColumns, 1), out = setup.output(kColumns, 1);
  const auto buffer = setup.compute->allocate(4096);
  const Tensor ids = Tensor::packed(buffer.get(), 0, TensorType::i32, {kTopK, 1, 1, 1});
  const Tensor factors = Tensor::packed(buffer.get(), 2048, TensorType::f32, {kTopK, 1, 1, 1});
  std::vector<PickPlace> picks;
  for (int32_t k = 0; k < kTopK; ++k) {
    picks.push_back({0, k});
    reinterpret_cast<int32_t*>(buffer->host())[k] = k;
    reinterpret_cast<float*>(buffer->host() + 2048)[k] = 0.125f;
  }
  std::vector<ExpertGroup> groups(kTopK);
  size_t at = 0;
  for (auto _ : state) {
    for (size_t k = 0; k < groups.size(); ++k) {
      const std::byte* data = weights().data() + at * layer + k * entry;
      groups[k] = {static_cast<int32_t>(k), {data, data + up_bytes, data + 2 * up_bytes}, {picks.data() + k, 1}};
    }
    setup.compute->experts_begin(ffn, x, factors);
    setup.compute->experts_run(groups);
    setup.compute->experts_finish(ids, out);
    at = (at + 1) % layers;
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(layer));
  tell_share(state, static_cast<double>(layer), limit(isa, threads).read);
}

/// One table's dots of weights that stay in the cache, on one thread.
void in_cache(benchmark::State& state, TensorType type, const DotTable* dots, int n) {
  const size_t row = row_bytes(type, kColumns);
  const auto rows = static_cast<int64_t>(size_t{128 * 1024} / row / 16 * 16);
  const ActivationKind kind = activation_kind(type);
  const size_t x_bytes = activation_row_bytes(kind, kColumns);
  std::mt19937 random(2);
  std::vector<float> floats(static_cast<size_t>(kColumns)), sums(static_cast<size_t>(rows * n));
  std::vector<std::byte> codes(x_bytes * static_cast<size_t>(n));
  std::vector<const std::byte*> x;
  std::vector<float*> out;
  for (int t = 0; t < n; ++t) {
    for (float& f : floats) f = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
    std::byte* to = codes.data() + x_bytes * static_cast<size_t>(t);
    if (kind == ActivationKind::floats) {
      std::memcpy(to, floats.data(), x_bytes);
    } else {
      encode_activations(activation_encoders(Isa::automatic), kind, floats.data(), to, kColumns);
    }
    x.push_back(to);
    out.push_back(sums.data() + t * rows);
  }
  const WeightMatrix w{weights().data(), row, kColumns, rows};
  for (auto _ : state) dots->of(type)(w, 0, rows, x.data(), out.data(), n);
  state.SetBytesProcessed(state.iterations() * rows * static_cast<int64_t>(row));
  state.counters["MAC/s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * rows * kColumns * n), benchmark::Counter::kIsRate);
}

/// Every table that can be run here.
std::vector<std::pair<std::string, const DotTable*>> tables() {
  std::vector<std::pair<std::string, const DotTable*>> out{{"portable", &portable_dots()}};
  if (isa_available(Isa::avx2)) out.emplace_back("avx2", avx2_dots());
  if (has_avx_vnni()) out.emplace_back("avx2-vnni", avxvnni_dots());
  if (isa_available(Isa::avx512)) out.emplace_back("avx512", avx512_dots());
  if (has_amx_int8()) out.emplace_back("amx", amx_dots());
  if (isa_available(Isa::neon)) out.emplace_back("neon", neon_dots());
  return out;
}

/// The bound: reading all bytes and adding them up.
void read(benchmark::State& state, int threads) {
  ThreadPool pool(threads);
  const std::byte* bytes = weights().data();
  constexpr int64_t kChunk = 64 * 1024;
  std::vector<uint64_t> sums(static_cast<size_t>(threads) * 8);
  for (auto _ : state) {
    pool.run(weight_bytes() / kChunk, [&](int64_t chunk, int thread) {
      const std::byte* data = bytes + chunk * kChunk;
      uint64_t sum[8] = {};
      for (int64_t i = 0; i < kChunk; i += 64) {
        uint64_t words[8];
        std::memcpy(words, data + i, sizeof(words));
        for (int k = 0; k < 8; ++k) sum[k] += words[k];
      }
      for (const uint64_t s : sum) sums[static_cast<size_t>(thread) * 8] += s;
    });
  }
  benchmark::DoNotOptimize(sums.data());
  state.SetBytesProcessed(state.iterations() * weight_bytes() / kChunk * kChunk);
}

void barrier(benchmark::State& state, int threads) {
  ThreadPool pool(threads);
  for (auto _ : state) pool.run(threads, [](int64_t, int) {});
}

template <typename... Args>
void add(const std::string& name, Args... args) {
  benchmark::RegisterBenchmark(name.c_str(), args...)->UseRealTime()->Unit(benchmark::kMicrosecond);
}

void register_all() {
  std::vector<int> threads{1};
  if (available_cpus() > 1) threads.push_back(available_cpus());
  for (const int t : threads) {
    add(fmt::format("barrier/{}", t), barrier, t);
    add(fmt::format("read/{}", t), read, t);
  }
  for (const auto& [name, dots] : tables()) {
    for (const TypeInfo& info : known_types()) {
      if (!info.computable) continue;
      for (const int n : {1, 4, 32}) {
        add(fmt::format("cache{}/{}/{}", n, info.name, name), in_cache, info.type, dots, n);
      }
    }
  }
  for (const Isa isa : available_isas()) {
    const std::string_view unit = isa_name(isa);
    for (const TypeInfo& info : known_types()) {
      if (!info.computable) continue;
      for (const int t : threads) {
        add(fmt::format("decode/{}/{}/{}", info.name, unit, t), matmul, info.type, isa, t, int64_t{1});
        add(fmt::format("experts/{}/{}/{}", info.name, unit, t), experts, info.type, isa, t);
        for (const int64_t n : {4, 256}) {
          add(fmt::format("prefill{}/{}/{}/{}", n, info.name, unit, t), matmul, info.type, isa, t, n);
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
