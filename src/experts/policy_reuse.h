// `default`: ranks entries by how likely they are to be picked again, and learns that likelihood as it goes.
#pragma once

#include <memory>
#include <span>

#include "experts/policy.h"

namespace moetier {

/// Chosen on two recorded traces; docs/policies.md says what other values cost there.
struct ReuseOptions {
  double half_life = 16;         ///< tokens, of an entry's pick rate
  double rate_share = 0.3;       ///< of the rate itself in the key; the rest is what was learned
  bool followers = true;         ///< look also at what followed what
  double backoff = 4;            ///< so many tokens the rate counts beside those that followed a pick
  double position_weight = 0.5;  ///< of the cyclic distance, in mean chances of an entry to be picked
  double memory = 1024;          ///< observations of a kind after which older ones count half
};

/// The chance of an entry to be picked at its layer's next visit is estimated from two things: how many tokens ago it
/// was picked last, and its decayed pick rate, both in steps of powers of two. A table over the two counts how often
/// entries of each kind were picked and how often they could have been: models whose routing repeats itself
/// teach it recency, others popularity. The key is 0.7 of that chance plus 0.3 of the rate, which looks further ahead;
/// from it the cyclic distance to the layer's next visit is taken, so that a scan longer than the cache does not empty
/// it. Entries that are not held are counted like others, and one less likely than every other is not admitted.
std::unique_ptr<Policy> make_reuse_policy(std::span<const LayerShape> shapes, const ReuseOptions& options = {});

}  // namespace moetier
