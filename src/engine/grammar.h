// Grammars in GBNF, the notation of stock llama.cpp, and constraints made from them. docs/structured-output.md has the
// notation and the limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/constraint.h"
#include "tokenizer/tokenizer.h"

namespace moetier {

/// Bounds on a grammar. It comes from a request, so it is hostile until proven otherwise.
struct GrammarLimits {
  size_t source = size_t{1} << 20;  ///< bytes of the text
  size_t items = 200'000;           ///< symbols on all right-hand sides
  int nesting = 200;                ///< groups inside one another
  uint32_t repetition = 1'000'000;  ///< the numbers in {m,n}
  size_t stack = 10'000;            ///< rules inside one another in a text; a branch that is deeper is dropped
  size_t alternatives = 20'000;     ///< ways at once to read the text so far
  size_t work = 30'000'000;         ///< steps to find out what one next token may be
  size_t cache = size_t{64} << 20;  ///< bytes of what one constraint remembers
};

/// A compiled grammar: immutable, independent of any vocabulary, safe from many threads.
class Grammar {
 public:
  struct Impl;  ///< engine/structured/grammar_program.h

  /// Compiles GBNF whose start is the rule `root`. Errors (usage) carry line and column: a syntax error, an undefined
  /// rule or one defined twice, left recursion (with the rules on the way), a root that no text can complete, a limit.
  /// `find_token`, where given, gives the id of a token written `<text>` in the grammar, -1 if there is none; without
  /// it such a token is an error (`<[id]>` always works).
  static std::shared_ptr<const Grammar> compile(std::string_view gbnf, const GrammarLimits& limits = {},
                                                const std::function<TokenId(std::string_view)>& find_token = {});

  explicit Grammar(std::unique_ptr<const Impl> impl);
  ~Grammar();
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<const Impl> impl_;
};

/// The bytes of all tokens as a trie, so that a grammar looks at a common beginning once. Made once per tokenizer
/// (about 0.1 s and 10 MB for 150 000 tokens) and shared by all constraints; immutable.
class GrammarVocabulary {
 public:
  struct Impl;  ///< engine/structured/token_trie.h

  /// With `control_text` control tokens stand for their own text (`<|channel|>`) where the grammar spells it out,
  /// character by character; a class such as [^"] never takes one. Without it they are never allowed. Those that end
  /// the generation never have a text. `tokenizer` must outlive the vocabulary only during this call.
  static std::shared_ptr<const GrammarVocabulary> make(const Tokenizer& tokenizer, bool control_text = false);

  explicit GrammarVocabulary(std::unique_ptr<const Impl> impl);
  ~GrammarVocabulary();
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<const Impl> impl_;
};

/// Text that matches the grammar, from its first byte to its last. Tokens may end inside a character or a literal. A
/// text that comes out whole is always valid UTF-8.
std::unique_ptr<TokenConstraint> make_grammar_constraint(std::shared_ptr<const Grammar> grammar,
                                                         std::shared_ptr<const GrammarVocabulary> vocabulary);

/// A constraint that sleeps until one of the `triggers` (none empty) has been generated: before it any token goes,
/// and complete() holds; from the trigger's first byte on the text must match the grammar, to its end. When the token
/// that ends a trigger brings more text that the grammar refuses, the trigger is taken for ordinary text. No triggers:
/// the same as make_grammar_constraint.
std::unique_ptr<TokenConstraint> make_lazy_grammar_constraint(std::shared_ptr<const Grammar> grammar,
                                                              std::shared_ptr<const GrammarVocabulary> vocabulary,
                                                              std::vector<std::string> triggers);

/// Whether the grammar derives exactly this text. The same recognizer, without a vocabulary; for tests and tools.
bool grammar_matches(const Grammar& grammar, std::string_view text);

}  // namespace moetier
