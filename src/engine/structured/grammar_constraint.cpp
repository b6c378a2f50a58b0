// Grammars as constraints on tokens.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "engine/structured/token_masks.h"

namespace moetier {
namespace {

using State = Recognizer::State;

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

class GrammarConstraint final : public TokenConstraint {
 public:
  GrammarConstraint(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const GrammarVocabulary> vocabulary)
      : grammar_(std::move(grammar)),
        vocabulary_(std::move(vocabulary)),
        recognizer_(grammar_->impl()),
        masks_(grammar_->impl(), vocabulary_->impl()),
        state_(recognizer_.start()) {}

  void mask(std::span<float> logits) override;
  void accept(TokenId token) override;
  bool complete() const override { return !ended_ && recognizer_.complete(state_); }
  bool finished() const override {
    return ended_ || (recognizer_.complete(state_) && recognizer_.configurations(state_).empty());
  }
  std::unique_ptr<TokenConstraint> clone() const override { return std::make_unique<GrammarConstraint>(*this); }

  /// Follows a text; false, and no change, if the grammar does not allow it.
  bool accept_text(std::string_view text);

 private:
  /// Keeps the memory within its bound.
  void tidy();

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  Recognizer recognizer_;
  TokenMasks masks_;
  State state_;
  bool ended_ = false;
};

void GrammarConstraint::tidy() {
  recognizer_.begin_work();
  const size_t most = grammar_->impl().limits.cache;
  if (recognizer_.bytes() + masks_.bytes() <= most) return;
  state_ = recognizer_.reset(state_);
  masks_.clear();
}

void GrammarConstraint::mask(std::span<float> logits) {
  if (ended_) {
    std::fill(logits.begin(), logits.end(), kForbidden);
    return;
  }
  tidy();
  const GrammarVocabulary::Impl& v = vocabulary_->impl();
  const TokenBits& bits = masks_.mask(recognizer_, state_);
  const size_t known = std::min(logits.size(), static_cast<size_t>(v.size));
  std::vector<std::pair<size_t, float>> ends;  // kept aside: a vocabulary has a handful
  if (recognizer_.complete(state_)) {
    for (const TokenId id : v.end_tokens) {
      const auto i = static_cast<size_t>(id);
      if (i < known) ends.emplace_back(i, logits[i]);
    }
  }
  for (size_t i = 0; i < known;) {
    const uint64_t word = bits[i / 64];
    const size_t end = std::min(i + 64, known);
    if (word == 0) {
      for (; i < end; ++i) logits[i] = kForbidden;
    } else if (word == UINT64_MAX) {
      i = end;
    } else {
      for (uint64_t rest = word; i < end; ++i, rest >>= 1) {
        if ((rest & 1) == 0) logits[i] = kForbidden;
      }
    }
  }
  std::fill(logits.begin() + static_cast<ptrdiff_t>(known), logits.end(), kForbidden);
  for (const auto& [i, logit] : ends) logits[i] = logit;
}

bool GrammarConstraint::accept_text(std::string_view text) {
  tidy();
  const State next = recognizer_.step(state_, text);
  if (!recognizer_.viable(next)) return false;
  state_ = next;
  return true;
}

void GrammarConstraint::accept(TokenId token) {
  const GrammarVocabulary::Impl& v = vocabulary_->impl();
  if (token < 0 || token >= v.size) fail("token {} is not in the vocabulary, so the grammar cannot follow it", token);
  if (ended_) fail("the generation has ended, so token {} cannot follow", token);
  if (v.ends[static_cast<size_t>(token)]) {
    if (!recognizer_.complete(state_)) fail("token {} ends the text before the grammar does", token);
    ended_ = true;
    return;
  }
  tidy();
  const std::string_view text = v.text_of(token);
  State by_text = text.empty() ? Recognizer::kDead : state_;
  for (const char byte : text) {
    const auto b = static_cast<uint8_t>(byte);
    by_text =
        v.controls[static_cast<size_t>(token)] ? recognizer_.step_literal(by_text, b) : recognizer_.step(by_text, b);
  }
  const State next = recognizer_.unite(by_text, recognizer_.step_token(state_, token));
  if (!recognizer_.viable(next)) fail("the grammar does not allow token {} ('{}') here", token, text);
  state_ = next;
}

/// Sleeps until a trigger comes.
class LazyConstraint final : public TokenConstraint {
 public:
  LazyConstraint(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const GrammarVocabulary> vocabulary,
                 std::vector<std::string> triggers)
      : grammar_(std::move(grammar)), vocabulary_(std::move(vocabulary)), triggers_(std::move(triggers)) {
    for (const std::string& t : triggers_) {
      if (t.empty()) usage_error("a trigger of a grammar is empty; leave the triggers out to begin at once");
      longest_ = std::max(longest_, t.size());
    }
  }
  LazyConstraint(const LazyConstraint& other)
      : grammar_(other.grammar_),
        vocabulary_(other.vocabulary_),
        triggers_(other.triggers_),
        longest_(other.longest_),
        tail_(other.tail_),
        ended_(other.ended_),
        awake_(other.awake_ ? std::make_unique<GrammarConstraint>(*other.awake_) : nullptr) {}

