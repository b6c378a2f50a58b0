// Follows a grammar byte by byte: a pushdown automaton whose sets of configurations are numbered and whose steps are
// remembered, so that a text which comes back to a state costs a table look-up per byte.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/structured/grammar_program.h"

namespace moetier {

/// One way to read the text so far: it waits for a byte of the character at `item`.
struct Configuration {
  uint32_t item = 0;   ///< of kind chars, token or other
  uint32_t count = 0;  ///< repetitions of the item that are done
  uint32_t stack = 0;  ///< who called the item's rule: a frame
  uint32_t utf8 = 0;   ///< node of the automaton: how much of the character is read
  auto operator<=>(const Configuration&) const = default;
};

/// States, frames and their numbers live until reset(). Not safe from several threads.
class Recognizer {
 public:
  using State = uint32_t;
  static constexpr State kDead = 0;        ///< no way to read this
  static constexpr uint32_t kBottom = 0;   ///< the frame below the root rule
  static constexpr uint32_t kOutside = 1;  ///< a frame of which nothing is known: whoever called
  /// A call in progress, or what is on the way to it.
  struct Frame {
    uint32_t item = 0, count = 0;  ///< the calling item, and its repetitions done before this one
    uint32_t parent = 0;           ///< the frame of the rule that the item stands in
    uint32_t depth = 0;
  };

  explicit Recognizer(const Grammar::Impl& grammar);

  State start() { return start_; }
  /// The state after one more byte. Errors: limits on ways at once, and on work since begin_work().
  State step(State state, uint8_t byte) { return step_class(state, grammar_->utf8.byte_class(byte)); }
  State step_class(State state, uint32_t byte_class) {
    const State known = rows_[state * classes_ + byte_class];
    return known != kUnknown ? known : compute_step(state, byte_class);
  }
  State step(State state, std::string_view bytes);
  /// The state after one more byte of a literal: what takes several characters is left out. Not remembered.
  State step_literal(State state, uint8_t byte) { return find_step(state, grammar_->utf8.byte_class(byte), true); }
  /// The state after a token that stands for itself, whatever its bytes.
  State step_token(State state, TokenId token);
  State unite(State a, State b);

  std::span<const Configuration> configurations(State state) const {
    return {pool_.data() + states_[state].begin, states_[state].size};
  }
  /// The text so far is whole.
  bool complete(State state) const { return states_[state].complete; }
  /// The rule that kOutside called has ended.
  bool escaped(State state) const { return states_[state].escaped; }
  /// Some text leads from here to a whole one (every configuration can be completed).
  bool viable(State state) const { return states_[state].size > 0 || states_[state].complete; }

  const Frame& frame(uint32_t number) const { return frames_[number]; }
  /// A configuration by itself, under a stack of which only the frames up to the first are kept that are no repetition,
  /// and whose counts are cut to what `longest` more bytes can tell apart. Equal texts of that length do the same from
  /// it, up to where they escape; then they go on at `frame`'s return (see after_return).
  struct Local {
    State state = kDead;
    uint32_t frame = kBottom;
  };
  Local localize(const Configuration& configuration, size_t longest);
  /// The state when the call of this frame (not kBottom) has just ended.
  State after_return(uint32_t frame);

  void begin_work() { work_ = 0; }
  /// Counts steps against the limit.
  void work(size_t steps) {
    if ((work_ += steps) > grammar_->limits.work) out_of_work();
  }
  size_t bytes() const;
  /// Forgets everything but what this state is made of, and returns its new number.
  State reset(State keep);

 private:
  static constexpr State kUnknown = UINT32_MAX;
  struct StateRecord {
    uint32_t begin = 0, size = 0;  ///< in pool_
    bool complete = false, escaped = false;
  };
  /// What close() looks at: an item to be entered. `fresh`: nothing was read since its rule was called.
  struct Pending {
    uint32_t item, count, stack;
    bool fresh;
    bool operator==(const Pending&) const = default;
  };
  /// Open addressing, from hashes to numbers; equality is the caller's.
  class Index {
   public:
    /// kUnknown if `equal` holds for none of the numbers with this hash.
    template <typename Equal>
    uint32_t find(uint64_t hash, const Equal& equal) const;
    void insert(uint64_t hash, uint32_t number);
    void clear();
    size_t bytes() const { return slots_.capacity() * sizeof(Slot); }

   private:
    struct Slot {
      uint64_t hash = 0;
      uint32_t number = kUnknown;
    };
    std::vector<Slot> slots_;
    size_t used_ = 0;
  };

  State compute_step(State state, uint32_t byte_class);
  State find_step(State state, uint32_t byte_class, bool literal);
  void begin_set();
  void close(uint32_t item, uint32_t count, uint32_t stack, bool fresh);
  void enter(const Pending& pending);
  void call(const Pending& pending);
  void leave(const Pending& pending);
  bool first_visit(const Pending& pending);
  uint32_t counted(const GrammarItem& item, uint32_t count) const;
  uint32_t cut_count(const GrammarItem& item, uint32_t count, size_t longest) const;
  State end_set();
  State add_state(StateRecord record);
  uint32_t intern_frame(uint32_t item, uint32_t count, uint32_t parent);
  uint32_t copy_frames(const std::vector<Frame>& from, uint32_t frame, std::vector<uint32_t>& copied);
  void clear();
  [[noreturn]] void out_of_work() const;

  const Grammar::Impl* grammar_;
  uint32_t classes_;
  State start_ = kDead;
  std::vector<Frame> frames_;
  std::vector<Configuration> pool_;
  std::vector<StateRecord> states_;
  std::vector<State> rows_;  // [state][class]
  Index frame_index_, state_index_;
  size_t work_ = 0;

  // The set under construction.
  std::vector<Configuration> set_;
  bool set_complete_ = false, set_escaped_ = false;
  std::vector<Pending> pending_, visited_;
  Index visited_index_;  // used when there are many
};

}  // namespace moetier
