#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "engine/candidates.h"
#include "engine/penalties.h"
#include "engine/random.h"
#include "engine/sampler_chain.h"

namespace moetier {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kHeapMost = 512;    // up to so many winners a bounded heap finds them in one pass
constexpr size_t kFirstPrefix = 64;  // how many candidates are sorted at first when nobody says how many are needed

/// A value that must be from `low` to `high`.
void check_range(const char* what, float value, float low, float high) {
  if (!(value >= low && value <= high))
    usage_error("{} must be from {} to {}, and {} was given", what, low, high, value);
}

void check_chain(const SamplerOptions& o) {
  constexpr float kMost = 1e6f;
  check_range("typical-p", o.typical_p, 0, 1);
  check_range("top-n-sigma", o.top_n_sigma, -kMost, kMost);
  check_range("the range of the temperature", o.dynatemp_range, 0, kMost);
  check_range("the exponent of the dynamic temperature", o.dynatemp_exponent, 0, kMost);
  check_range("the xtc probability", o.xtc_probability, 0, 1);
  check_range("the xtc threshold", o.xtc_threshold, 0, 1);
  check_range("the dry multiplier", o.dry_multiplier, 0, kMost);
  check_range("the dry base", o.dry_base, 1, kMost);
  if (o.dry_allowed_length < 0)
    usage_error("the dry allowed length must be 0 or more, and {} was given", o.dry_allowed_length);
  if (o.dry_window < -1) usage_error("the dry window must be -1 (all) or more, and {} was given", o.dry_window);
  if (o.min_keep < 0) usage_error("min-keep must be 0 or more, and {} was given", o.min_keep);
}

/// Top-k, top-p, min-p and temperature, in this order, cut off one end of the sorted tokens: a way of its own, which
/// sorts only what is needed.
bool goes_the_short_way(const SamplerOptions& o) {
  return o.typical_p >= 1 && o.top_n_sigma <= 0 && o.dynatemp_range == 0 && o.xtc_probability == 0 &&
         o.dry_multiplier == 0 && o.min_keep <= 1 && o.order == default_sampler_order();
}

void check(const SamplerOptions& o) {
  check_chain(o);
  if (!(o.temperature >= 0) || o.temperature == kInfinity) {
    usage_error("the temperature must be 0 or more, and {} was given", o.temperature);
  }
  if (o.top_k < 0) usage_error("top-k must be 0 (off) or more, and {} was given", o.top_k);
  if (!(o.top_p >= 0 && o.top_p <= 1)) usage_error("top-p must be from 0 to 1, and {} was given", o.top_p);
  if (!(o.min_p >= 0 && o.min_p <= 1)) usage_error("min-p must be from 0 to 1, and {} was given", o.min_p);
  if (!(o.repeat_penalty > 0) || o.repeat_penalty == kInfinity) {
    usage_error("the repetition penalty must be more than 0 (1 is off), and {} was given", o.repeat_penalty);
  }
  if (!std::isfinite(o.presence_penalty))
    usage_error("the presence penalty must be a number, and {} was given", o.presence_penalty);
  if (!std::isfinite(o.frequency_penalty)) {
    usage_error("the frequency penalty must be a number, and {} was given", o.frequency_penalty);
  }
  if (o.penalty_window < -1)
    usage_error("the penalty window must be -1 (all) or more, and {} was given", o.penalty_window);
  for (const auto& [id, bias] : o.logit_bias) {
    if (id < 0) usage_error("a logit bias names token {}, which cannot exist", id);
    if (std::isnan(bias)) usage_error("the logit bias of token {} is not a number", id);
  }
  for (const TokenId id : o.suppress) {
    if (id < 0) usage_error("token {} cannot be suppressed: it cannot exist", id);
  }
}

}  // namespace

