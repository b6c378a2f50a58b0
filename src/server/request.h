// What a client asks the scheduler for, and what it gets.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/constraint.h"
#include "engine/generate.h"
#include "engine/sampler.h"
#include "engine/thought_watch.h"

namespace moetier {

/// What whoever made a request wants to find with its slot (SlotInfo).
struct RequestNote {
  virtual ~RequestNote() = default;
};

/// One generation. The answer is that of engine/generate.h for the same prompt and options, whoever else is served.
struct Request {
  std::vector<TokenId> prompt;
  SamplerOptions sampler;         ///< seed and logit_bias in it; the vocabulary's own suppressed tokens are added
  int64_t max_tokens = -1;        ///< -1 = until the context is full; 0 = compute the prompt only (it is then cached)
  std::vector<std::string> stop;  ///< texts that end it; never part of the output, not even partly
  bool ignore_eog = false;        ///< end-of-generation tokens are never chosen
  bool special = false;           ///< control tokens appear in the text as they are written
  /// -1: no log-probabilities. 0: of each chosen token. n: also of the n likeliest tokens of each position, by the
  /// model's logits before bias, penalties, constraint and filters. At most kMostProbs.
  int n_probs = -1;
  /// The same of the prompt's own tokens, which come as one event. The whole prompt is then computed, whatever
  /// `cache_prompt` says: a kept sequence holds no logits.
  int prompt_probs = -1;
  std::shared_ptr<TokenConstraint> constraint;  ///< of this answer alone; may be null
  std::optional<ThoughtOptions> thoughts;       ///< what is a thought, and how many tokens of them there may be
  bool cache_prompt = true;                     ///< false: computes the whole prompt anew
  int slot = -1;                                ///< wanted slot; -1 = the scheduler chooses
  double time_limit = 0;  ///< seconds from submit() to the last token; 0 = none. Then the answer ends (timed_out).
  bool progress = false;  ///< also send events while the prompt is computed
  bool timings = false;   ///< events of text tell what the request has taken so far
  /// n_probs are of what the sampler drew from, behind bias, penalties, constraint and filters, and are probabilities:
  /// TokenOut's `logprob` and those of `top` then hold these and no logarithms.
  bool sampled_probs = false;
  std::shared_ptr<const RequestNote> note;  ///< may be null
};
inline constexpr int kMostProbs = 100;

/// Why an answer ended.
enum class Finish {
  end_of_generation,  ///< the model ended it, or its constraint was complete
  stop_text,          ///< one of Request::stop; RequestResult::stop_text says which
  length,             ///< max_tokens
  context_full,       ///< no position is left in the slot
  timed_out,          ///< time_limit
  cancelled,          ///< Stream::cancel(), or the Stream was let go
  stalled,            ///< nobody read its events for SchedulerOptions::stall_seconds
  shutdown,           ///< the scheduler was stopped
  failed,             ///< an error; it comes as an error event instead of done
};
std::string_view to_string(Finish finish);

struct TokenProb {
  TokenId token = 0;
  float logprob = 0;  ///< natural logarithm of the probability; -infinity if that is 0
};

/// One token of the answer. `logprob` and `top` only where Request::n_probs asks for them.
struct TokenOut {
  TokenId token = 0;
  float logprob = 0;           ///< NaN for a prompt's first token, which nothing comes before
  std::vector<TokenProb> top;  ///< likeliest first
};

/// What a request has taken. Sampled: also the token that ended it (what a client is billed for); RequestResult::tokens
/// or one more.
struct RequestUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;    ///< of the prompt: not computed, because a sequence or a saved state held them
  int64_t computed_tokens = 0;  ///< of the prompt: the rest, or less if it ended before
  int64_t sampled_tokens = 0;
  int64_t thought_tokens = 0;  ///< of them, chosen while a thought was open
  // Seconds. Prompt: from the first to the last slice of it, waits for others between them included. Decode: from the
  // first token to the last, so that of sampled_tokens - 1 steps.
  double queue_seconds = 0, prompt_seconds = 0, decode_seconds = 0, total_seconds = 0;
  double first_token_seconds = 0;  ///< from submit() to the first token; 0 if there was none
  double aside_seconds = 0;        ///< others had its slot, because its reader did not keep up
  double prompt_tok_s() const;     ///< computed prompt tokens per second; 0 if none were
  double decode_tok_s() const;     ///< 0 if there was no step
};

struct RequestResult : RequestUsage {
  std::string text;                ///< all of it, as it was sent
  std::vector<TokenId> tokens;     ///< as GenerateResult::tokens: without the one that ended it
  std::optional<TokenOut> ending;  ///< the one that ended it, where n_probs asks for log-probabilities
  Finish finish = Finish::length;
  std::string stop_text;  ///< the stop text that ended it, if one did
  int slot = -1;          ///< -1: it never had one
  uint64_t task = 0;      ///< number of the request, from 1
  // The store's counters between this request's start and end: with several slots, others' lookups are in them.
  bool has_cache = false;  ///< there is a tier cache, so the numbers below mean something
  uint64_t hits = 0, hits_profile = 0, misses = 0, bytes_read = 0;
  double read_wait_seconds = 0;  ///< of the batches meanwhile: blocked until a read came
};

/// The queue is full: HTTP's 429, with Retry-After.
class Busy : public Error {
 public:
  Busy(const std::string& sentence, int retry_after) : Error(ErrorKind::failed, sentence), retry_after_(retry_after) {}
  int retry_after_seconds() const { return retry_after_; }  ///< an estimate, 1 or more

 private:
  int retry_after_;
};

/// The scheduler takes no more requests because it is ending: HTTP's 503.
class Stopping : public Error {
 public:
  Stopping() : Error(ErrorKind::failed, "the server is stopping and takes no more requests") {}
};

/// The prompt is longer than what a slot holds: HTTP's 400 (exceed_context_size_error).
class ContextOverflow : public Error {
 public:
  ContextOverflow(int64_t prompt_tokens, int64_t context);
  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t context() const { return context_; }

 private:
  int64_t prompt_tokens_, context_;
};

/// Something that a request names is not there: HTTP's 404.
class NotThere : public Error {
 public:
  explicit NotThere(const std::string& sentence) : Error(ErrorKind::failed, sentence) {}
};

}  // namespace moetier