  void mask(std::span<float> logits) override {
    if (awake_) return awake_->mask(logits);
    if (ended_) std::fill(logits.begin(), logits.end(), kForbidden);
  }
  void accept(TokenId token) override;
  bool complete() const override { return awake_ ? awake_->complete() : !ended_; }
  bool finished() const override { return awake_ ? awake_->finished() : ended_; }
  std::unique_ptr<TokenConstraint> clone() const override { return std::make_unique<LazyConstraint>(*this); }

 private:
  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::vector<std::string> triggers_;
  size_t longest_ = 0;
  std::string tail_;  // the end of the text, where a trigger may have begun
  bool ended_ = false;
  std::unique_ptr<GrammarConstraint> awake_;
};

void LazyConstraint::accept(TokenId token) {
  if (awake_) return awake_->accept(token);
  const GrammarVocabulary::Impl& v = vocabulary_->impl();
  if (token < 0 || token >= v.size) fail("token {} is not in the vocabulary, so the grammar cannot follow it", token);
  if (ended_) fail("the generation has ended, so token {} cannot follow", token);
  if (v.ends[static_cast<size_t>(token)]) {
    ended_ = true;
    return;
  }
  const size_t before = tail_.size();
  tail_ += v.text_of(token);
  // The first trigger that this token completes, from its first byte on.
  for (size_t begin = 0; begin < tail_.size(); ++begin) {
    for (const std::string& trigger : triggers_) {
      if (begin + trigger.size() <= before || tail_.compare(begin, trigger.size(), trigger) != 0) continue;
      auto awake = std::make_unique<GrammarConstraint>(grammar_, vocabulary_);
      if (!awake->accept_text(std::string_view(tail_).substr(begin))) continue;
      awake_ = std::move(awake);
      tail_.clear();
      return;
    }
  }
  if (tail_.size() >= longest_) tail_.erase(0, tail_.size() - (longest_ - 1));
}

}  // namespace

std::unique_ptr<TokenConstraint> make_grammar_constraint(std::shared_ptr<const Grammar> grammar,
                                                         std::shared_ptr<const GrammarVocabulary> vocabulary) {
  return std::make_unique<GrammarConstraint>(std::move(grammar), std::move(vocabulary));
}

std::unique_ptr<TokenConstraint> make_lazy_grammar_constraint(std::shared_ptr<const Grammar> grammar,
                                                              std::shared_ptr<const GrammarVocabulary> vocabulary,
                                                              std::vector<std::string> triggers) {
  if (triggers.empty()) return make_grammar_constraint(std::move(grammar), std::move(vocabulary));
  return std::make_unique<LazyConstraint>(std::move(grammar), std::move(vocabulary), std::move(triggers));
}

bool grammar_matches(const Grammar& grammar, std::string_view text) {
  Recognizer recognizer(grammar.impl());
  State state = recognizer.start();
  for (const char byte : text) {
    recognizer.begin_work();
    if (recognizer.bytes() > grammar.impl().limits.cache) state = recognizer.reset(state);
    state = recognizer.step(state, static_cast<uint8_t>(byte));
    if (state == Recognizer::kDead) return false;
  }
  return recognizer.complete(state);
}

}  // namespace moetier
