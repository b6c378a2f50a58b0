// What a generated text may look like: a constraint that says, token by token, which tokens may come next.
#pragma once

#include <memory>
#include <span>

#include "tokenizer/tokenizer.h"

namespace moetier {

/// One generation's constraint. It follows the tokens that are generated (never the prompt's) and forbids all that
/// could not lead to a text it allows. Not safe from several threads at once; different constraints are independent,
/// also those that share a Grammar and a GrammarVocabulary.
///
/// A sampler calls mask() on the adjusted logits, draws, and then tells accept() what was drawn:
///
///     sampler.sample(logits, constraint);  // masks
///     constraint->accept(token);           // also for the token that ends the generation
///     if (constraint->finished()) ...      // nothing can follow: stop
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  /// Sets the logit of every token that is forbidden now to -infinity and leaves the others as they are. `logits` has
  /// one value per row of the model's head; rows beyond the vocabulary are forbidden. End-of-generation tokens are
  /// allowed exactly if complete(). May leave none: then the vocabulary has no way to go on (or the end was accepted).
  /// Errors: a grammar too ambiguous to be followed within bounded memory and time.
  virtual void mask(std::span<float> logits) = 0;

  /// Takes note of the token that was chosen. A forbidden one is an error and changes nothing.
  virtual void accept(TokenId token) = 0;

  /// The text so far is whole: the generation may end here.
  virtual bool complete() const = 0;

  /// The text so far is whole and nothing can be added to it, or an end-of-generation token was accepted.
  virtual bool finished() const = 0;

  /// An independent constraint in the same state (for another choice of the same request, or to look ahead).
  virtual std::unique_ptr<TokenConstraint> clone() const = 0;
};

}  // namespace moetier
