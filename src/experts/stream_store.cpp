#include "experts/stream_store.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "base/units.h"
#include "experts/bulk_read.h"
#include "experts/cache_table.h"
#include "experts/layer_index.h"
#include "experts/slot_layout.h"
#include "experts/slot_memory.h"
#include "experts/speculation.h"

namespace moetier {
namespace {

constexpr uint64_t kSpeculative = uint64_t{1} << 63;

/// What a file was when it was opened.
struct FileMark {
  int64_t bytes = 0;
  timespec changed{};
  bool same(const FileMark& o) const {
    return bytes == o.bytes && changed.tv_sec == o.changed.tv_sec && changed.tv_nsec == o.changed.tv_nsec;
  }
};

FileMark mark_of(const ReadFile& file) {
  struct stat info {};
  if (::fstat(file.fd(), &info) != 0) fail("cannot look at {}: {}", file.path(), std::strerror(errno));
  return {info.st_size, info.st_mtim};
}

/// One entry of a lease.
struct Item {
  int32_t expert = 0;
  Outcome outcome = Outcome::hit;
  std::byte* slot = nullptr;  ///< nullptr: waits for a home in transit
  int home = -1;              ///< in transit
  int guess = -1;             ///< the home of a speculation that brings it
  bool issued = false, queued = false, given = false, given_first = false;
  int left = 0;        ///< slices to come
  int left_first = 0;  ///< of them all but the last slice
  bool here() const { return issued && left == 0; }
};

class StreamStore final : public ExpertStore, private Lease::Source {
 public:
  StreamStore(EntryMap map, std::vector<ReadFile> files, const ReadEngineMaker& make_engine,
              const StreamOptions& options)
      : map_(std::move(map)), files_(std::move(files)), options_(options), index_(map_) {
    for (const LayerEntries& layer : map_.layers) layouts_.emplace_back(layer);
    for (const ReadFile& file : files_) marks_.push_back(mark_of(file));
    counters_.resize(map_.layers.size());
    uint64_t bank = 0;
    for (size_t i = 0; i < layouts_.size(); ++i)
      bank += layouts_[i].slot_bytes() * static_cast<uint64_t>(map_.layers[i].n_expert);
    memory_.emplace(map_, bank, options.budget_bytes, options.prefetch * transit_slots(map_, 0));
    guesses_.emplace(options.prefetch, memory_->guess_homes(), map_.layers.size());
    engine_ = make_engine(files_);
    const std::vector<LayerShape> shapes = model_shapes(map_);
    std::vector<std::pair<int, int>> profile = by_place(options.profile);
    table_.emplace(shapes, make_policy(options.policy, shapes, profile),
                   make_extent_slots(shapes, memory_->cache_budget(), memory_->most_cache()));
    int most = 0;
    for (const LayerEntries& layer : map_.layers) most = std::max(most, layer.n_expert);
    items_.reserve(static_cast<size_t>(most));
    fresh_.reserve(static_cast<size_t>(most));
    entries_.resize(static_cast<size_t>(most));
    ready_.reserve(static_cast<size_t>(most) * 2);
    requests_.reserve(static_cast<size_t>(most) * kMaxSlices);
    results_.resize(256);
    register_memory();
    if (!profile.empty()) fill(table_->prefill(profile));
  }

  ~StreamStore() override {
    engine_->cancel();
    engine_->unregister_memory();
  }

  const EntryMap& map() const override { return map_; }

  StoreStatus status() const override {
    StoreStatus s;
    s.mode = ExpertMode::stream;
    s.policy = std::string(table_->policy().name());
    s.cached = true;
    s.budget_bytes = memory_->budget();
    s.transit_bytes = memory_->transit_bytes();
    s.arena_bytes = s.transit_bytes + memory_->guess_bytes() + table_->slots().capacity_bytes();
    s.slots = table_->slots().count();
    s.prefilled = table_->prefilled();
    s.token_demand_bytes = table_->token_demand_bytes();
    s.layer_demand_bytes = table_->layer_demand_bytes();
    const bool direct = std::all_of(files_.begin(), files_.end(), [](const ReadFile& f) { return f.direct(); });
    s.io = fmt::format("{}, {}, depth {}", engine_->name(), direct ? "direct" : "buffered", engine_->depth());
    return s;
  }

