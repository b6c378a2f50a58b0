#include "io/drive_probe.h"

#include <fmt/core.h>
#include <sys/utsname.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>

#include "base/log.h"
#include "base/random.h"
#include "base/units.h"
#include "io/block_device.h"
#include "io/drive_cache.h"

namespace moetier {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMostRequest = uint64_t{4} << 20;
constexpr uint64_t kLeastRange = uint64_t{16} << 20;
constexpr int kUsualDepth = 16, kUsualLanes = 4;  // where nothing can be measured
constexpr int kMostProbedDepth = 32, kMostProbedLanes = 8;
constexpr double kGoodEnough = 0.95;  // of the best rate

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Reads at random places for as long as it is told.
class Prober {
 public:
  Prober(ReadEngine& engine, uint64_t offset, uint64_t bytes, uint64_t request)
      : engine_(engine),
        request_(request),
        offset_(offset),
        places_((bytes - request) / kReadBlock + 1),
        random_(static_cast<uint64_t>(Clock::now().time_since_epoch().count())),
        memory_(static_cast<std::byte*>(::operator new (kBuffers* request, std::align_val_t{kReadBlock}))) {
    std::memset(memory_.get(), 0, kBuffers * request);  // no page fault shall be timed
    const std::span<std::byte> region(memory_.get(), kBuffers * request);
    engine_.register_memory({&region, 1});
  }
  ~Prober() {
    engine_.cancel();
    engine_.unregister_memory();
  }
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  /// Bytes per second with `depth` reads in flight, for `seconds` or `bytes`, at least one read per depth; 0 if a read
  /// failed, with error() set.
  double measure(int depth, double seconds, uint64_t bytes) {
    const auto slots = static_cast<size_t>(depth);
    const uint64_t most = std::max(bytes / request_, static_cast<uint64_t>(depth));
    std::vector<ReadRequest> batch(slots);
    std::vector<ReadResult> results(slots);
    const auto start = Clock::now();
    uint64_t begun = 0, ended = 0;
    size_t come = slots;  // the first round takes every slot
    for (size_t i = 0; i < slots; ++i) results[i] = {.tag = i};
    while (true) {
      size_t n = 0;
      for (size_t i = 0; i < come && begun < most; ++i) {
        if (begun >= slots && seconds_since(start) >= seconds) break;
        batch[n++] = next(results[i].tag);
        ++begun;
      }
      engine_.submit(std::span(batch).first(n));
      if (ended == begun) break;
      come = engine_.wait(results);
      for (size_t i = 0; i < come; ++i) {
        if (results[i].error != 0) error_ = results[i].error;
      }
      ended += come;
      read_bytes_ += come * request_;
      if (error_ != 0) return 0;
    }
    return static_cast<double>(ended * request_) / std::max(seconds_since(start), 1e-9);
  }
  int error() const { return error_; }
  uint64_t read_bytes() const { return read_bytes_; }  ///< so far

 private:
  /// Deep reads share buffers: what they bring is not looked at.
  static constexpr uint64_t kBuffers = kMostProbedLanes;

  ReadRequest next(uint64_t slot) {
    const uint64_t at = offset_ + random_.next_starstar() % places_ * kReadBlock;
    return {0, at, memory_.get() + slot % kBuffers * request_, request_, request_, slot};
  }

  struct Release {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{kReadBlock}); }
  };

  ReadEngine& engine_;
  const uint64_t request_, offset_, places_;
  Xoshiro256 random_;
  const std::unique_ptr<std::byte, Release> memory_;
  int error_ = 0;
  uint64_t read_bytes_ = 0;
};

