#include "engine/penalties.h"

namespace moetier {

Penalties::Penalties(float repeat, float presence, float frequency, int window)
    : repeat_(repeat), presence_(presence), frequency_(frequency), window_(window) {}

void Penalties::accept(TokenId token) {
  if (token < 0 || !active()) return;
  const auto index = static_cast<size_t>(token);
  if (index >= counts_.size()) {
    counts_.resize(index + index / 2 + 64);
    listed_.resize(counts_.size());
  }
  if (window_ > 0) {
    if (ring_.size() < static_cast<size_t>(window_)) {
      ring_.push_back(token);
    } else {
      forget(ring_[next_]);
      ring_[next_] = token;
      next_ = (next_ + 1) % ring_.size();
    }
  }
  ++counts_[index];
  if (!listed_[index]) {
    listed_[index] = true;
    seen_.push_back(token);
  }
}

void Penalties::apply(std::span<float> logits) {
  if (!active()) return;
  if (counts_.size() < logits.size()) {  // now the vocabulary is known: room for all, so that a token allocates nothing
    counts_.resize(logits.size());
    listed_.resize(logits.size());
    seen_.reserve(logits.size());
  }
  for (size_t i = 0; i < seen_.size();) {
    const auto index = static_cast<size_t>(seen_[i]);
    const int32_t count = counts_[index];
    if (count == 0) {  // it left the window
      listed_[index] = false;
      seen_[i] = seen_.back();
      seen_.pop_back();
      continue;
    }
    ++i;
    if (index >= logits.size()) continue;
    float& logit = logits[index];
    logit = logit > 0 ? logit / repeat_ : logit * repeat_;
    logit = sane_logit(logit - (static_cast<float>(count) * frequency_ + presence_));
  }
}

void Penalties::reset() {
  for (const TokenId token : seen_) {
    counts_[static_cast<size_t>(token)] = 0;
    listed_[static_cast<size_t>(token)] = false;
  }
  seen_.clear();
  ring_.clear();
  next_ = 0;
}

}  // namespace moetier