  Lease fetch(int layer, std::span<const int32_t> picks, int64_t rows, FetchOrder order) override {
    if (leased_) fail("the expert store was asked for layer {} while the lease of another fetch lives", layer);
    Stopwatch watch;
    const size_t l = index_.of(layer);
    check_picks(layer, map_.layers[l].n_expert, picks);
    if (!visited_ || l <= layer_) check_files();
    visited_ = true;
    layer_ = l;
    order_ = order;
    guesses_->demand(l, picks, rows);
    const double waited = meters_.read_wait_seconds;
    const Visit& visit = table_->visit(static_cast<int>(l), picks, rows);
    try {
      fill(visit);
      if (options_.load_all) stop_guessing();  // before items wait for guesses
      take_items(visit);
      if (options_.load_all) read_the_rest();
      issue();
    } catch (...) {
      release();
      throw;
    }
    leased_ = true;
    meters_.manage_seconds += watch.lap() - (meters_.read_wait_seconds - waited);
    return Lease(this, std::span(entries_.data(), items_.size()));
  }

  bool holds(int layer, int expert) const override { return table_->holds(static_cast<int>(index_.of(layer)), expert); }
  bool read_ahead(int layer, int expert) const override {
    if (!guesses_->on()) return false;
    const int home = guesses_->find(index_.of(layer), expert);
    return home >= 0 && guesses_->homes()[static_cast<size_t>(home)].state != Speculation::State::failed;
  }
  std::vector<int32_t> held(int layer) const override { return table_->held(static_cast<int>(index_.of(layer))); }

  StoreCounters counters(int layer) const override { return counters_at(index_.of(layer)); }
  StoreCounters counters() const override {
    StoreCounters sum;
    for (size_t l = 0; l < counters_.size(); ++l) sum += counters_at(l);
    return sum;
  }
  const StoreMeters& meters() const override { return meters_; }
  uint64_t resident_bytes() const override { return table_->held_bytes(); }

  void set_budget(uint64_t bytes) override {
    if (leased_) fail("the cache cannot be resized while experts of it are being computed");
    stop_guessing();
    // Registered pages are pinned: memory released under a registration would still be written by the kernel.
    engine_->unregister_memory();
    memory_->set_budget(bytes);
    guesses_->set_homes(memory_->guess_homes());
    fill(table_->resize(memory_->cache_budget()));
    memory_->release_unused(table_->slots().capacity_bytes());
    register_memory();
  }

  int rebalance(int max_swaps) override {
    if (options_.policy != CachePolicy::adaptive) return -1;
    if (leased_) fail("the cache cannot be rebalanced while experts of it are being computed");
    const Visit& visit = table_->rebalance(max_swaps);
    const auto swaps = static_cast<int>(visit.fills.size());
    fill(visit);
    return swaps;
  }

 private:
  void register_memory() { memory_->register_with(*engine_, table_->slots().capacity_bytes(), options_.lock); }

  // --- what a visit asks for ---

  static void check_picks(int layer, int n_expert, std::span<const int32_t> picks) {
    for (const int32_t id : picks) {
      if (id < 0 || id >= n_expert)
        fail("layer {} was asked for expert {}, but it has experts 0 to {}", layer, id, n_expert - 1);
    }
  }

  void check_files() {
    for (size_t i = 0; i < files_.size(); ++i) {
      if (mark_of(files_[i]).same(marks_[i])) continue;
      fail("{} was changed while it was in use, so its experts cannot be trusted; load the model again",
           files_[i].path());
    }
  }

