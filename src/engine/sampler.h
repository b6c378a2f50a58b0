// From logits to the next token.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/constraint.h"
#include "tokenizer/tokenizer.h"

namespace moetier {

/// What a sampler does one after another, behind bias and what is forbidden.
enum class SamplerStep { penalties, dry, top_n_sigma, top_k, typical_p, top_p, min_p, xtc, temperature };
/// As requests write it ("typ_p" for typical_p).
std::string_view to_string(SamplerStep step);
/// By that name, another one in use ("typical_p", "temp", ...), or its letter in a short form. nullopt: there is none.
std::optional<SamplerStep> sampler_step(std::string_view name);
std::optional<SamplerStep> sampler_step(char letter);
std::vector<SamplerStep> default_sampler_order();

struct SamplerOptions {
  float temperature = 0.8f;     ///< 0 = greedy
  int top_k = 40;               ///< 0 = off
  float top_p = 0.95f;          ///< 1 = off
  float min_p = 0.05f;          ///< 0 = off
  float repeat_penalty = 1.0f;  ///< 1 = off; divides positive logits, multiplies negative ones
  float presence_penalty = 0.0f, frequency_penalty = 0.0f;  ///< subtracted once per token, and once per occurrence
  int penalty_window = 64;                                  ///< last tokens that penalties look at; 0 = none, -1 = all
  float typical_p = 1.0f;                                   ///< 1 = off
  float top_n_sigma = -1.0f;          ///< standard deviations below the highest logit; 0 or less = off
  float dynatemp_range = 0.0f;        ///< the temperature goes from -range to +range with the entropy; 0 = off
  float dynatemp_exponent = 1.0f;     ///< of the entropy, as a share of the highest that is possible
  float xtc_probability = 0.0f;       ///< how often the likeliest are left out; 0 = off
  float xtc_threshold = 0.1f;         ///< those of this probability or more, but for the last of them; above 0.5 = off
  float dry_multiplier = 0.0f;        ///< 0 = off
  float dry_base = 1.75f;             ///< 1 or more
  int dry_allowed_length = 2;         ///< tokens that may be repeated
  int dry_window = -1;                ///< last tokens that are looked at; -1 = all, 0 = none
  std::vector<TokenId> dry_breakers;  ///< tokens that a repetition does not reach over
  int min_keep = 0;                   ///< tokens that top-p, min-p, typical and xtc leave in any case
  std::vector<SamplerStep> order = default_sampler_order();  ///< what is not in it is not done
  uint64_t seed = 0;
  std::vector<std::pair<TokenId, float>> logit_bias;  ///< added to the logit; -infinity forbids
  std::vector<TokenId> suppress;                      ///< never chosen
};

/// A token and the probability that it was drawn with.
struct TokenChance {
  TokenId token;
  double probability;
};

/// The order is the field's: bias, penalties, then top-n-sigma, top-k, typical, top-p, min-p, xtc, temperature, draw;
/// SamplerOptions::order may change it. Ties go to the lower id; the
/// same seed and logits give the same token on every machine (own generator and exp). A NaN counts as -infinity. In
/// steady state a token allocates nothing and costs O(vocabulary), plus sorting what the filters keep.
class Sampler {
 public:
  /// A value out of range (a negative temperature, top_p outside 0..1, a negative token id, ...) is a usage error that
  /// names it.
  explicit Sampler(SamplerOptions options);
  ~Sampler();
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;

  const SamplerOptions& options() const;
  /// Notes a token of the prompt or one just generated, for the penalties. Negative ids are ignored.
  void accept(TokenId token);
  /// Does not accept() what it gives. A constraint forbids tokens behind bias and penalties; it is not told what was
  /// chosen. Errors: no logits; biased or suppressed ids outside the vocabulary; everything suppressed or forbidden.
  TokenId sample(std::span<const float> logits, TokenConstraint* constraint = nullptr);
  /// What the last token was drawn from, likeliest first; at most `most`. Until the next sample().
  std::vector<TokenChance> chances(size_t most);
  double chance(TokenId token);  ///< in it; 0 for what was not in the draw
  /// Forgets the accepted tokens and starts the generator anew.
  void reset();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Tokens that are never to be chosen from a head of `vocab` rows: those that the vocabulary suppresses, and the rows
/// beyond it, which pad the head and stand for no text.
std::vector<TokenId> suppressed_tokens(const Tokenizer& tokenizer, int64_t vocab);

/// The token with the highest logit; ties go to the lower id, a NaN counts as -infinity. -1 for no logits.
TokenId argmax(std::span<const float> logits);

}  // namespace moetier
