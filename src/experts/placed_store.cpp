#include "experts/placed_store.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/units.h"
#include "experts/arena.h"
#include "experts/bulk_read.h"
#include "experts/demand.h"
#include "experts/layer_index.h"
#include "io/advice.h"
#include "io/page_cache.h"

namespace moetier {
namespace {

/// One MoE layer's slices: expert e's slice s is at base[s] + e * slice_bytes[s].
struct PlacedLayer {
  int n_expert = 0;
  size_t n_slices = 0;
  uint64_t entry_bytes = 0;
  std::array<const std::byte*, kMaxSlices> base{};
  std::array<uint64_t, kMaxSlices> slice_bytes{};
  StoreCounters counters;

  const std::byte* slice(int32_t expert, size_t s) const {
    return base[s] + static_cast<uint64_t>(expert) * slice_bytes[s];
  }
};

PlacedLayer shape_of(const LayerEntries& layer) {
  if (layer.n_expert <= 0) fail("layer {} of the entry map has no experts", layer.layer);
  if (layer.slices.size() > kMaxSlices) fail("layer {} has more than {} slices per entry", layer.layer, kMaxSlices);
  PlacedLayer placed;
  placed.n_expert = layer.n_expert;
  placed.entry_bytes = layer.entry_bytes();
  for (const SliceSource& slice : layer.slices) placed.slice_bytes[placed.n_slices++] = slice.slice_bytes;
  return placed;
}

/// Where each slice's stack of experts is mapped.
std::vector<PlacedLayer> mapped_layers(const GgufFile& file, const EntryMap& map) {
  std::vector<PlacedLayer> layers;
  for (const LayerEntries& layer : map.layers) {
    PlacedLayer placed = shape_of(layer);
    for (size_t s = 0; s < layer.slices.size(); ++s) {
      const SliceSource& slice = layer.slices[s];
      const auto tensors = file.tensors();
      const auto tensor = std::find_if(tensors.begin(), tensors.end(), [&](const TensorInfo& t) {
        return t.shard == slice.shard && t.offset == slice.offset;
      });
      if (tensor == tensors.end() || slice.slice_bytes > tensor->bytes / static_cast<uint64_t>(layer.n_expert))
        fail("the entry map of layer {} does not belong to {}", layer.layer, file.path());
      placed.base[s] = file.data(*tensor).data();
    }
    layers.push_back(placed);
  }
  return layers;
}

class PlacedStore : public ExpertStore, private Lease::Source {
 public:
  PlacedStore(EntryMap map, std::vector<PlacedLayer> layers, ExpertMode mode)
      : map_(std::move(map)), layers_(std::move(layers)), index_(map_), demand_(map_) {
    status_.mode = mode;
    int most = 0;
    for (const PlacedLayer& layer : layers_) most = std::max(most, layer.n_expert);
    wanted_.assign(static_cast<size_t>(most), 0);
    entries_.resize(static_cast<size_t>(most));
  }

  const EntryMap& map() const override { return map_; }

  StoreStatus status() const override {
    StoreStatus status = status_;
    status.token_demand_bytes = demand_.token_bytes();
    status.layer_demand_bytes = demand_.layer_bytes();
    return status;
  }

  Lease fetch(int layer, std::span<const int32_t> picks, int64_t rows, FetchOrder order) override {
    if (leased_) fail("the expert store was asked for layer {} while the lease of another fetch lives", layer);
    const size_t l = index_.of(layer);
    PlacedLayer& state = layers_[l];
    mark(state, layer, picks);
    size_t n = 0;
    for (int32_t expert = 0; expert < state.n_expert; ++expert) {
      if (wanted_[static_cast<size_t>(expert)] == 0) continue;
      FetchedEntry& entry = entries_[n++];
      entry.expert = expert;
      for (size_t s = 0; s < state.n_slices; ++s) entry.slices[s] = state.slice(expert, s);
    }
    if (rows <= kSmallRows) {
      state.counters.hits += n;
      if (rows <= kFewRows) state.counters.few_hits += n;
    } else {
      state.counters.large_hits += n;
      state.counters.large_hit_bytes += n * state.entry_bytes;
    }
    demand_.note(l, n, rows);
    given_ = 0;
    entries_used_ = std::span(entries_.data(), n);
    begin(state, order);
    leased_ = true;
    return Lease(this, entries_used_);
  }

