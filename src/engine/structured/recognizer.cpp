#include "engine/structured/recognizer.h"

#include <algorithm>

#include "base/error.h"

namespace moetier {
namespace {

using Kind = GrammarItem::Kind;

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

constexpr int kMostLocalFrames = 4;  // repetitions inside one another that localize() looks through
constexpr size_t kFewVisited = 24;   // so many are searched one by one

}  // namespace

template <typename Equal>
uint32_t Recognizer::Index::find(uint64_t hash, const Equal& equal) const {
  if (slots_.empty()) return kUnknown;
  for (size_t i = hash & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[i];
    if (slot.number == kUnknown || (slot.hash == hash && equal(slot.number))) return slot.number;
  }
}

void Recognizer::Index::insert(uint64_t hash, uint32_t number) {
  if ((used_ + 1) * 2 > slots_.size()) {
    std::vector<Slot> old = std::move(slots_);
    slots_.assign(std::max<size_t>(64, old.size() * 2), Slot{});
    used_ = 0;
    for (const Slot& slot : old) {
      if (slot.number != kUnknown) insert(slot.hash, slot.number);
    }
  }
  size_t i = hash & (slots_.size() - 1);
  while (slots_[i].number != kUnknown) i = (i + 1) & (slots_.size() - 1);
  slots_[i] = {hash, number};
  ++used_;
}

void Recognizer::Index::clear() {
  slots_.clear();
  used_ = 0;
}

Recognizer::Recognizer(const Grammar::Impl& grammar) : grammar_(&grammar), classes_(grammar.utf8.classes()) {
  clear();
  begin_set();
  set_complete_ = grammar.nullable[grammar.root];
  for (uint32_t i = grammar.first_start[grammar.root]; i < grammar.first_start[grammar.root + 1]; ++i) {
    close(grammar.starts[i], 0, kBottom, true);
  }
  start_ = end_set();
}

void Recognizer::clear() {
  frames_.assign(2, Frame{});
  pool_.clear();
  states_.clear();
  rows_.clear();
  frame_index_.clear();
  state_index_.clear();
  add_state({});  // kDead
}

size_t Recognizer::bytes() const {
  return frames_.size() * sizeof(Frame) + pool_.size() * sizeof(Configuration) + states_.size() * sizeof(StateRecord) +
         rows_.size() * sizeof(State) + frame_index_.bytes() + state_index_.bytes();
}

void Recognizer::out_of_work() const {
  usage_error("the grammar is too ambiguous: finding out what may come next takes more than {} steps",
              grammar_->limits.work);
}

Recognizer::State Recognizer::add_state(StateRecord record) {
  // A single search for the next token may make many states; what it may take is bounded like the cache it fills.
  if (states_.size() > 1 && bytes() > 4 * grammar_->limits.cache) {
    usage_error("the grammar is too ambiguous: finding out what may come next takes more than {} bytes",
                4 * grammar_->limits.cache);
  }
  const auto number = static_cast<State>(states_.size());
  states_.push_back(record);
  // From a state without configurations everything leads nowhere.
  rows_.insert(rows_.end(), classes_, record.size == 0 ? kDead : kUnknown);
  return number;
}

void Recognizer::begin_set() {
  set_.clear();
  set_complete_ = set_escaped_ = false;
  visited_.clear();
  visited_index_.clear();
}

Recognizer::State Recognizer::end_set() {
  std::sort(set_.begin(), set_.end());
  set_.erase(std::unique(set_.begin(), set_.end()), set_.end());
  if (set_.size() > grammar_->limits.alternatives) {
    usage_error("the grammar is too ambiguous: there are more than {} ways at once to read the text so far",
                grammar_->limits.alternatives);
  }
  work(set_.size() + 1);
  if (set_.empty() && !set_complete_ && !set_escaped_) return kDead;
  uint64_t hash = mix(set_complete_ ? 1 : 0, set_escaped_ ? 1 : 0);
  for (const Configuration& c : set_) {
    hash = mix(mix(hash, uint64_t{c.item} << 32 | c.count), uint64_t{c.stack} << 32 | c.utf8);
  }
  const State known = state_index_.find(hash, [&](State s) {
    const StateRecord& r = states_[s];
    return r.size == set_.size() && r.complete == set_complete_ && r.escaped == set_escaped_ &&
           std::equal(set_.begin(), set_.end(), pool_.begin() + r.begin);
  });
  if (known != kUnknown) return known;
  const auto begin = static_cast<uint32_t>(pool_.size());
  const State number = add_state({begin, static_cast<uint32_t>(set_.size()), set_complete_, set_escaped_});
  pool_.insert(pool_.end(), set_.begin(), set_.end());
  state_index_.insert(hash, number);
  return number;
}

uint32_t Recognizer::intern_frame(uint32_t item, uint32_t count, uint32_t parent) {
  const uint64_t hash = mix(mix(0, uint64_t{item} << 32 | count), parent);
  const uint32_t known = frame_index_.find(hash, [&](uint32_t n) {
    const Frame& f = frames_[n];
    return f.item == item && f.count == count && f.parent == parent;
  });
  if (known != kUnknown) return known;
  const auto number = static_cast<uint32_t>(frames_.size());
  frames_.push_back({item, count, parent, frames_[parent].depth + 1});
  frame_index_.insert(hash, number);
  return number;
}

/// Beyond its minimum an item without a maximum does not count on.
uint32_t Recognizer::counted(const GrammarItem& item, uint32_t count) const {
  return item.max == kUnbounded ? std::min(count, item.min) : count;
}

bool Recognizer::first_visit(const Pending& p) {
  const auto hash_of = [](const Pending& q) {
    return mix(mix(q.fresh ? 1 : 0, uint64_t{q.item} << 32 | q.count), q.stack);
  };
  if (visited_.size() < kFewVisited) {
    if (std::find(visited_.begin(), visited_.end(), p) != visited_.end()) return false;
    visited_.push_back(p);
    return true;
  }
  if (visited_.size() == kFewVisited) {
    visited_index_.clear();
    for (uint32_t i = 0; i < kFewVisited; ++i) visited_index_.insert(hash_of(visited_[i]), i);
  }
  const uint64_t hash = hash_of(p);
  if (visited_index_.find(hash, [&](uint32_t i) { return visited_[i] == p; }) != kUnknown) return false;
  visited_index_.insert(hash, static_cast<uint32_t>(visited_.size()));
  visited_.push_back(p);
  return true;
}

/// Adds to the set all configurations that the item leads to without reading anything. A rule that derives the empty
/// text is skipped where it is called, so an alternative that ends `fresh` has nothing to tell its caller.
void Recognizer::close(uint32_t item, uint32_t count, uint32_t stack, bool fresh) {
  pending_.push_back({item, count, stack, fresh});
  while (!pending_.empty()) {
    const Pending p = pending_.back();
    pending_.pop_back();
    if (first_visit(p)) enter(p);
  }
}

void Recognizer::enter(const Pending& p) {
  work(1);
  const GrammarItem& item = grammar_->items[p.item];
  if (item.kind == Kind::end) return leave(p);
  if (p.count >= item.min) pending_.push_back({p.item + 1, 0, p.stack, p.fresh});
  if (item.kind == Kind::call) return call(p);
  if (p.count < item.max) {
    set_.push_back({p.item, p.count, p.stack, item.kind == Kind::chars ? item.target : Utf8Automaton::kDead});
    if (set_.size() > grammar_->limits.alternatives) end_set();  // says so, unless they are few after all
  }
}

void Recognizer::call(const Pending& p) {
  const GrammarItem& item = grammar_->items[p.item];
  if (p.count < item.min && grammar_->nullable[item.target]) pending_.push_back({p.item + 1, 0, p.stack, p.fresh});
  if (p.count >= item.max) return;
  uint32_t stack = p.stack;
  bool fresh = p.fresh;
  // The last call of an alternative returns to where the alternative would: lists written by recursion need no stack.
  const bool last = grammar_->items[p.item + 1].kind == Kind::end && p.count + 1 == item.max;
  if (!last) {
    if (frames_[p.stack].depth >= grammar_->limits.stack) return;  // this way is given up
    stack = intern_frame(p.item, p.count, p.stack);
    fresh = true;
  }
  for (uint32_t i = grammar_->first_start[item.target]; i < grammar_->first_start[item.target + 1]; ++i) {
    pending_.push_back({grammar_->starts[i], 0, stack, fresh});
  }
}

void Recognizer::leave(const Pending& p) {
  if (p.fresh) return;
  if (p.stack == kBottom) {
    set_complete_ = true;
  } else if (p.stack == kOutside) {
    set_escaped_ = true;
  } else {
    const Frame& f = frames_[p.stack];
    pending_.push_back({f.item, counted(grammar_->items[f.item], f.count + 1), f.parent, false});
  }
}

Recognizer::State Recognizer::compute_step(State state, uint32_t byte_class) {
  const State next = find_step(state, byte_class, false);
  rows_[state * size_t{classes_} + byte_class] = next;
  return next;
}

Recognizer::State Recognizer::find_step(State state, uint32_t byte_class, bool literal) {
  begin_set();
  const StateRecord record = states_[state];
  for (uint32_t i = 0; i < record.size; ++i) {
    Configuration c = pool_[record.begin + i];
    if (literal && !grammar_->items[c.item].single) continue;
    c.utf8 = grammar_->utf8.step(c.utf8, byte_class);
    if (c.utf8 == Utf8Automaton::kAccept) {
      close(c.item, counted(grammar_->items[c.item], c.count + 1), c.stack, false);
    } else if (c.utf8 != Utf8Automaton::kDead) {
      set_.push_back(c);
    }
  }
  return end_set();
}

Recognizer::State Recognizer::step(State state, std::string_view bytes) {
  for (const char byte : bytes) state = step(state, static_cast<uint8_t>(byte));
  return state;
}

Recognizer::State Recognizer::step_token(State state, TokenId token) {
  if (!grammar_->has_tokens) return kDead;
  begin_set();
  const StateRecord record = states_[state];
  for (uint32_t i = 0; i < record.size; ++i) {
    const Configuration c = pool_[record.begin + i];
    const GrammarItem& item = grammar_->items[c.item];
    if (item.kind == Kind::chars || (item.target == static_cast<uint32_t>(token)) != (item.kind == Kind::token))
      continue;
    close(c.item, counted(item, c.count + 1), c.stack, false);
  }
  return end_set();
}

Recognizer::State Recognizer::unite(State a, State b) {
  if (a == kDead || a == b) return b;
  if (b == kDead) return a;
  begin_set();
  for (const State s : {a, b}) {
    const auto c = configurations(s);
    set_.insert(set_.end(), c.begin(), c.end());
    set_complete_ |= states_[s].complete;
    set_escaped_ |= states_[s].escaped;
  }
  return end_set();
}

/// A count that does the same for `longest` more repetitions: it stays away from minimum and maximum as far as it was,
/// or farther than that.
uint32_t Recognizer::cut_count(const GrammarItem& item, uint32_t count, size_t longest) const {
  if (longest >= kUnbounded) return count;
  const auto far = static_cast<uint32_t>(longest) + 1;
  if (count < item.min) return item.min - std::min(item.min - count, far);
  if (item.max == kUnbounded || item.max - count <= far) return count;
  return std::max(item.min, item.max - far);
}

Recognizer::Local Recognizer::localize(const Configuration& c, size_t longest) {
  const uint32_t count = cut_count(grammar_->items[c.item], c.count, longest);
  uint32_t kept[kMostLocalFrames];
  int n = 0;
  Local local;
  local.frame = c.stack;
  while (n < kMostLocalFrames && local.frame != kBottom && local.frame != kOutside &&
         grammar_->items[frames_[local.frame].item].max > 1) {
    kept[n++] = local.frame;
    local.frame = frames_[local.frame].parent;
  }
  uint32_t stack = kOutside;
  while (n > 0) {
    const Frame f = frames_[kept[--n]];
    stack = intern_frame(f.item, cut_count(grammar_->items[f.item], f.count, longest), stack);
  }
  begin_set();
  set_.push_back({c.item, count, stack, c.utf8});
  local.state = end_set();
  return local;
}

Recognizer::State Recognizer::after_return(uint32_t frame) {
  begin_set();
  const Frame f = frames_[frame];
  close(f.item, counted(grammar_->items[f.item], f.count + 1), f.parent, false);
  return end_set();
}

uint32_t Recognizer::copy_frames(const std::vector<Frame>& from, uint32_t frame, std::vector<uint32_t>& copied) {
  std::vector<uint32_t> path;
  while (copied[frame] == kUnknown) {
    path.push_back(frame);
    frame = from[frame].parent;
  }
  uint32_t number = copied[frame];
  while (!path.empty()) {
    const Frame& f = from[path.back()];
    number = copied[path.back()] = intern_frame(f.item, f.count, number);
    path.pop_back();
  }
  return number;
}

Recognizer::State Recognizer::reset(State keep) {
  const std::vector<Frame> frames = std::move(frames_);
  const auto span = configurations(keep);
  const std::vector<Configuration> kept(span.begin(), span.end());
  const StateRecord record = states_[keep];
  clear();
  std::vector<uint32_t> copied(frames.size(), kUnknown);
  copied[kBottom] = kBottom;
  copied[kOutside] = kOutside;
  begin_set();
  for (Configuration c : kept) {
    c.stack = copy_frames(frames, c.stack, copied);
    set_.push_back(c);
  }
  set_complete_ = record.complete;
  set_escaped_ = record.escaped;
  start_ = kDead;  // no longer known
  return end_set();
}

}  // namespace moetier
