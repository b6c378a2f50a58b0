#include "experts/table_state.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace moetier {
namespace {
constexpr size_t kFewMoves = 64;  // more than an extent has slots
}

TableState::TableState(std::vector<LayerShape> shapes, std::unique_ptr<Policy> its_policy,
                       std::unique_ptr<Slots> its_slots)
    : layers(std::move(shapes)),
      policy(std::move(its_policy)),
      slots(std::move(its_slots)),
      counters(layers.size()),
      held_by_layer(layers.size(), 0),
      coldest_(layers.size(), kUnknown),
      layers_of_class_(static_cast<size_t>(slots->classes())) {
  base_.push_back(0);
  int most = 0;
  for (size_t l = 0; l < layers.size(); ++l) {
    base_.push_back(base_.back() + layers[l].n_expert);
    layer_of_.insert(layer_of_.end(), static_cast<size_t>(layers[l].n_expert), static_cast<int32_t>(l));
    layers_of_class_[static_cast<size_t>(slots->class_of(static_cast<int>(l)))].push_back(static_cast<int>(l));
    most = std::max(most, layers[l].n_expert);
  }
  entries_.resize(static_cast<size_t>(base_.back()));
  visit.placements.reserve(static_cast<size_t>(most));
  cold_.reserve(entries_.size());
  relocations_.reserve(kFewMoves);
  visit.moves.reserve(kFewMoves);
}

int TableState::layer_of(int32_t id) const {
  return layer_of_[static_cast<size_t>(id)];
}

bool TableState::holds(int layer, int expert) const {
  if (layer < 0 || static_cast<size_t>(layer) >= layers.size()) return false;
  if (expert < 0 || expert >= layers[static_cast<size_t>(layer)].n_expert) return false;
  return at(layer, expert).held;
}

int TableState::coldest(int layer) {
  int& known = coldest_[static_cast<size_t>(layer)];
  if (known != kUnknown) return known;
  known = kNone;
  if (held_by_layer[static_cast<size_t>(layer)] == 0) return known;
  const std::span<const double> keys = policy->keys(layer);
  const Entry* const entries = &at(layer, 0);
  double lowest = std::numeric_limits<double>::infinity();
  for (size_t e = 0; e < keys.size(); ++e) {
    if (!entries[e].held || (layer == busy_layer && entries[e].stamp >= kept_from)) continue;
    if (known >= 0 && keys[e] >= lowest) continue;
    known = static_cast<int>(e);
    lowest = keys[e];
  }
  return known;
}

int TableState::coldest_layer(int size_class) {
  int best = kNone;
  double lowest = 0;
  for (const int layer : layers_of_class_[static_cast<size_t>(size_class)]) {
    const int expert = coldest(layer);
    if (expert < 0) continue;
    const double value = policy->value(layer, policy->keys(layer)[static_cast<size_t>(expert)]);
    if (best >= 0 && value >= lowest) continue;
    best = layer;
    lowest = value;
  }
  return best;
}

bool TableState::take(int layer, int expert) {
  const std::optional<uint64_t> slot = slots->take(layer, id(layer, expert));
  if (!slot) return false;
  Entry& entry = at(layer, expert);
  entry.slot = *slot;
  entry.held = true;
  entry.of_profile = false;
  ++held_by_layer[static_cast<size_t>(layer)];
  held_bytes += layers[static_cast<size_t>(layer)].entry_bytes;
  coldest_[static_cast<size_t>(layer)] = kUnknown;
  return true;
}

void TableState::unhold(int layer, int expert) {
  Entry& entry = at(layer, expert);
  entry.held = entry.of_profile = false;
  --held_by_layer[static_cast<size_t>(layer)];
  held_bytes -= layers[static_cast<size_t>(layer)].entry_bytes;
  coldest_[static_cast<size_t>(layer)] = kUnknown;
}

void TableState::drop(int layer, int expert) {
  slots->give_back(layer, at(layer, expert).slot);
  unhold(layer, expert);
}

