#include "engine/machine_limits.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>

#include "base/error.h"
#include "base/random.h"
#include "base/thread_pool.h"
#include "base/units.h"
#include "compute/cpu/isa.h"
#include "compute/cpu/peak.h"
#include "experts/arena.h"
#include "io/drive_probe.h"
#include "io/memory.h"
#include "io/small_files.h"

namespace moetier {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Memory to read: four times the last cache, if there is room.
class Block {
 public:
  explicit Block(ThreadPool& pool) : arena_(wanted()) {
    pool.run(static_cast<int64_t>(arena_.bytes() / kChunk), [&](int64_t i, int) {
      std::memset(arena_.data() + static_cast<uint64_t>(i) * kChunk, static_cast<int>(i % 251), kChunk);
    });
  }
  uint64_t bytes() const { return arena_.bytes(); }

  /// Bytes per second of one pass.
  double pass(ThreadPool& pool, const PeakOps& ops) {
    const auto start = Clock::now();
    pool.run(static_cast<int64_t>(bytes() / kChunk), [&](int64_t i, int) {
      volatile uint64_t sum = ops.read(arena_.data() + static_cast<uint64_t>(i) * kChunk, kChunk);
      static_cast<void>(sum);
    });
    return static_cast<double>(bytes()) / seconds_since(start);
  }
  double best(ThreadPool& pool, const PeakOps& ops) {
    double rate = 0;
    const auto start = Clock::now();
    for (int i = 0; i < 3 || seconds_since(start) < 0.25; ++i) rate = std::max(rate, pass(pool, ops));
    return rate;
  }

 private:
  static constexpr uint64_t kChunk = uint64_t{256} << 10;
  static uint64_t wanted() {
    const long cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
    const uint64_t bytes =
        std::clamp<uint64_t>(4 * static_cast<uint64_t>(std::max(cache, 0L)), uint64_t{256} << 20, uint64_t{1} << 30);
    const uint64_t room = memory_state().available.value_or(bytes) / 4;
    return std::max(std::min(bytes, room) / kChunk, uint64_t{4}) * kChunk;
  }
  Arena arena_;
};

/// Rounds per second of all threads together, each doing the same for a quarter of a second or so.
template <typename Loop>
double rounds_per_second(ThreadPool& pool, Loop loop) {
  int64_t n = 1000;
  double seconds = 0;
  // First to know how many it takes.
  for (;; n *= 4) {
    const auto start = Clock::now();
    loop(n);
    seconds = seconds_since(start);
    if (seconds > 0.02) break;
  }
  const auto rounds = static_cast<int64_t>(static_cast<double>(n) / seconds * 0.1);
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    const auto start = Clock::now();
    pool.run(pool.size(), [&](int64_t, int) { loop(rounds); });
    best = std::max(best, static_cast<double>(rounds) * pool.size() / seconds_since(start));
  }
  return best;
}

MachineLimits::AtThreads at_threads(int threads, Isa isa, MachineLimits& limits) {
  const PeakOps& ops = peak_ops(isa);
  ThreadPool pool(threads);
  Block block(pool);
  limits.block_bytes = block.bytes();
  MachineLimits::AtThreads out;
  out.threads = threads;
  out.read = block.best(pool, ops);
  out.int8 = rounds_per_second(pool, ops.int8) * static_cast<double>(ops.int8_macs);
  out.f32 = rounds_per_second(pool, ops.f32) * static_cast<double>(ops.f32_macs);
  if (isa == Isa::avx512 && has_amx_int8()) {
    out.tiles = rounds_per_second(pool, [](int64_t n) { peak_tiles(n); }) * static_cast<double>(kTileMacs);
  }
  return out;
}

