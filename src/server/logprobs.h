// Log-probabilities of tokens, for requests that ask for them.
#pragma once

#include <span>

#include "server/request.h"

namespace moetier {

/// The token's log-probability under softmax(logits), and the n likeliest tokens with theirs, ties by lower id. The sum
/// is taken in double in ascending id; a logit that is -infinity has probability 0. O(vocabulary).
TokenOut token_with_probs(std::span<const float> logits, TokenId token, int n);

}  // namespace moetier