void TableState::evict(int layer, int expert) {
  ++counters[static_cast<size_t>(layer)].evictions;
  drop(layer, expert);
  std::erase_if(visit.fills, [&](const Fill& f) { return f.layer == layer && f.expert == expert; });
}

/// All entries of a class that may go, in cold_.
void TableState::gather(int size_class) {
  cold_.clear();
  for (const int layer : layers_of_class_[static_cast<size_t>(size_class)]) {
    if (held_by_layer[static_cast<size_t>(layer)] == 0) continue;
    const std::span<const double> keys = policy->keys(layer);
    for (size_t e = 0; e < keys.size(); ++e) {
      const Entry& entry = at(layer, static_cast<int>(e));
      if (!entry.held || (layer == busy_layer && entry.stamp >= kept_from)) continue;
      cold_.push_back({policy->worth(layer, keys[e]), id(layer, static_cast<int>(e))});
    }
  }
}

/// Evicts the coldest of a class, so many, if each is worth less than `below`.
bool TableState::empty_extent(int from, int64_t evictions, double below) {
  if (evictions <= 0) return true;
  gather(from);
  if (static_cast<int64_t>(cold_.size()) < evictions) return false;
  const auto nth = cold_.begin() + (evictions - 1);
  const auto colder = [](const Cold& a, const Cold& b) { return a.worth != b.worth ? a.worth < b.worth : a.id < b.id; };
  std::ranges::nth_element(cold_, nth, colder);
  if (!(nth->worth < below)) return false;
  for (auto it = cold_.begin(); it <= nth; ++it) evict(layer_of(it->id), expert_of(it->id));
  return true;
}

bool TableState::exchange(int layer, int expert) {
  if (slots->classes() < 2) return false;
  const int to = slots->class_of(layer);
  const bool full = in_pieces && coldest_layer(to) < 0;
  if (exchanged_ && !full) return false;
  exchanged_ = exchanged_ || !full;  // at most one try per visit while something here may go
  double below = full ? std::numeric_limits<double>::infinity() : worth(layer, expert);
  for (const int l : layers_of_class_[static_cast<size_t>(to)]) {
    const int c = coldest(l);
    if (c >= 0) below = std::min(below, worth(l, c));
  }
  int best = kNone;
  double lowest = below;
  for (int from = 0; from < slots->classes(); ++from) {
    const int64_t needs = slots->convert_needs(from);
    if (from == to || needs == 0) continue;
    double its = below;
    if (slots->free_count(from) >= needs) its = -std::numeric_limits<double>::infinity();
    for (const int l : layers_of_class_[static_cast<size_t>(from)]) {
      const int c = coldest(l);
      if (c >= 0) its = std::min(its, worth(l, c));
    }
    if (its < lowest) {
      lowest = its;
      best = from;
    }
  }
  if (best < 0) return false;
  if (!empty_extent(best, slots->convert_needs(best) - slots->free_count(best), below)) return false;
  relocations_.clear();
  if (!slots->convert(best, to, relocations_)) return false;
  note_moves(relocations_);
  return true;
}

void TableState::note_moves(std::span<const Relocation> relocations) {
  for (const Relocation& r : relocations) {
    const int layer = layer_of(r.owner), expert = expert_of(r.owner);
    at(layer, expert).slot = r.to;
    visit.moves.push_back({r.from, r.to, r.bytes});
    for (Fill& fill : visit.fills) {
      if (fill.layer == layer && fill.expert == expert) fill.slot = r.to;
    }
  }
}

void TableState::clear_visit() {
  visit.moves.clear();
  visit.fills.clear();
  visit.placements.clear();
  exchanged_ = false;
}

void TableState::end_visit() {
  if (busy_layer < 0) return;
  coldest_[static_cast<size_t>(busy_layer)] = kUnknown;
  busy_layer = kNone;
}

void TableState::check_budget() const {
  if (slots->taken_bytes() > slots->capacity_bytes() || held_bytes > slots->taken_bytes()) {
    fail("the expert cache holds {} bytes in {} of {}; this is a fault of the program", held_bytes,
         slots->taken_bytes(), slots->capacity_bytes());
  }
}

}  // namespace moetier