  bool holds(int layer, int) const override {
    static_cast<void>(index_.of(layer));
    return true;
  }
  std::vector<int32_t> held(int layer) const override {
    std::vector<int32_t> all(static_cast<size_t>(layers_[index_.of(layer)].n_expert));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  StoreCounters counters(int layer) const override { return layers_[index_.of(layer)].counters; }
  StoreCounters counters() const override {
    StoreCounters sum;
    for (const PlacedLayer& layer : layers_) sum += layer.counters;
    return sum;
  }
  const StoreMeters& meters() const override { return meters_; }

  uint64_t resident_bytes() const override {
    uint64_t sum = 0;
    for (const PlacedLayer& layer : layers_) {
      for (size_t s = 0; s < layer.n_slices; ++s)
        sum += bytes_in_memory(layer.base[s], layer.slice_bytes[s] * static_cast<uint64_t>(layer.n_expert));
    }
    return sum;
  }

 protected:
  /// The entries of a fetch are known.
  virtual void begin(const PlacedLayer&, FetchOrder) {}
  /// `index` is about to be given.
  virtual void giving(int) {}

  std::span<FetchedEntry> entries() const { return entries_used_; }

  EntryMap map_;
  std::vector<PlacedLayer> layers_;  ///< in the order of map_.layers
  StoreMeters meters_;
  StoreStatus status_;

 private:
  void mark(const PlacedLayer& state, int layer, std::span<const int32_t> picks) {
    std::fill(wanted_.begin(), wanted_.end(), uint8_t{0});
    for (const int32_t id : picks) {
      if (id < 0 || id >= state.n_expert)
        fail("layer {} was asked for expert {}, but it has experts 0 to {}", layer, id, state.n_expert - 1);
      wanted_[static_cast<size_t>(id)] = 1;
    }
  }

  // Every entry is ready at once, in ascending order.
  Ready next_ready() override {
    if (static_cast<size_t>(given_) == entries_used_.size()) return {};
    giving(given_);
    return {given_++, true};
  }
  Ready try_ready() override { return next_ready(); }
  void done(int) override {}
  void release() override { leased_ = false; }

  LayerIndex index_;
  Demand demand_;
  std::vector<uint8_t> wanted_;  ///< one flag per expert
  std::vector<FetchedEntry> entries_;
  std::span<FetchedEntry> entries_used_;
  int given_ = 0;
  bool leased_ = false;
};

/// Coaches the page cache.
class AdvisingStore final : public PlacedStore {
 public:
  AdvisingStore(EntryMap map, std::vector<PlacedLayer> layers, const AdviseOptions& options)
      : PlacedStore(std::move(map), std::move(layers), options.hint ? ExpertMode::advise : ExpertMode::noop),
        options_(options) {
    status_.advising = options.hint;
    if (!options.random || !options.hint) return;
    for (const PlacedLayer& layer : layers_) {
      for (size_t s = 0; s < layer.n_slices; ++s)
        advise_random(layer.base[s], layer.slice_bytes[s] * static_cast<uint64_t>(layer.n_expert));
    }
  }

 private:
  /// Of a prompt's layer, so many entries beyond the one being computed are asked for: enough to keep a drive busy, few
  /// enough that none is dropped again before its turn.
  static constexpr int kAhead = 16;

  void begin(const PlacedLayer& layer, FetchOrder order) override {
    layer_ = &layer;
    order_ = order;
    advised_ = 0;
    const auto n = static_cast<int>(entries().size());
    advise_until(order == FetchOrder::any ? n : std::min(n, kAhead));
  }

  void giving(int index) override {
    if (order_ == FetchOrder::ascending) advise_until(std::min(static_cast<int>(entries().size()), index + 1 + kAhead));
  }

