// Which expert follows which in a layer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moetier {

/// Counts, for one layer, how often a token that picked one expert was followed by a token that picked another. Takes
/// n_expert^2 bytes. A first-order Markov chain over experts, as branch predictors and page prefetchers keep it; counts
/// halve when they are full, so that it follows a change of text.
class Followers {
 public:
  Followers(int n_expert, int top_k);

  /// The next token's picks, each less than n_expert.
  void note(std::span<const int32_t> picks);

  /// By expert: its chance to be picked by the token that comes, judged by what the last one picked; the mean over
  /// those picks. `rates` are the experts' usual chances; they count as `backoff` tokens beside those that were seen.
  /// Both [n_expert].
  void expect(std::span<const double> rates, double backoff, std::span<double> chances) const;

  /// Tokens seen after one that picked `expert` (halved from time to time), and of them those that picked `next`.
  int leads(int expert) const { return leads_[static_cast<size_t>(expert)]; }
  int follows(int expert, int next) const {
    return follows_[static_cast<size_t>(expert) * leads_.size() + static_cast<size_t>(next)];
  }

 private:
  std::vector<uint8_t> follows_;  // [n_expert][n_expert]
  std::vector<uint8_t> leads_;    // [n_expert]
  std::vector<int32_t> last_;     // picks of the last token
};

}  // namespace moetier