  std::vector<std::pair<int, int>> by_place(std::span<const std::pair<int, int>> pairs) const {
    std::vector<std::pair<int, int>> placed;
    for (const auto& [layer, expert] : pairs) {
      if (map_.find(layer) != nullptr) placed.emplace_back(static_cast<int>(index_.of(layer)), expert);
    }
    return placed;
  }

  /// The moves and fills of a visit, to the end.
  void fill(const Visit& visit) {
    for (const Move& move : visit.moves)
      std::memmove(memory_->cache_slot(move.to), memory_->cache_slot(move.from), move.bytes);
    if (visit.fills.empty()) return;
    stop_guessing();
    std::vector<Stretch> stretches;  // rare: at load and between tokens
    for (const Fill& f : visit.fills) {
      const auto l = static_cast<size_t>(f.layer);
      for (size_t s = 0; s < layouts_[l].slices(); ++s) {
        const SliceRead read = layouts_[l].slice(f.expert, s);
        stretches.push_back({read.shard, read.offset, read.need, memory_->cache_slot(f.slot) + read.place});
      }
      ++counters_[l].reads;
    }
    Stopwatch watch;
    try {
      const uint64_t bytes = read_stretches(*engine_, files_, stretches);
      counters_[static_cast<size_t>(visit.fills.front().layer)].bytes_read += bytes;
    } catch (...) {
      for (const Fill& f : visit.fills) table_->forget(f.layer, f.expert);
      throw;
    }
    const double seconds = watch.lap();
    meters_.read_wait_seconds += seconds;
    if (visited_) log::verbose("do_rebalance: {} experts swapped in {:.1f} ms", visit.fills.size(), seconds * 1e3);
  }

  void take_items(const Visit& visit) {
    items_.clear();
    ready_.clear();
    next_ready_ = 0;
    next_ = 0;
    to_give_ = visit.placements.size();
    const size_t slices = layouts_[layer_].slices();
    for (const Placement& placement : visit.placements) {
      Item item;
      item.expert = placement.expert;
      item.outcome = placement.outcome;
      item.left = static_cast<int>(slices);
      item.left_first = static_cast<int>(slices) - 1;
      if (placement.outcome != Outcome::bypassed) item.slot = memory_->cache_slot(placement.slot);
      if (placement.outcome == Outcome::hit) {
        item.issued = true;
        item.left = item.left_first = 0;
      } else if (guesses_->on()) {
        item.guess = guesses_->find(layer_, item.expert);
      }
      items_.push_back(item);
    }
    for (size_t i = 0; i < items_.size(); ++i) {
      entries_[i].expert = items_[i].expert;
      if (items_[i].issued) {
        place(i);
        enqueue(i);
      }
      if (items_[i].guess >= 0) adopt(i);
    }
    if (guesses_->on()) guesses_->drop(layer_);
    unissued_ = static_cast<size_t>(std::ranges::count(items_, false, &Item::issued));
  }

  /// Tells where the slices of an item lie.
  void place(size_t i) {
    for (size_t s = 0; s < layouts_[layer_].slices(); ++s) {
      const SliceRead read = layouts_[layer_].slice(items_[i].expert, s);
      entries_[i].slices[s] = items_[i].slot + read.place + read.lead;
    }
  }

  void enqueue(size_t i) {
    if (items_[i].queued) return;
    items_[i].queued = true;
    ready_.push_back(static_cast<int>(i));
  }

  // --- reads ---

  /// Starts the reads of all items that have a home or can be given one, with one submission. In ascending order entry
  /// by entry and no item before those below it; else slice by slice, so that all first projections come first.
  void issue() {
    requests_.clear();
    fresh_.clear();
    for (size_t i = 0; i < items_.size() && unissued_ > 0; ++i) {
      Item& item = items_[i];
      if (item.issued) continue;
      if (item.slot == nullptr) {
        const std::optional<int> home = memory_->take_home();
        if (!home && order_ == FetchOrder::ascending) break;
        if (!home) continue;
        item.home = *home;
        item.slot = memory_->home(*home);
      }
      place(i);
      item.issued = true;
      --unissued_;
      fresh_.push_back(i);
    }
    const size_t slices = layouts_[layer_].slices();
    if (order_ == FetchOrder::ascending) {
      for (const size_t i : fresh_) {
        for (size_t s = 0; s < slices; ++s) request(i, s);
      }
    } else {
      for (size_t s = 0; s < slices; ++s) {
        for (const size_t i : fresh_) request(i, s);
      }
    }
    if (!requests_.empty()) engine_->submit(requests_);
  }

