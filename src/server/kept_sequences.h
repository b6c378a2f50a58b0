// Finished sequences that are kept for their prefixes: a new prompt that begins like one of them shares its pages.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "engine/state.h"
#include "tokenizer/tokenizer.h"

namespace moetier {

/// How many tokens both begin with.
size_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b);

/// A sequence and the tokens it holds.
struct HeldSequence {
  SequenceState state;
  std::vector<TokenId> tokens;
};

/// Cuts a sequence to its first `length` positions, or to fewer where its state cannot be cut there: look at
/// tokens.size() afterwards.
void cut(HeldSequence& held, size_t length);

/// The first `length` positions of a sequence, sharing its pages; fewer if its state cannot be cut there.
HeldSequence fork_prefix(const HeldSequence& held, size_t length);

/// A sequence that begins as a prompt does, and for how long.
struct PrefixMatch {
  const HeldSequence* held;
  size_t length;
};

/// Least recently used first. Pages that several sequences hold count once, so keeping a sequence whose beginning
/// another one holds costs only what differs.
class KeptSequences {
 public:
  explicit KeptSequences(size_t most) : most_(most) {}
  /// Keeps a sequence, unless one that is kept begins with all of it. Those that it begins with are dropped, and the
  /// oldest above the number allowed.
  void keep(HeldSequence held);
  /// Those that begin as the prompt does; valid until the next call that is not const.
  std::vector<PrefixMatch> find(std::span<const TokenId> prompt) const;
  /// One of them was used just now.
  void used(const HeldSequence* held);
  /// False if there is none.
  bool drop_oldest();
  void clear() { kept_.clear(); }
  size_t size() const { return kept_.size(); }

 private:
  size_t most_;
  std::list<HeldSequence> kept_;
};

}  // namespace moetier
