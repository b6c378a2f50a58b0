#include "experts/cache_table.h"

#include <algorithm>

#include "base/error.h"
#include "experts/demand.h"
#include "experts/table_state.h"

namespace moetier {

CacheCounters& CacheCounters::operator+=(const CacheCounters& other) {
  hits += other.hits;
  misses += other.misses;
  few_hits += other.few_hits;
  few_misses += other.few_misses;
  hits_profile += other.hits_profile;
  copies += other.copies;
  copy_bytes += other.copy_bytes;
  large_misses += other.large_misses;
  evictions += other.evictions;
  rereads += other.rereads;
  swaps += other.swaps;
  miss_bytes += other.miss_bytes;
  return *this;
}

struct CacheTable::Impl : TableState {
  Impl(std::vector<LayerShape> shapes, std::unique_ptr<Policy> its_policy, std::unique_ptr<Slots> its_slots)
      : TableState(std::move(shapes), std::move(its_policy), std::move(its_slots)), demand(layers) {}

  void advance(int layer, int64_t rows);
  void begin_token();
  void pick(int layer, std::span<const int32_t> picks, int64_t rows);
  void place(int layer, Placement& placement, int64_t rows);
  bool make_room(int layer, int expert);
  void apply(std::span<const Proposal> proposals);
  bool apply_one(const Proposal& proposal);
  const Visit& resize(uint64_t bytes);

  Demand demand;
  uint64_t prefilled = 0;
  bool visited = false;
};

CacheTable::CacheTable(std::vector<LayerShape> layers, std::unique_ptr<Policy> policy, std::unique_ptr<Slots> slots)
    : impl_(std::make_unique<Impl>(std::move(layers), std::move(policy), std::move(slots))) {}
CacheTable::~CacheTable() = default;

// --- visits ---

/// Looks at where the tokens have come to.
void CacheTable::Impl::advance(int layer, int64_t rows) {
  const bool again = visited && layer == last_layer && layers.size() > 1;  // the next piece of a prompt
  if (again) in_pieces = true;
  if (!visited || layer < last_layer || layers.size() == 1) {
    in_pieces = false;
    begin_token();
  }
  if (!again) kept_from = stamp + 1;
  visited = true;
  last_layer = layer;
  last_rows = rows;
}

void CacheTable::Impl::begin_token() {
  policy->begin_token(last_rows);
  proposals.clear();
  policy->propose(*this, -1, proposals);
  apply(proposals);
}

/// The distinct experts of a visit, in pick order, protected.
void CacheTable::Impl::pick(int layer, std::span<const int32_t> picks, int64_t rows) {
  const LayerShape& shape = layers[static_cast<size_t>(layer)];
  ++stamp;
  for (const int32_t expert : picks) {
    if (expert < 0 || expert >= shape.n_expert)
      fail("layer {} was asked for expert {}, but it has experts 0 to {}", layer, expert, shape.n_expert - 1);
    Entry& entry = at(layer, expert);
    if (entry.stamp == stamp) continue;
    entry.stamp = stamp;
    visit.placements.push_back({expert, Outcome::hit, 0});
  }
  busy_layer = layer;
  coldest_[static_cast<size_t>(layer)] = kUnknown;
  demand.note(static_cast<size_t>(layer), visit.placements.size(), rows);
}

void CacheTable::Impl::place(int layer, Placement& placement, int64_t rows) {
  Entry& entry = at(layer, placement.expert);
  CacheCounters& count = counters[static_cast<size_t>(layer)];
  const uint64_t bytes = layers[static_cast<size_t>(layer)].entry_bytes;
  const bool small = rows <= kSmallRows;
  if (entry.held) {
    placement.slot = entry.slot;
    if (small) {
      ++count.hits;
      if (rows <= kFewRows) ++count.few_hits;
      if (entry.of_profile) ++count.hits_profile;
    } else {
      ++count.copies;
      count.copy_bytes += bytes;
    }
    return;
  }
  ++(small ? count.misses : count.large_misses);
  if (rows <= kFewRows) ++count.few_misses;
  if (entry.was_read) ++count.rereads;
  entry.was_read = true;
  count.miss_bytes += bytes;
  if (make_room(layer, placement.expert)) {
    placement.outcome = Outcome::admitted;
    placement.slot = entry.slot;
  } else {
    placement.outcome = Outcome::bypassed;
  }
}

/// Gives an entry that was just picked a slot, if the policy wants that.
bool CacheTable::Impl::make_room(int layer, int expert) {
  if (!policy->takes_slots()) return false;
  if (take(layer, expert)) return true;
  const int size_class = slots->class_of(layer);
  if (exchange(layer, expert) && take(layer, expert)) return true;
  for (;;) {  // once, but for slots that count bytes
    const int victim_layer = coldest_layer(size_class);
    if (victim_layer < 0) return false;
    const int victim = coldest(victim_layer);
    const bool admitted =
        in_pieces ? policy->yields(victim_layer, victim) : policy->admits(layer, expert, victim_layer, victim);
    if (!admitted) return false;
    evict(victim_layer, victim);
    if (take(layer, expert)) return true;
  }
}

const Visit& CacheTable::visit(int layer, std::span<const int32_t> picks, int64_t rows) {
  Impl& t = *impl_;
  if (layer < 0 || static_cast<size_t>(layer) >= t.layers.size())
    fail("the cache was asked for layer {}, but it has layers 0 to {}", layer, static_cast<int>(t.layers.size()) - 1);
  t.end_visit();
  t.clear_visit();
  t.advance(layer, rows);
  t.pick(layer, picks, rows);
  t.policy->touch(layer, picks, rows);
  for (Placement& placement : t.visit.placements) t.place(layer, placement, rows);
  std::ranges::sort(t.visit.placements, {}, &Placement::expert);
  t.check_budget();
  return t.visit;
}

void CacheTable::end_visit() {
  impl_->end_visit();
}

void CacheTable::forget(int layer, int expert) {
  if (!holds(layer, expert)) return;
  impl_->drop(layer, expert);
}

// --- fills ---

bool CacheTable::Impl::apply_one(const Proposal& p) {
  if (at(p.layer, p.expert).held) return false;
  if (p.victim_layer >= 0) {
    if (!at(p.victim_layer, p.victim_expert).held) return false;
    evict(p.victim_layer, p.victim_expert);
  }
  if (!take(p.layer, p.expert)) return false;
  Entry& entry = at(p.layer, p.expert);
  entry.was_read = true;
  visit.fills.push_back({p.layer, p.expert, entry.slot});
  return true;
}

void CacheTable::Impl::apply(std::span<const Proposal> wanted) {
  for (const Proposal& p : wanted) {
    if (!apply_one(p)) continue;
    CacheCounters& count = counters[static_cast<size_t>(p.layer)];
    ++count.swaps;
    count.miss_bytes += layers[static_cast<size_t>(p.layer)].entry_bytes;
  }
}

const Visit& CacheTable::prefill(std::span<const std::pair<int, int>> hottest_first) {
  Impl& t = *impl_;
  t.end_visit();
  t.clear_visit();
  for (const auto& [layer, expert] : hottest_first) {
    if (layer < 0 || static_cast<size_t>(layer) >= t.layers.size()) continue;
    if (expert < 0 || expert >= t.layers[static_cast<size_t>(layer)].n_expert) continue;
    if (!t.apply_one({layer, expert})) continue;
    t.at(layer, expert).of_profile = true;
    ++t.prefilled;
  }
  t.check_budget();
  return t.visit;
}

const Visit& CacheTable::rebalance(int max_swaps) {
  Impl& t = *impl_;
  t.end_visit();
  t.clear_visit();
  t.proposals.clear();
  if (max_swaps > 0) t.policy->propose(t, max_swaps, t.proposals);
  t.apply(t.proposals);
  t.check_budget();
  return t.visit;
}

const Visit& CacheTable::Impl::resize(uint64_t bytes) {
  end_visit();
  clear_visit();
  std::vector<Slots::Owner> owners;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (int expert = 0; expert < layers[layer].n_expert; ++expert) {
      const Entry& entry = at(static_cast<int>(layer), expert);
      if (entry.held) owners.push_back({id(static_cast<int>(layer), expert), static_cast<int>(layer), entry.slot});
    }
  }
  std::ranges::stable_sort(owners, [&](const Slots::Owner& a, const Slots::Owner& b) {
    return worth(a.layer, expert_of(a.owner)) > worth(b.layer, expert_of(b.owner));
  });
  std::vector<Relocation> relocations;
  std::vector<int32_t> evicted;
  slots->resize(bytes, owners, relocations, evicted);
  for (const int32_t owner : evicted) {
    ++counters[static_cast<size_t>(layer_of(owner))].evictions;
    unhold(layer_of(owner), expert_of(owner));
  }
  note_moves(relocations);
  check_budget();
  return visit;
}

