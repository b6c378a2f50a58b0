#include "experts/random_probe.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/stopwatch.h"
#include "base/units.h"
#include "io/advice.h"
#include "io/page_cache.h"

namespace moetier {
namespace {

constexpr uint64_t kWideReadAhead = uint64_t{512} << 10;
constexpr int kLeastSlices = 4;       // each way
constexpr int kMostSlices = 12;       // each way
constexpr int kMostLooks = 400;       // for cold slices
constexpr double kBudget = 0.15;      // seconds
constexpr double kClear = 1.1;        // times as long is no accident
constexpr double kMuchBrought = 1.5;  // times what is wanted

/// A slice, and the stack of its layer's slices around it.
struct Sample {
  std::span<const std::byte> slice, stack;
};

/// Slices all over the model, far from one another.
std::vector<Sample> samples(const GgufFile& file, const EntryMap& map) {
  std::vector<Sample> all;
  for (const LayerEntries& layer : map.layers) {
    for (const SliceSource& source : layer.slices) {
      const std::span<const std::byte> shard = file.shard_bytes(static_cast<size_t>(source.shard));
      const auto stack = shard.subspan(source.offset, source.slice_bytes * static_cast<uint64_t>(layer.n_expert));
      for (int expert = 0; expert < layer.n_expert; ++expert) {
        all.push_back({stack.subspan(source.slice_bytes * static_cast<uint64_t>(expert), source.slice_bytes), stack});
      }
    }
  }
  std::vector<Sample> spread;
  const size_t n = all.size(), looks = std::min<size_t>(n, kMostLooks);
  const size_t leap = n / (looks + 1) + 1;
  for (size_t i = 0; i < n && spread.size() < looks; i += leap) spread.push_back(all[i]);
  return spread;
}

void touch(std::span<const std::byte> bytes, size_t page) {
  for (size_t at = 0; at < bytes.size(); at += page) {
    static_cast<void>(*static_cast<const volatile std::byte*>(bytes.data() + at));
  }
}

/// Fetches a slice and notes what that cost.
void fetch(const Sample& sample, bool random, uint64_t call_bytes, uint64_t around, RandomTrial& trial) {
  const auto before = static_cast<uint64_t>(sample.slice.data() - sample.stack.data());
  const uint64_t first = before - std::min(before, around);
  const auto window =
      sample.stack.subspan(first, std::min(sample.stack.size() - first, before - first + sample.slice.size() + around));
  const uint64_t there = bytes_in_memory(window.data(), window.size());
  if (random) advise_random(sample.slice.data(), sample.slice.size());
  Stopwatch watch;
  advise_willneed(sample.slice.data(), sample.slice.size(), call_bytes);
  touch(sample.slice, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  trial.seconds += watch.lap();
  if (random) advise_normal(sample.slice.data(), sample.slice.size());
  ++trial.slices;
  trial.wanted += sample.slice.size();
  trial.brought += bytes_in_memory(window.data(), window.size()) - there;
}

double per_byte(const RandomTrial& t) {
  return t.seconds / static_cast<double>(std::max<uint64_t>(t.wanted, 1));
}

}  // namespace

RandomChoice judge_random(const RandomTrial& normal, const RandomTrial& random, uint64_t read_ahead_bytes) {
  RandomChoice choice;
  choice.random = read_ahead_bytes >= kWideReadAhead;
  const std::string rule = read_ahead_bytes == 0
                               ? "the device's read-ahead is not known, so it stays on"
                               : fmt::format("the device's read-ahead is {}, so it is {}",
                                             format_bytes(read_ahead_bytes), choice.random ? "turned off" : "left on");
  if (normal.slices < kLeastSlices || random.slices < kLeastSlices || normal.wanted == 0 || random.wanted == 0) {
    choice.why = fmt::format("too little of the experts is out of memory to measure; {}", rule);
    return choice;
  }
  choice.measured = true;
  const double with = per_byte(normal) * 1048576.0 * 1e3, without = per_byte(random) * 1048576.0 * 1e3;
  const double brought = static_cast<double>(normal.brought) / static_cast<double>(normal.wanted);
  const std::string numbers = fmt::format(
      "of {} slices that were out of memory, a MiB took {:.2f} ms with read-around, which brought {:.1f} times "
      "what was wanted, and {:.2f} ms without",
      normal.slices + random.slices, with, brought, without);
  if (without * kClear < with || (brought > kMuchBrought && without < with * kClear)) {
    choice.random = true;
    choice.why = numbers + "; it is turned off";
  } else if (with * kClear < without) {
    choice.random = false;
    choice.why = numbers + "; it is left on";
  } else {
    choice.measured = false;
    choice.why = fmt::format("{}, which is no difference; {}", numbers, rule);
  }
  return choice;
}

RandomChoice choose_random(const GgufFile& file, const EntryMap& map, uint64_t call_bytes, uint64_t read_ahead_bytes) {
  RandomTrial normal, random;
  const uint64_t around = std::max(read_ahead_bytes, uint64_t{1} << 20);
  Stopwatch watch;
  double spent = 0;
  for (const Sample& sample : samples(file, map)) {
    if (spent > kBudget || (normal.slices >= kMostSlices && random.slices >= kMostSlices)) break;
    spent += watch.lap();
    if (bytes_in_memory(sample.slice.data(), sample.slice.size()) > 0) continue;
    const bool second = random.slices < normal.slices;
    fetch(sample, second, call_bytes, around, second ? random : normal);
  }
  return judge_random(normal, random, read_ahead_bytes);
}

}  // namespace moetier
