// Which tokens may come next in a state of the recognizer.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/structured/recognizer.h"
#include "engine/structured/token_trie.h"

namespace moetier {

/// A set of tokens, one bit each.
using TokenBits = std::vector<uint64_t>;

/// Finds masks by walking the trie, and remembers them. What a rule does by itself is found once for all its callers
/// (the idea of XGrammar, Dong et al. 2024: most tokens do not depend on the stack): the walk under an unknown caller
/// gives the tokens that stay inside, and the nodes at which the rule may end; only behind those the real stack is
/// asked.
class TokenMasks {
 public:
  TokenMasks(const Grammar::Impl& grammar, const GrammarVocabulary::Impl& vocabulary)
      : grammar_(&grammar), vocabulary_(&vocabulary) {}

  /// Tokens allowed in the state, but for those that end the generation. Valid until the next call.
  const TokenBits& mask(Recognizer& recognizer, Recognizer::State state);
  size_t bytes() const { return bytes_; }
  /// Must follow Recognizer::reset().
  void clear();

 private:
  /// What a configuration allows whoever called: a few tokens as a list, more as bits.
  struct LocalMask {
    TokenBits bits;
    std::vector<TokenId> few;
    std::vector<uint32_t> escapes;  // nodes at which the caller may go on
  };
  void add_configuration(Recognizer& recognizer, const Configuration& c, TokenBits& bits);
  void add_tokens(const Configuration& c, TokenBits& bits) const;
  const LocalMask& local_mask(Recognizer& recognizer, Recognizer::State state);
  void walk(Recognizer& recognizer, Recognizer::State state, uint32_t node, TokenBits& bits,
            std::vector<uint32_t>* escapes);
  void add_controls(Recognizer& recognizer, Recognizer::State state, TokenBits& bits);
  static void set_node(const TokenTrie& trie, uint32_t node, TokenBits& bits);
  size_t words() const { return (static_cast<size_t>(vocabulary_->size) + 63) / 64; }

  const Grammar::Impl* grammar_;
  const GrammarVocabulary::Impl* vocabulary_;
  std::unordered_map<Recognizer::State, TokenBits> masks_;
  std::unordered_map<Recognizer::State, LocalMask> local_;
  std::vector<Recognizer::State> path_;  // of a walk, by depth
  size_t bytes_ = 0;
};

}  // namespace moetier