void measure_all(Prober& prober, int deepest, const ProbeOptions& options, DriveRate& rate) {
  const auto start = Clock::now();
  const int steps = std::bit_width(static_cast<unsigned>(deepest));
  const int shares = steps * (steps + 1) / 2;  // of the bytes: more for the deeper, which begin and end slowly
  double best = 0;
  for (int step = 0; step < steps; ++step) {
    const int depth = 1 << step;
    const uint64_t once = static_cast<uint64_t>(depth) * rate.request_bytes;
    const double left = options.seconds - seconds_since(start);
    const double least = best > 0 ? static_cast<double>(once) / best : 0;
    if (step > 0 && (least > left || prober.read_bytes() + once > options.most_bytes)) break;
    const uint64_t bytes = options.most_bytes * static_cast<uint64_t>(step + 1) / static_cast<uint64_t>(shares);
    const double reached = prober.measure(depth, std::max(left, 0.0) / (steps - step), bytes);
    if (prober.error() != 0) return;
    rate.steps.push_back({depth, reached});
    best = std::max(best, reached);
  }
  for (const DriveRate::Step& step : rate.steps) {
    if (step.bytes_per_second < best * kGoodEnough) continue;
    rate.depth = step.depth;
    rate.bytes_per_second = step.bytes_per_second;
    break;
  }
  rate.best_bytes_per_second = best;
}

std::string kernel_release() {
  utsname names{};
  return uname(&names) == 0 ? names.release : "";
}

}  // namespace

DriveRate probe_drive(const ReadFile& file, const ProbeOptions& options) {
  const uint64_t wanted = std::clamp<uint64_t>(options.request_bytes, 1, kMostRequest);
  const uint64_t begin = std::min(options.offset, file.bytes()) / kReadBlock * kReadBlock;
  const uint64_t range = std::min(options.bytes, file.bytes() - begin) / kReadBlock * kReadBlock;
  DriveRate rate;
  rate.request_bytes = (wanted + kReadBlock - 1) / kReadBlock * kReadBlock;
  const auto engine = make_read_engine({.kind = options.kind, .depth = kMostProbedDepth, .lanes = kMostProbedLanes},
                                       std::span(&file, 1));
  rate.engine = engine->name();
  const bool threads = rate.engine == "threads";
  rate.depth = threads ? kUsualLanes : kUsualDepth;
  if (!file.direct()) {
    rate.why_unknown =
        file.why_buffered().empty() ? file.path() + " is read through the page cache" : file.why_buffered();
    return rate;
  }
  const std::string id = block_device(file.path()).id;
  const DriveCache cache(id.empty()                        ? std::filesystem::path()
                         : options.cache_directory.empty() ? default_cache_directory()
                                                           : std::filesystem::path(options.cache_directory));
  const std::string key =
      fmt::format("{} {} {} {}", id, kernel_release(), rate.engine, std::bit_ceil(rate.request_bytes));
  if (!options.ignore_cache) {
    if (auto kept = cache.find(key)) {
      kept->engine = rate.engine;
      kept->from_cache = true;
      return *kept;
    }
  }
  if (range < std::max(kLeastRange, rate.request_bytes)) {
    rate.why_unknown = fmt::format("{} are too little to time a drive with", format_bytes(range));
    return rate;
  }
  Prober prober(*engine, begin, range, rate.request_bytes);
  measure_all(prober, threads ? kMostProbedLanes : kMostProbedDepth, options, rate);
  if (prober.error() != 0) {
    rate.steps.clear();
    rate.why_unknown = fmt::format("a read of {} failed: {}", file.path(), std::strerror(prober.error()));
    return rate;
  }
  if (!cache.keep(key, rate)) log::verbose("what the drive was measured at could not be kept for the next run");
  return rate;
}

std::string describe(const DriveRate& rate) {
  if (!rate.why_unknown.empty()) return "unknown: " + rate.why_unknown;
  constexpr double kMiB = 1 << 20;
  std::string steps;
  for (const DriveRate::Step& step : rate.steps) {
    steps += fmt::format("{}{}: {:.0f}", steps.empty() ? "" : ", ", step.depth, step.bytes_per_second / kMiB);
  }
  return fmt::format("{:.0f} MiB/s with {} reads of {} at once by {} ({}{})", rate.bytes_per_second / kMiB, rate.depth,
                     format_bytes(rate.request_bytes), rate.engine, steps, rate.from_cache ? "; measured before" : "");
}

}  // namespace moetier