struct Sampler::Impl {
  SamplerOptions options;
  Penalties penalties;
  Random random;
  std::vector<float> logits;          // adjusted, by id
  std::vector<Candidate> candidates;  // the first `sorted` are the best, in order
  size_t sorted = 0;
  bool complete = false;  // `candidates` holds every token, not only the best
  bool short_way;
  DryPenalty dry;
  SamplerChain chain;
  TokenId only = -1;    // the last token, if there was no choice
  size_t last_end = 0;  // of the last draw, by the short way
  float last_top = 0, last_scale = 1;

  explicit Impl(SamplerOptions o)
      : options(std::move(o)),
        penalties(options.repeat_penalty, options.presence_penalty, options.frequency_penalty, options.penalty_window),
        random(options.seed),
        short_way(goes_the_short_way(options)),
        dry(options.dry_multiplier, options.dry_base, options.dry_allowed_length, options.dry_window,
            options.dry_breakers),
        chain(options, penalties, dry, random) {}

  TokenId choose(std::span<const float> given, TokenConstraint* constraint);
  void adjust(std::span<const float> given);
  void sort_best(size_t n);
  const Candidate& ranked(size_t rank, size_t end);
  double total_weight(size_t end, float top, float scale);
  size_t nucleus(size_t end, float top);
  size_t above_min_p(size_t end, float top);
  TokenId lowest_possible(TokenConstraint* constraint);
  TokenId draw(size_t end, float top);
};

void Sampler::Impl::adjust(std::span<const float> given) {
  const auto vocab = static_cast<int64_t>(given.size());
  logits.resize(given.size());
  std::transform(given.begin(), given.end(), logits.begin(), sane_logit);
  for (const auto& [id, bias] : options.logit_bias) {
    if (id >= vocab) usage_error("a logit bias names token {}, and the vocabulary has only {}", id, vocab);
    logits[static_cast<size_t>(id)] = sane_logit(logits[static_cast<size_t>(id)] + bias);
  }
  if (short_way) penalties.apply(logits);
  for (const TokenId id : options.suppress) {
    if (id >= vocab) usage_error("token {} cannot be suppressed: the vocabulary has only {}", id, vocab);
    logits[static_cast<size_t>(id)] = -kInfinity;
  }
}

/// Puts the n best at the front of `candidates`, in order.
void Sampler::Impl::sort_best(size_t n) {
  const size_t vocab = logits.size();
  candidates.resize(vocab);
  const auto at = [&](size_t i) { return candidates.begin() + static_cast<ptrdiff_t>(i); };
  if (n <= kHeapMost && n < vocab) {
    // A heap of the n best so far, its worst on top: most candidates fall at the first compare.
    for (size_t i = 0; i < n; ++i) candidates[i] = {logits[i], static_cast<TokenId>(i)};
    std::make_heap(at(0), at(n), better);
    for (size_t i = n; i < vocab; ++i) {
      if (!(logits[i] > candidates[0].logit)) continue;  // equal ones lose by their higher id
      std::pop_heap(at(0), at(n), better);
      candidates[n - 1] = {logits[i], static_cast<TokenId>(i)};
      std::push_heap(at(0), at(n), better);
    }
    std::sort_heap(at(0), at(n), better);
  } else {
    if (!complete) {
      for (size_t i = 0; i < vocab; ++i) candidates[i] = {logits[i], static_cast<TokenId>(i)};
      sorted = 0;
      complete = true;
    }
    if (n < vocab) std::nth_element(at(sorted), at(n), candidates.end(), better);
    std::sort(at(sorted), at(n), better);
  }
  sorted = n;
}

/// The candidate of a rank below `end`; sorts further only when it must, each time four times as many.
const Candidate& Sampler::Impl::ranked(size_t rank, size_t end) {
  if (rank >= sorted) sort_best(std::min(end, std::max({rank + 1, sorted * 4, kFirstPrefix})));
  return candidates[rank];
}