/// A file of random bytes to read from, removed with it.
class DriveFile {
 public:
  explicit DriveFile(const std::string& directory) : path_((fs::path(directory) / "moetier-drive-XXXXXX").string()) {
    const int fd = ::mkstemp(path_.data());
    if (fd < 0) fail("cannot make a file to time the drive with in {}: {}", directory, std::strerror(errno));
    constexpr size_t kPiece = size_t{1} << 20;
    constexpr int kPieces = 512;
    std::vector<uint64_t> piece(kPiece / sizeof(uint64_t));
    Xoshiro256 random(1);
    bool whole = true;
    for (int i = 0; i < kPieces && whole; ++i) {
      for (uint64_t& word : piece) word = random.next_starstar();
      whole = ::write(fd, piece.data(), kPiece) == static_cast<ssize_t>(kPiece);
    }
    whole = whole && ::fsync(fd) == 0;
    const int reason = errno;
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
    if (whole) return;
    ::unlink(path_.c_str());
    fail("cannot write {}: {}; give a model with -m, or another directory with --work", path_, std::strerror(reason));
  }
  ~DriveFile() { ::unlink(path_.c_str()); }
  DriveFile(const DriveFile&) = delete;
  DriveFile& operator=(const DriveFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Release {
  void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{kReadBlock}); }
};

/// Bytes per second of long reads one after another in the file, as a resident load makes them; 0 if one failed.
double sequential_rate(const ReadFile& file) {
  constexpr uint64_t kPiece = uint64_t{4} << 20;
  constexpr int kDepth = 16;
  constexpr double kSeconds = 2;
  const auto engine = make_read_engine({.depth = kDepth}, std::span(&file, 1));
  const std::unique_ptr<std::byte, Release> memory(
      static_cast<std::byte*>(::operator new (kPiece* kDepth, std::align_val_t{kReadBlock})));
  std::memset(memory.get(), 0, kPiece * kDepth);
  const uint64_t pieces = file.bytes() / kPiece;
  std::vector<ReadResult> results(kDepth);
  uint64_t begun = 0, ended = 0;
  const auto submit = [&](uint64_t slot) {
    const ReadRequest request{0, begun++ * kPiece, memory.get() + slot * kPiece, kPiece, kPiece, slot};
    engine->submit({&request, 1});
  };
  const auto start = Clock::now();
  for (uint64_t slot = 0; slot < kDepth && begun < pieces; ++slot) submit(slot);
  while (ended < begun) {
    const size_t n = engine->wait(results);
    for (size_t i = 0; i < n; ++i) {
      if (results[i].error != 0) {
        engine->cancel();
        return 0;
      }
      ++ended;
      if (begun < pieces && seconds_since(start) < kSeconds) submit(results[i].tag);
    }
  }
  return static_cast<double>(ended * kPiece) / std::max(seconds_since(start), 1e-9);
}

MachineLimits::Drive measure_drive(const std::string& path, uint64_t request_bytes) {
  const ReadFile file(path, true);
  ProbeOptions options;
  options.request_bytes = request_bytes;
  options.ignore_cache = true;
  options.seconds = 2;
  options.most_bytes = uint64_t{1} << 30;
  const DriveRate rate = probe_drive(file, options);
  MachineLimits::Drive drive;
  drive.path = path;
  drive.engine = rate.engine;
  drive.why_unknown = rate.why_unknown;
  drive.random = rate.best_bytes_per_second;
  drive.request_bytes = rate.request_bytes;
  drive.depth = rate.depth;
  if (rate.why_unknown.empty()) drive.sequential = sequential_rate(file);
  return drive;
}

/// "always [madvise] never": the word in brackets.
std::string chosen(const char* name) {
  const std::string line = first_line(fs::path("/sys/kernel/mm/transparent_hugepage") / name);
  const size_t begin = line.find('['), end = line.find(']');
  return begin == std::string::npos || end == std::string::npos ? "" : line.substr(begin + 1, end - begin - 1);
}

MachineLimits::HugePages measure_huge_pages() {
  MachineLimits::HugePages pages{chosen("enabled"), chosen("defrag"), 0};
  constexpr uint64_t kBytes = uint64_t{64} << 20;
  const auto huge = [] { return number_after("/proc/self/smaps_rollup", "AnonHugePages:").value_or(0) * 1024; };
  const uint64_t before = huge();
  Arena arena(kBytes);
  std::memset(arena.data(), 1, kBytes);
  const uint64_t after = huge();
  pages.granted_share =
      std::min(1.0, static_cast<double>(after - std::min(before, after)) / static_cast<double>(kBytes));
  return pages;
}

}  // namespace

