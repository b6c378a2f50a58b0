// What a sampled text must obey, token by token: a grammar or a JSON schema, say.
#pragma once

#include <span>

#include "tokenizer/tokenizer.h"

namespace moetier {

/// One answer's constraint: it follows the tokens of that answer and is used up by it. One thread at a time.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  /// Sets the logits ([vocab]) of tokens that must not come next to -infinity. End-of-generation tokens are allowed
  /// where the text may end.
  virtual void mask(std::span<float> logits) = 0;
  /// Notes the token that was chosen. An error if mask() would have forbidden it.
  virtual void accept(TokenId token) = 0;
  /// True once the text is complete and nothing may follow but its end.
  virtual bool finished() const = 0;
};

}  // namespace moetier
