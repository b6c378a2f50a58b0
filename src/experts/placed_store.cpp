// The store that leaves entries in the mapped file.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "experts/placed_store.h"

namespace moetier {
namespace {

/// Bytes of [begin, begin + bytes) that are in memory, or 0 where mincore(2) does not answer.
uint64_t bytes_in_memory(const std::byte* begin, uint64_t bytes) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  constexpr size_t kPagesPerCall = 4096;
  std::array<unsigned char, kPagesPerCall> present;
  const uint64_t lead = reinterpret_cast<uintptr_t>(begin) % page;
  const std::byte* const first_page = begin - lead;
  const uint64_t end = lead + bytes;  // offsets count from first_page
  uint64_t resident = 0;
  for (uint64_t at = 0; at < end; at += kPagesPerCall * page) {
    const uint64_t stop = std::min(end, at + kPagesPerCall * page);
    if (mincore(const_cast<std::byte*>(first_page + at), stop - at, present.data()) != 0) return 0;
    for (uint64_t p = at; p < stop; p += page) {
      if ((present[(p - at) / page] & 1) != 0) resident += std::min(end, p + page) - std::max(lead, p);
    }
  }
  return resident;
}

class MappedStore final : public ExpertStore, private Lease::Source {
 public:
  MappedStore(const GgufFile& file, EntryMap map) : map_(std::move(map)) {
    int most = 0;
    int last_layer = 0;
    for (const LayerEntries& layer : map_.layers) {
      most = std::max(most, layer.n_expert);
      last_layer = std::max(last_layer, layer.layer);
      layers_.push_back(locate(file, layer));
    }
    index_.assign(static_cast<size_t>(last_layer) + 1, -1);
    for (size_t i = 0; i < map_.layers.size(); ++i)
      index_[static_cast<size_t>(map_.layers[i].layer)] = static_cast<int>(i);
    wanted_.assign(static_cast<size_t>(most), 0);
    entries_.resize(static_cast<size_t>(most));
  }

  const EntryMap& map() const override { return map_; }

  StoreStatus status() const override { return {}; }
  bool holds(int, int) const override { return true; }
  const StoreMeters& meters() const override { return meters_; }
  std::vector<int32_t> held(int layer) const override {
    std::vector<int32_t> all(static_cast<size_t>(layers_[layer_index(layer)].n_expert));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  Lease fetch(int layer, std::span<const int32_t> picks, int64_t, FetchOrder) override {
    if (leased_) fail("the expert store was asked for layer {} while the lease of another fetch lives", layer);
    LayerState& state = layers_[layer_index(layer)];
    mark(state, layer, picks);
    size_t n = 0;
    for (int32_t expert = 0; expert < state.n_expert; ++expert) {
      if (wanted_[static_cast<size_t>(expert)] == 0) continue;
      FetchedEntry& entry = entries_[n++];
      entry.expert = expert;
      for (size_t s = 0; s < state.n_slices; ++s)
        entry.slices[s] = state.base[s] + static_cast<uint64_t>(expert) * state.slice_bytes[s];
    }
    state.counters.hits += n;
    given_ = 0;
    count_ = static_cast<int>(n);
    leased_ = true;
    return Lease(this, std::span(entries_.data(), n));
  }

  StoreCounters counters(int layer) const override { return layers_[layer_index(layer)].counters; }

  StoreCounters counters() const override {
    StoreCounters sum;
    for (const LayerState& layer : layers_) sum += layer.counters;
    return sum;
  }

  uint64_t resident_bytes() const override {
    uint64_t sum = 0;
    for (const LayerState& layer : layers_) {
      for (size_t s = 0; s < layer.n_slices; ++s)
        sum += bytes_in_memory(layer.base[s], layer.slice_bytes[s] * static_cast<uint64_t>(layer.n_expert));
    }
    return sum;
  }

 private:
  struct LayerState {
    int n_expert = 0;
    size_t n_slices = 0;
    std::array<const std::byte*, kMaxSlices> base{};
    std::array<uint64_t, kMaxSlices> slice_bytes{};
    StoreCounters counters;
  };

  /// Where each slice's stack of experts is mapped.
  static LayerState locate(const GgufFile& file, const LayerEntries& layer) {
    LayerState state;
    state.n_expert = layer.n_expert;
    if (layer.n_expert <= 0) fail("layer {} of the entry map has no experts", layer.layer);
    if (layer.slices.size() > kMaxSlices) fail("layer {} has more than {} slices per entry", layer.layer, kMaxSlices);
    for (const SliceSource& slice : layer.slices) {
      const auto tensors = file.tensors();
      const auto tensor = std::find_if(tensors.begin(), tensors.end(), [&](const TensorInfo& t) {
        return t.shard == slice.shard && t.offset == slice.offset;
      });
      if (tensor == tensors.end() || slice.slice_bytes > tensor->bytes / static_cast<uint64_t>(layer.n_expert))
        fail("the entry map of layer {} does not belong to {}", layer.layer, file.path());
      state.base[state.n_slices] = file.data(*tensor).data();
      state.slice_bytes[state.n_slices] = slice.slice_bytes;
      ++state.n_slices;
    }
    return state;
  }

  size_t layer_index(int layer) const {
    if (layer < 0 || static_cast<size_t>(layer) >= index_.size() || index_[static_cast<size_t>(layer)] < 0)
      fail("layer {} has no experts in the store", layer);
    return static_cast<size_t>(index_[static_cast<size_t>(layer)]);
  }

  void mark(const LayerState& state, int layer, std::span<const int32_t> picks) {
    std::fill(wanted_.begin(), wanted_.end(), uint8_t{0});
    for (const int32_t id : picks) {
      if (id < 0 || id >= state.n_expert)
        fail("layer {} was asked for expert {}, but it has experts 0 to {}", layer, id, state.n_expert - 1);
      wanted_[static_cast<size_t>(id)] = 1;
    }
  }

  // Every entry is ready at once, in ascending order.
  Ready next_ready() override { return given_ < count_ ? Ready{given_++, true} : Ready{}; }
  Ready try_ready() override { return next_ready(); }
  void done(int) override {}
  void release() override { leased_ = false; }

  EntryMap map_;
  std::vector<LayerState> layers_;  ///< in the order of map_.layers
  std::vector<int> index_;          ///< model layer number -> place in layers_, or -1
  std::vector<uint8_t> wanted_;     ///< one flag per expert
  std::vector<FetchedEntry> entries_;
  int given_ = 0, count_ = 0;
  bool leased_ = false;
  StoreMeters meters_;
};

}  // namespace

std::unique_ptr<ExpertStore> make_mapped_store(const GgufFile& file, EntryMap map) {
  return std::make_unique<MappedStore>(file, std::move(map));
}

}  // namespace moetier