  void request(size_t i, size_t s) {
    const SliceRead read = layouts_[layer_].slice(items_[i].expert, s);
    requests_.push_back({read.shard, read.offset, items_[i].slot + read.place, read.bytes, read.need,
                         static_cast<uint64_t>(i) << 8 | s});
  }

  void take(const ReadResult& result) {
    if ((result.tag & kSpeculative) != 0) {
      take_guess(result);
      return;
    }
    const auto i = static_cast<size_t>(result.tag >> 8);
    const auto s = static_cast<size_t>(result.tag & 0xff);
    Item& item = items_[i];
    const SliceRead read = layouts_[layer_].slice(item.expert, s);
    if (result.error != 0) fail_read(files_[static_cast<size_t>(read.shard)], read.offset, read.need, result.error);
    counters_[layer_].bytes_read += read.bytes;
    if (s + 1 < layouts_[layer_].slices()) --item.left_first;
    if (--item.left == 0) ++counters_[layer_].reads;
    if (order_ == FetchOrder::any && (item.left == 0 || (item.left_first == 0 && !item.given_first))) enqueue(i);
  }

  size_t reap(bool block) {
    const size_t n = block ? engine_->wait(results_) : engine_->poll(results_);
    for (size_t i = 0; i < n; ++i) take(results_[i]);
    return n;
  }

  void wait_for_reads() {
    Stopwatch watch;
    const size_t n = reap(true);
    meters_.read_wait_seconds += watch.lap();
    if (n == 0) fail("the expert store waits for a read that nobody makes; this is a fault of the program");
  }

  /// Every other entry of the layer, for comparing: read and forgotten.
  void read_the_rest() {
    Stopwatch watch;
    const std::optional<int> home = memory_->take_home();
    std::array<Stretch, kMaxSlices> stretches;
    for (int e = 0; e < map_.layers[layer_].n_expert; ++e) {
      const auto at = std::ranges::lower_bound(items_, e, {}, &Item::expert);
      if ((at != items_.end() && at->expert == e) || table_->holds(static_cast<int>(layer_), e)) continue;
      const size_t slices = layouts_[layer_].slices();
      for (size_t s = 0; s < slices; ++s) {
        const SliceRead read = layouts_[layer_].slice(e, s);
        stretches[s] = {read.shard, read.offset, read.need, memory_->home(*home) + read.place};
      }
      counters_[layer_].bytes_read += read_stretches(*engine_, files_, std::span(stretches.data(), slices));
      ++counters_[layer_].reads;
    }
    memory_->give_home(*home);
    meters_.read_wait_seconds += watch.lap();
  }

  // --- speculation ---

  /// Item i is brought by a guess.
  void adopt(size_t i) {
    Item& item = items_[i];
    Speculation::Home& home = guesses_->homes()[static_cast<size_t>(item.guess)];
    if (home.state == Speculation::State::failed) {
      item.guess = -1;  // read again, as a demand
      return;
    }
    ++counters_[layer_].speculated_used;
    item.issued = true;
    item.left_first = 0;
    item.given_first = true;  // it comes whole
    home.layer = -1;          // drop() must leave it alone
    if (home.state == Speculation::State::landed) land_guess(i);
  }