  /// Entries [advised_, end), first projections first.
  void advise_until(int end) {
    if (advised_ >= end) return;
    const auto start = std::chrono::steady_clock::now();
    for (size_t s = 0; s < layer_->n_slices; ++s) {
      for (int i = advised_; i < end; ++i) {
        const std::byte* slice = entries()[static_cast<size_t>(i)].slices[s];
        if (!options_.hint) {
          // The address and the length are looked at as for a hint, and no more.
          seen_ = seen_ + reinterpret_cast<uintptr_t>(slice) + layer_->slice_bytes[s];
          continue;
        }
        const Advice advice = advise_willneed(slice, layer_->slice_bytes[s], options_.call_bytes);
        meters_.advise_calls += advice.calls;
        meters_.advise_bytes += advice.bytes;
        meters_.advise_failures += advice.failures;
        if (advice.failures > 0 && !warned_) {
          warned_ = true;
          log::warn("madvise(MADV_WILLNEED) failed ({}), so entries are read as they are touched; failures are counted",
                    advice.reason());
        }
      }
    }
    advised_ = end;
    meters_.advise_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  AdviseOptions options_;
  const PlacedLayer* layer_ = nullptr;
  FetchOrder order_ = FetchOrder::any;
  int advised_ = 0;
  bool warned_ = false;
  volatile uint64_t seen_ = 0;
};

/// Memory for all entries, and what is to be read into it.
struct OwnMemory {
  std::vector<PlacedLayer> layers;
  std::vector<Stretch> stretches;  ///< every stack of slices
  Arena arena;
};

OwnMemory own_memory(const EntryMap& map) {
  // Each stack begins at a block of the arena with its remainder in the file, so that direct reads land in place.
  std::vector<PlacedLayer> layers;
  std::vector<Stretch> stretches;
  std::vector<uint64_t> places;
  uint64_t end = 0;
  for (const LayerEntries& layer : map.layers) {
    layers.push_back(shape_of(layer));
    for (const SliceSource& slice : layer.slices) {
      const uint64_t bytes = slice.slice_bytes * static_cast<uint64_t>(layer.n_expert);
      places.push_back(end + slice.offset % kReadBlock);
      stretches.push_back({slice.shard, slice.offset, bytes, nullptr});
      end = (places.back() + bytes + kReadBlock - 1) / kReadBlock * kReadBlock;
    }
  }
  Arena arena(end);
  size_t i = 0;
  for (PlacedLayer& layer : layers) {
    for (size_t s = 0; s < layer.n_slices; ++s, ++i) layer.base[s] = stretches[i].to = arena.data() + places[i];
  }
  return {std::move(layers), std::move(stretches), std::move(arena)};
}

/// Entries in memory of our own.
class ResidentStore final : public PlacedStore {
 public:
  ResidentStore(EntryMap map, std::vector<PlacedLayer> layers, Arena arena)
      : PlacedStore(std::move(map), std::move(layers), ExpertMode::resident), arena_(std::move(arena)) {
    status_.arena_bytes = arena_.bytes();
  }
  uint64_t resident_bytes() const override { return map_.total_bytes(); }

 private:
  Arena arena_;
};

/// Entries in the mapped file, and each from its second use on in memory of our own, one behind the other as they come:
/// so the memory that is touched grows as the copies do, huge pages or not.
class CopyingStore final : public PlacedStore {
 public:
  CopyingStore(EntryMap map, std::vector<PlacedLayer> mapped, int threads, std::vector<ReadFile> files)
      : PlacedStore(std::move(map), std::move(mapped), ExpertMode::resident),
        files_(std::move(files)),
        pool_(std::make_unique<ThreadPool>(threads)) {
    size_t most = 0;
    uint64_t bytes = 0;
    for (const PlacedLayer& layer : layers_) {
      const auto n = static_cast<size_t>(layer.n_expert);
      most = std::max(most, n);
      remaining_ += n;
      places_.emplace_back(n);
      bytes += n * own_bytes(layer);
    }
    to_copy_.reserve(most);
    arena_ = Arena(bytes);
    status_.arena_bytes = arena_.bytes();
  }
  uint64_t resident_bytes() const override { return map_.total_bytes(); }

 private:
  struct Place {
    std::byte* own = nullptr;  ///< its slices, each aligned; nullptr: not copied
    bool used = false;
  };
  struct Copy {
    int32_t expert;
    std::byte* to;
  };
  static constexpr uint64_t kAlignment = 64;  // bytes, a cache line
  /// Few enough bytes that all threads have work when one expert is copied.
  static constexpr uint64_t kPart = uint64_t{256} << 10;

  static uint64_t aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
  static uint64_t own_bytes(const PlacedLayer& layer) {
    uint64_t sum = 0;
    for (size_t s = 0; s < layer.n_slices; ++s) sum += aligned(layer.slice_bytes[s]);
    return sum;
  }

  void begin(const PlacedLayer& layer, FetchOrder) override {
    const auto l = static_cast<size_t>(&layer - layers_.data());
    to_copy_.clear();
    for (FetchedEntry& entry : entries()) {
      Place& place = places_[l][static_cast<size_t>(entry.expert)];
      if (place.own == nullptr && place.used) {
        place.own = arena_.data() + copied_end_;
        copied_end_ += own_bytes(layer);
        to_copy_.push_back({entry.expert, place.own});
      }
      place.used = true;
      if (place.own == nullptr) continue;
      std::byte* at = place.own;
      for (size_t s = 0; s < layer.n_slices; ++s) {
        entry.slices[s] = at;
        at += aligned(layer.slice_bytes[s]);
      }
    }
    if (!to_copy_.empty()) copy(l);
  }

