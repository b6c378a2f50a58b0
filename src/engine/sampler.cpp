#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "compute/cpu/math.h"
#include "engine/penalties.h"
#include "engine/random.h"

namespace moetier {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kHeapMost = 512;    // up to so many winners a bounded heap finds them in one pass
constexpr size_t kFirstPrefix = 64;  // how many candidates are sorted at first when nobody says how many are needed

struct Candidate {
  float logit;
  TokenId id;
};

/// The order of preference: total, so that the outcome does not depend on the library's sorting.
bool better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

/// e^(logit - top), really 0 where it would vanish.
double weight(float logit, float top, float scale) {
  const float difference = (logit - top) * scale;
  return difference < -num::kExpLimit ? 0.0 : static_cast<double>(num::exp(difference));
}

void check(const SamplerOptions& o) {
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

  explicit Impl(SamplerOptions o)
      : options(std::move(o)),
        penalties(options.repeat_penalty, options.presence_penalty, options.frequency_penalty, options.penalty_window),
        random(options.seed) {}

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
  penalties.apply(logits);
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
  if (!std::isfinite(scale)) return ranked(0, end).id;
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
}

void Sampler::reset() {
  impl_->penalties.reset();
  impl_->random = Random(impl_->options.seed);
}

TokenId Sampler::sample(std::span<const float> logits, TokenConstraint* constraint) {
  if (logits.empty()) fail("there are no logits to sample from: ask for the last row's logits");
  Impl& s = *impl_;
  s.adjust(logits);
  if (constraint != nullptr) constraint->mask(s.logits);
  TokenId best = argmax(s.logits);
  const float top = s.logits[static_cast<size_t>(best)];
  if (top == -kInfinity) {
    return s.lowest_possible(constraint);
  }
  if (s.options.temperature == 0) return best;
  s.sorted = 0;
  s.complete = false;
  size_t end = logits.size();
  if (s.options.top_k > 0) end = std::min(end, static_cast<size_t>(s.options.top_k));
  if (s.options.top_p < 1) end = s.nucleus(end, top);
  if (s.options.min_p > 0) end = s.above_min_p(end, top);
  return s.draw(end, top);
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