  /// The guess of item i is here: it is computed where it lies, or where the table wants it.
  void land_guess(size_t i) {
    Item& item = items_[i];
    std::byte* const from = memory_->guess_home(item.guess);
    if (item.slot != nullptr) {
      std::memcpy(item.slot, from, layouts_[layer_].slot_bytes());
      guesses_->homes()[static_cast<size_t>(item.guess)] = {};
      item.guess = -1;
    } else {
      item.slot = from;  // the home is emptied by done()
    }
    item.left = 0;
    place(i);
    if (order_ == FetchOrder::any) enqueue(i);
  }

  void take_guess(const ReadResult& result) {
    const auto h = static_cast<size_t>((result.tag & ~kSpeculative) >> 8);
    Speculation::Home& home = guesses_->homes()[h];
    if (result.error != 0) home.state = Speculation::State::failed;
    if (--home.left > 0) return;
    const auto item = std::ranges::find(items_, static_cast<int>(h), &Item::guess);
    if (item != items_.end() && leased_or_fetching()) {
      if (home.state == Speculation::State::failed) {
        fail("an expert of layer {} could not be read ahead; the next request reads it again",
             map_.layers[layer_].layer);
      }
      home.state = Speculation::State::landed;
      land_guess(static_cast<size_t>(item - items_.begin()));
      return;
    }
    if (home.layer < 0 || home.state == Speculation::State::failed) {
      home = {};
    } else {
      home.state = Speculation::State::landed;
    }
  }

  bool leased_or_fetching() const { return !items_.empty(); }

  void guess_ahead() {
    if (!guesses_->on() || engine_->outstanding() > 0) return;
    const ReadMeters io = engine_->meters();
    const double rate = io.busy_seconds > 0 ? static_cast<double>(io.bytes) / io.busy_seconds : 0;
    uint64_t spare = guesses_->idle(rate);
    requests_.clear();
    for (int k = 1; k <= guesses_->ahead(); ++k) {
      const size_t layer = (layer_ + static_cast<size_t>(k)) % layouts_.size();
      for (const int32_t expert : guesses_->last_picks(layer)) {
        const uint64_t bytes = layouts_[layer].slot_bytes();
        if (table_->holds(static_cast<int>(layer), expert) || guesses_->find(layer, expert) >= 0) continue;
        const int home = guesses_->free_home();
        if (home < 0 || bytes > spare) break;
        spare -= bytes;
        Speculation::Home& h = guesses_->homes()[static_cast<size_t>(home)];
        h = {static_cast<int>(layer), expert, Speculation::State::flying, static_cast<int>(layouts_[layer].slices())};
        ++counters_[layer].speculated;
        counters_[layer].speculated_bytes += bytes;
        for (size_t s = 0; s < layouts_[layer].slices(); ++s) {
          const SliceRead read = layouts_[layer].slice(expert, s);
          counters_[layer].bytes_read += read.bytes;
          requests_.push_back({read.shard, read.offset, memory_->guess_home(home) + read.place, read.bytes, read.need,
                               kSpeculative | static_cast<uint64_t>(home) << 8 | s});
        }
      }
    }
    if (!requests_.empty()) engine_->submit(requests_);
  }

  void stop_guessing() {
    if (!guesses_->on()) return;
    engine_->cancel();
    for (Speculation::Home& home : guesses_->homes()) home = {};
  }

  // --- the lease ---

  Ready next_ready() override {
    if (to_give_ == 0) return {};
    Stopwatch watch;
    const double waited = meters_.read_wait_seconds;
    reap(false);
    if (!options_.overlap) {
      while (!all_here()) wait_for_reads();
    }
    Ready ready = pop();
    while (!ready) {
      wait_for_reads();
      ready = pop();
    }
    meters_.manage_seconds += watch.lap() - (meters_.read_wait_seconds - waited);
    return ready;
  }

  Ready try_ready() override {
    if (to_give_ == 0) return {};
    Stopwatch watch;
    reap(false);
    const Ready ready = pop();
    meters_.manage_seconds += watch.lap();
    return ready;
  }