  /// Copies what is to be copied of layer number l, slice by slice.
  void copy(size_t l) {
    const PlacedLayer& layer = layers_[l];
    const auto start = std::chrono::steady_clock::now();
    uint64_t at = 0;
    for (size_t s = 0; s < layer.n_slices; ++s) {
      copy_slices(layer, s, at);
      if (!files_.empty()) drop_slices(l, s);
      at += aligned(layer.slice_bytes[s]);
    }
    meters_.copied_bytes += to_copy_.size() * layer.entry_bytes;
    meters_.copy_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    remaining_ -= to_copy_.size();
    if (remaining_ == 0) {
      pool_.reset();
      files_.clear();
    }
  }

  /// Slice s of the entries, to `offset` of their own memory.
  void copy_slices(const PlacedLayer& layer, size_t s, uint64_t offset) {
    const uint64_t bytes = layer.slice_bytes[s];
    const uint64_t parts = (bytes + kPart - 1) / kPart;
    pool_->run(static_cast<int64_t>(parts * to_copy_.size()), [&](int64_t i, int) {
      const Copy& copy = to_copy_[static_cast<uint64_t>(i) / parts];
      const uint64_t at = static_cast<uint64_t>(i) % parts * kPart, n = std::min(kPart, bytes - at);
      const std::byte* const source = layer.slice(copy.expert, s) + at;
      advise_map(source, n);
      std::memcpy(copy.to + offset + at, source, n);
    });
    // They shall not count as this process's memory twice. All of the stack, for a fault maps more than was touched;
    // what is still used from there is mapped again when it is.
    static_cast<void>(advise_unmap(layer.base[s], bytes * static_cast<uint64_t>(layer.n_expert)));
  }

  /// What has been copied of layer number l's slices s leaves the page cache. With neighbours copied before, since the
  /// kernel drops large folios whole or not at all.
  void drop_slices(size_t l, size_t s) {
    const std::vector<Place>& places = places_[l];
    const SliceSource& slice = map_.layers[l].slices[s];
    pool_->run(static_cast<int64_t>(to_copy_.size()), [&](int64_t i, int) {
      auto first = static_cast<size_t>(to_copy_[static_cast<size_t>(i)].expert), end = first + 1;
      while (first > 0 && places[first - 1].own != nullptr) --first;
      while (end < places.size() && places[end].own != nullptr) ++end;
      files_[static_cast<size_t>(slice.shard)].drop_from_page_cache(slice.offset + first * slice.slice_bytes,
                                                                    (end - first) * slice.slice_bytes);
    });
  }

  std::vector<ReadFile> files_;             ///< of whose page cache the copied is dropped; empty: of none
  std::unique_ptr<ThreadPool> pool_;        ///< while there is something to copy
  std::vector<std::vector<Place>> places_;  ///< by layer and expert
  size_t remaining_ = 0;                    ///< entries
  std::vector<Copy> to_copy_;               ///< of the fetch
  Arena arena_{0};
  uint64_t copied_end_ = 0;  ///< bytes of the arena
};

}  // namespace

std::unique_ptr<ExpertStore> make_mapped_store(const GgufFile& file, EntryMap map) {
  std::vector<PlacedLayer> layers = mapped_layers(file, map);
  return std::make_unique<PlacedStore>(std::move(map), std::move(layers), ExpertMode::mmap);
}

std::unique_ptr<ExpertStore> make_advising_store(const GgufFile& file, EntryMap map, const AdviseOptions& options) {
  std::vector<PlacedLayer> layers = mapped_layers(file, map);
  return std::make_unique<AdvisingStore>(std::move(map), std::move(layers), options);
}

std::unique_ptr<ExpertStore> make_copying_store(const GgufFile& file, EntryMap map, int threads,
                                                std::vector<ReadFile> files) {
  std::vector<PlacedLayer> mapped = mapped_layers(file, map);
  return std::make_unique<CopyingStore>(std::move(map), std::move(mapped), threads, std::move(files));
}

std::unique_ptr<ExpertStore> make_resident_store(EntryMap map, ReadEngine& engine, std::span<const ReadFile> files,
                                                 bool lock, const WarmSource& warm) {
  auto [layers, stretches, arena] = own_memory(map);
  const auto start = std::chrono::steady_clock::now();
  uint64_t bytes = 0;
  {
    Progress progress("reading experts");
    bytes = read_stretches(
        engine, files, stretches, [&](uint64_t done, uint64_t all) { progress.update(done, all); }, warm);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  log::verbose("experts: {} read in {:.2f} s", format_bytes(bytes), seconds);
  if (lock) {
    if (const std::string problem = arena.lock(arena.bytes()); !problem.empty()) log::warn("{}", problem);
  }
  return std::make_unique<ResidentStore>(std::move(map), std::move(layers), std::move(arena));
}

}  // namespace moetier