double read_bandwidth(int threads, Isa isa) {
  ThreadPool pool(threads);
  Block block(pool);
  return block.best(pool, peak_ops(resolve_isa(isa)));
}

MachineLimits measure_machine(const LimitsOptions& options) {
  MachineLimits limits;
  limits.isa = resolve_isa(options.isa);
  limits.int8_instruction = peak_ops(limits.isa).int8_instruction;
  for (int n = 1; n < options.most_threads; n *= 2) limits.threads.push_back(at_threads(n, limits.isa, limits));
  limits.threads.push_back(at_threads(options.most_threads, limits.isa, limits));
  limits.huge_pages = measure_huge_pages();
  if (options.file.empty()) {
    const DriveFile file(options.work);
    limits.drive = measure_drive(file.path(), options.request_bytes);
  } else {
    limits.drive = measure_drive(options.file, options.request_bytes);
  }
  return limits;
}

Json limits_json(const MachineLimits& limits) {
  Json threads = Json::array();
  for (const MachineLimits::AtThreads& t : limits.threads) {
    threads.push_back({{"threads", t.threads},
                       {"read_bytes_per_second", t.read},
                       {"int8_macs_per_second", t.int8},
                       {"int8_tile_macs_per_second", t.tiles > 0 ? Json(t.tiles) : Json(nullptr)},
                       {"f32_macs_per_second", t.f32}});
  }
  const MachineLimits::Drive& d = limits.drive;
  const bool known = d.why_unknown.empty();
  return {{"isa", isa_name(limits.isa)},
          {"int8_instruction", limits.int8_instruction},
          {"block_bytes", limits.block_bytes},
          {"threads", threads},
          {"drive",
           {{"path", d.path},
            {"engine", d.engine},
            {"sequential_bytes_per_second", known ? Json(d.sequential) : Json(nullptr)},
            {"random_bytes_per_second", known ? Json(d.random) : Json(nullptr)},
            {"request_bytes", d.request_bytes},
            {"depth", d.depth},
            {"why_unknown", known ? Json(nullptr) : Json(d.why_unknown)}}},
          {"huge_pages",
           {{"enabled", limits.huge_pages.enabled},
            {"defrag", limits.huge_pages.defrag},
            {"granted_share", limits.huge_pages.granted_share}}}};
}

std::string limits_text(const MachineLimits& limits) {
  std::string text = fmt::format("unit {} (int8: {})\n", isa_name(limits.isa), limits.int8_instruction);
  for (const MachineLimits::AtThreads& t : limits.threads) {
    text += fmt::format("{:>3} thread{} read {:>7.2f} GB/s   int8 {:>8.1f} GMAC/s   f32 {:>7.1f} GMAC/s", t.threads,
                        t.threads == 1 ? ": " : "s:", t.read / 1e9, t.int8 / 1e9, t.f32 / 1e9);
    if (t.tiles > 0) text += fmt::format("   int8 tiles {:>8.1f} GMAC/s", t.tiles / 1e9);
    text += "\n";
  }
  const MachineLimits::Drive& d = limits.drive;
  if (d.why_unknown.empty()) {
    text += fmt::format("drive: {:.2f} GB/s in order, {:.2f} GB/s at random places ({} a read, {} at once, {})\n",
                        d.sequential / 1e9, d.random / 1e9, format_bytes(d.request_bytes), d.depth, d.engine);
  } else {
    text += fmt::format("drive: unknown: {}\n", d.why_unknown);
  }
  const MachineLimits::HugePages& h = limits.huge_pages;
  text += fmt::format("huge pages: {} (defrag {}), {:.0f} % of a block that asked for them\n",
                      h.enabled.empty() ? "unknown" : h.enabled, h.defrag.empty() ? "unknown" : h.defrag,
                      100 * h.granted_share);
  return text;
}

}  // namespace moetier