/// Sum of the weights of the `end` best.
double Sampler::Impl::total_weight(size_t end, float top, float scale) {
  double total = 0;
  if (end == logits.size()) {
    for (const float logit : logits) total += weight(logit, top, scale);
  } else {
    for (size_t i = 0; i < end; ++i) total += weight(ranked(i, end).logit, top, scale);
  }
  return total;
}

/// The fewest of the best whose probabilities reach top_p.
size_t Sampler::Impl::nucleus(size_t end, float top) {
  const double wanted = static_cast<double>(options.top_p) * total_weight(end, top, 1.0f);
  double sum = 0;
  for (size_t i = 0; i < end; ++i) {
    sum += weight(ranked(i, end).logit, top, 1.0f);
    if (sum >= wanted) return i + 1;
  }
  return end;
}

/// How many of the best have at least min_p times the best one's probability.
size_t Sampler::Impl::above_min_p(size_t end, float top) {
  size_t n = 1;
  while (n < end && weight(ranked(n, end).logit, top, 1.0f) >= static_cast<double>(options.min_p)) ++n;
  return n;
}

/// When no logit is above -infinity (all NaN, say): the lowest id that is neither suppressed nor forbidden.
TokenId Sampler::Impl::lowest_possible(TokenConstraint* constraint) {
  std::fill(logits.begin(), logits.end(), 0.0f);
  for (const TokenId id : options.suppress) logits[static_cast<size_t>(id)] = -kInfinity;
  for (const auto& [id, bias] : options.logit_bias) {
    if (bias == -kInfinity) logits[static_cast<size_t>(id)] = bias;  // forbidden, too
  }
  const bool possible = logits[static_cast<size_t>(argmax(logits))] != -kInfinity;
  if (possible && constraint != nullptr) constraint->mask(logits);
  const TokenId best = argmax(logits);
  if (logits[static_cast<size_t>(best)] != -kInfinity) return best;
  if (possible)
    fail("no token of the vocabulary can go on what the answer is to look like; relax its grammar or schema");
  if (options.logit_bias.empty()) fail("all {} tokens are suppressed, so none can be chosen", logits.size());
  usage_error("the logit bias and what is suppressed beside it ban all {} tokens, so none can be chosen: ban fewer",
              logits.size());
}

TokenId Sampler::Impl::draw(size_t end, float top) {
  // Temperatures too small to divide by are greedy.
  const float scale = 1.0f / options.temperature;
  if (!std::isfinite(scale)) return only = ranked(0, end).id;
  last_end = end;
  last_top = top;
  last_scale = scale;
  const double target = random.uniform() * total_weight(end, top, scale);
  double sum = 0;
  size_t last = 0;
  for (size_t i = 0; i < end; ++i) {
    const double w = weight(ranked(i, end).logit, top, scale);
    if (w == 0) break;  // the rest weigh nothing either
    last = i;
    sum += w;
    if (sum > target) break;
  }
  return ranked(last, end).id;
}

Sampler::Sampler(SamplerOptions options) {
  check(options);
  impl_ = std::make_unique<Impl>(std::move(options));
}
Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;

const SamplerOptions& Sampler::options() const {
  return impl_->options;
}

void Sampler::accept(TokenId token) {
  impl_->penalties.accept(token);
  impl_->dry.accept(token);
}

void Sampler::reset() {
  impl_->penalties.reset();
  impl_->dry.reset();
  impl_->random = Random(impl_->options.seed);
}

TokenId Sampler::Impl::choose(std::span<const float> given, TokenConstraint* constraint) {
  only = -1;
  adjust(given);
  if (constraint != nullptr) constraint->mask(logits);
  const TokenId best = argmax(logits);
  const float top = logits[static_cast<size_t>(best)];
  if (top == -kInfinity) return only = lowest_possible(constraint);
  if (!short_way) return chain.sample(logits);
  if (options.temperature == 0) return only = best;
  sorted = 0;
  complete = false;
  size_t end = logits.size();
  if (options.top_k > 0) end = std::min(end, static_cast<size_t>(options.top_k));
  if (options.top_p < 1) end = nucleus(end, top);
  if (options.min_p > 0) end = above_min_p(end, top);
  return draw(end, top);
}