const Visit& CacheTable::resize(uint64_t bytes) {
  return impl_->resize(bytes);
}

// --- views ---

bool CacheTable::holds(int layer, int expert) const {
  return impl_->holds(layer, expert);
}

std::vector<int32_t> CacheTable::held(int layer) const {
  std::vector<int32_t> experts;
  if (layer < 0 || static_cast<size_t>(layer) >= impl_->layers.size()) return experts;
  for (int e = 0; e < impl_->layers[static_cast<size_t>(layer)].n_expert; ++e) {
    if (impl_->at(layer, e).held) experts.push_back(e);
  }
  return experts;
}

int64_t CacheTable::held_count() const {
  int64_t n = 0;
  for (const int in_layer : impl_->held_by_layer) n += in_layer;
  return n;
}

uint64_t CacheTable::held_bytes() const {
  return impl_->held_bytes;
}
const Slots& CacheTable::slots() const {
  return *impl_->slots;
}
const Policy& CacheTable::policy() const {
  return *impl_->policy;
}
const CacheCounters& CacheTable::counters(int layer) const {
  return impl_->counters.at(static_cast<size_t>(layer));
}

CacheCounters CacheTable::counters() const {
  CacheCounters sum;
  for (const CacheCounters& c : impl_->counters) sum += c;
  return sum;
}

uint64_t CacheTable::prefilled() const {
  return impl_->prefilled;
}
uint64_t CacheTable::token_demand_bytes() const {
  return impl_->demand.token_bytes();
}
uint64_t CacheTable::layer_demand_bytes() const {
  return impl_->demand.layer_bytes();
}

}  // namespace moetier
