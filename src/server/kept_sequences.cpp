#include "server/kept_sequences.h"

#include <algorithm>
#include <utility>

namespace moetier {

size_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t most = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(most), b.begin()).first -
                             a.begin());
}

void cut(HeldSequence& held, size_t length) {
  if (length >= held.tokens.size()) return;
  held.state.truncate(static_cast<int64_t>(length));
  held.tokens.resize(static_cast<size_t>(held.state.length()));
}

HeldSequence fork_prefix(const HeldSequence& held, size_t length) {
  HeldSequence fork{held.state.fork(), held.tokens};
  cut(fork, length);
  return fork;
}

void KeptSequences::keep(HeldSequence held) {
  if (held.tokens.empty() || most_ == 0) return;
  for (auto it = kept_.begin(); it != kept_.end();) {
    const size_t same = common_prefix(it->tokens, held.tokens);
    if (same == held.tokens.size()) {
      kept_.splice(kept_.end(), kept_, it);
      return;
    }
    it = same == it->tokens.size() ? kept_.erase(it) : std::next(it);
  }
  kept_.push_back(std::move(held));
  while (kept_.size() > most_) kept_.pop_front();
}

std::vector<PrefixMatch> KeptSequences::find(std::span<const TokenId> prompt) const {
  std::vector<PrefixMatch> matches;
  for (const HeldSequence& held : kept_) {
    if (const size_t same = common_prefix(held.tokens, prompt); same > 0) matches.push_back({&held, same});
  }
  return matches;
}

void KeptSequences::used(const HeldSequence* held) {
  const auto it = std::find_if(kept_.begin(), kept_.end(), [&](const HeldSequence& each) { return &each == held; });
  if (it != kept_.end()) kept_.splice(kept_.end(), kept_, it);
}

bool KeptSequences::drop_oldest() {
  if (kept_.empty()) return false;
  kept_.pop_front();
  return true;
}

}  // namespace moetier