TokenId Sampler::sample(std::span<const float> logits, TokenConstraint* constraint) {
  if (logits.empty()) fail("there are no logits to sample from: ask for the last row's logits");
  return impl_->choose(logits, constraint);
}

std::vector<TokenChance> Sampler::chances(size_t most) {
  Impl& s = *impl_;
  std::vector<TokenChance> out;
  if (s.only >= 0) {
    if (most > 0) out.push_back({s.only, 1});
  } else if (!s.short_way) {
    for (const Candidate& one : s.chain.kept().first(std::min(most, s.chain.kept().size())))
      out.push_back({one.id, s.chain.chance(one)});
  } else {
    const double total = s.total_weight(s.last_end, s.last_top, s.last_scale);
    for (size_t i = 0; i < std::min(most, s.last_end); ++i) {
      const Candidate& one = s.ranked(i, s.last_end);
      out.push_back({one.id, weight(one.logit, s.last_top, s.last_scale) / total});
    }
  }
  return out;
}

double Sampler::chance(TokenId token) {
  for (const TokenChance& one : chances(std::numeric_limits<size_t>::max())) {
    if (one.token == token) return one.probability;
  }
  return 0;
}

namespace {

struct StepName {
  SamplerStep step;
  char letter;
  std::array<std::string_view, 6> names;  // the first is the one that is told
};

/// In the field's order.
constexpr std::array<StepName, 9> kSteps = {
    {{SamplerStep::penalties, 'e', {"penalties"}},
     {SamplerStep::dry, 'd', {"dry"}},
     {SamplerStep::top_n_sigma, 's', {"top_n_sigma", "top-n-sigma"}},
     {SamplerStep::top_k, 'k', {"top_k", "top-k"}},
     {SamplerStep::typical_p, 'y', {"typ_p", "typical_p", "typical-p", "typical", "typ-p", "typ"}},
     {SamplerStep::top_p, 'p', {"top_p", "top-p", "nucleus"}},
     {SamplerStep::min_p, 'm', {"min_p", "min-p"}},
     {SamplerStep::xtc, 'x', {"xtc"}},
     {SamplerStep::temperature, 't', {"temperature", "temp"}}}};

}  // namespace

std::string_view to_string(SamplerStep step) {
  for (const StepName& one : kSteps) {
    if (one.step == step) return one.names[0];
  }
  return "unknown";
}

std::optional<SamplerStep> sampler_step(std::string_view name) {
  for (const StepName& one : kSteps) {
    if (!name.empty() && std::find(one.names.begin(), one.names.end(), name) != one.names.end()) return one.step;
  }
  return std::nullopt;
}

std::optional<SamplerStep> sampler_step(char letter) {
  for (const StepName& one : kSteps) {
    if (one.letter == letter) return one.step;
  }
  return std::nullopt;
}

std::vector<SamplerStep> default_sampler_order() {
  std::vector<SamplerStep> order;
  for (const StepName& one : kSteps) order.push_back(one.step);
  return order;
}

std::vector<TokenId> suppressed_tokens(const Tokenizer& tokenizer, int64_t vocab) {
  std::vector<TokenId> tokens;
  for (const TokenId id : tokenizer.suppressed()) {
    if (id < vocab) tokens.push_back(id);
  }
  for (TokenId id = tokenizer.vocab_size(); id < vocab; ++id) tokens.push_back(id);
  return tokens;
}

TokenId argmax(std::span<const float> logits) {
  if (logits.empty()) return -1;
  size_t best = 0;
  float highest = -kInfinity;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > highest) {
      highest = logits[i];
      best = i;
    }
  }
  return static_cast<TokenId>(best);
}

}  // namespace moetier