  /// Everything that was issued has come.
  bool all_here() const {
    return std::all_of(items_.begin(), items_.end(), [](const Item& item) { return !item.issued || item.left == 0; });
  }

  Ready pop() {
    if (order_ == FetchOrder::ascending) {
      if (next_ == items_.size() || !items_[next_].here()) return {};
      --to_give_;
      items_[next_].given = true;
      return {static_cast<int>(next_++), true};
    }
    while (next_ready_ < ready_.size()) {
      const int i = ready_[next_ready_++];
      Item& item = items_[static_cast<size_t>(i)];
      item.queued = false;
      if (item.given) continue;
      const bool complete = item.here();
      if (!complete && item.given_first) continue;
      (complete ? item.given : item.given_first) = true;
      if (complete) --to_give_;
      return {i, complete};
    }
    return {};
  }

  void done(int index) override {
    Item& item = items_[static_cast<size_t>(index)];
    if (item.guess >= 0) {
      guesses_->homes()[static_cast<size_t>(item.guess)] = {};
      item.guess = -1;
    }
    if (item.home < 0) return;
    memory_->give_home(item.home);
    item.home = -1;
    if (unissued_ > 0) issue();
  }

  void release() override {
    Stopwatch watch;
    const bool broken = to_give_ > 0;
    if (broken) engine_->cancel();
    for (Item& item : items_) {
      if (item.home >= 0) memory_->give_home(item.home);
      // Its bytes did not all come: the slot holds nothing.
      if (item.outcome == Outcome::admitted && !item.here()) table_->forget(static_cast<int>(layer_), item.expert);
    }
    items_.clear();
    to_give_ = 0;
    if (broken && guesses_->on()) {
      for (Speculation::Home& home : guesses_->homes()) home = {};
    }
    table_->end_visit();
    leased_ = false;
    if (!broken) guess_ahead();
    meters_.manage_seconds += watch.lap();
  }

  StoreCounters counters_at(size_t l) const {
    StoreCounters sum = counters_[l];
    const CacheCounters& cache = table_->counters(static_cast<int>(l));
    sum.hits = cache.hits;
    sum.misses = cache.misses;
    sum.few_hits = cache.few_hits;
    sum.few_misses = cache.few_misses;
    sum.hits_profile = cache.hits_profile;
    sum.large_hits = cache.copies;
    sum.large_hit_bytes = cache.copy_bytes;
    sum.large_misses = cache.large_misses;
    sum.evictions = cache.evictions;
    sum.rereads = cache.rereads;
    sum.swaps = cache.swaps;
    return sum;
  }

  EntryMap map_;
  std::vector<ReadFile> files_;
  StreamOptions options_;
  LayerIndex index_;
  std::vector<SlotLayout> layouts_;
  std::vector<FileMark> marks_;
  std::vector<StoreCounters> counters_;  ///< what the table does not count
  StoreMeters meters_;

  std::optional<SlotMemory> memory_;
  std::unique_ptr<ReadEngine> engine_;  // after the memory, which its reads land in
  std::optional<CacheTable> table_;
  std::optional<Speculation> guesses_;

  // The lease.
  bool leased_ = false, visited_ = false;
  size_t layer_ = 0;
  FetchOrder order_ = FetchOrder::any;
  std::vector<Item> items_;  ///< ascending expert
  std::vector<FetchedEntry> entries_;
  std::vector<int> ready_;  ///< items that may have something to give, in the order it came
  size_t next_ready_ = 0, next_ = 0, to_give_ = 0, unissued_ = 0;
  std::vector<size_t> fresh_;  ///< items whose reads begin
  std::vector<ReadRequest> requests_;
  std::vector<ReadResult> results_;
};

}  // namespace

std::unique_ptr<ExpertStore> make_stream_store(EntryMap map, std::vector<ReadFile> files, const ReadEngineMaker& engine,
                                               const StreamOptions& options) {
  return std::make_unique<StreamStore>(std::move(map), std::move(files), engine, options);
}

}  // namespace moetier
