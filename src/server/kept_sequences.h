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

/// Cuts a sequence to its first `length` positions. A state that cannot be cut there is emptied, so look at
/// tokens.size() afterwards.
void cut(HeldSequence& held, size_t length);

/// The first `length` positions of a sequence, sharing its pages; fewer if its state cannot be cut there.
HeldSequence fork_prefix(const HeldSequence& held, size_t length);

/// Least recently used first. Pages that several sequences hold count once, so keeping a sequence whose beginning
/// another one holds costs only what differs.
class KeptSequences {
 public:
  explicit KeptSequences(size_t most) : most_(most) {}
  /// Keeps a sequence, unless one that is kept begins with all of it. Those that it begins with are dropped, and the
  /// oldest above the number allowed.
  void keep(HeldSequence held);
  /// The one with the longest common prefix, as used just now, and how long that is; nullptr and 0 if nothing fits.
  std::pair<const HeldSequence*, size_t> find(std::span<const TokenId> prompt);
  /// False if there is none.
  bool drop_oldest();
  void clear() { kept_.clear(); }
  size_t size() const { return kept_.size(); }

 private:
  size_t most_;
  std::list<HeldSequence> kept_;
};

}  // namespace moetier
