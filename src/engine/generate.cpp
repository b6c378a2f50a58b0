#include "engine/generate.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/stop_text.h"

namespace moetier {
namespace {

class Generation {
 public:
  Generation(Context& context, SequenceState& sequence, std::vector<TokenId>& held, const GenerateOptions& options,
             const std::function<bool(std::string_view)>& on_text)
      : context_(context),
        sequence_(sequence),
        held_(held),
        options_(options),
        on_text_(on_text),
        tokenizer_(context.engine().has_tokenizer() ? &context.engine().tokenizer() : nullptr),
        stop_(options.stop),
        sampler_(sampler_options()) {}

  GenerateResult run(std::span<const TokenId> prompt);

 private:
  SamplerOptions sampler_options() const;
  void check(std::span<const TokenId> prompt) const;
  bool feed(std::span<const TokenId> prompt);
  void sample();
  bool take(TokenId token);
  bool show(const std::string& text);
  bool cancelled() const { return options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed); }

  Context& context_;
  SequenceState& sequence_;
  std::vector<TokenId>& held_;
  const GenerateOptions& options_;
  const std::function<bool(std::string_view)>& on_text_;
  const Tokenizer* tokenizer_;
  StopText stop_;
  Sampler sampler_;
  std::optional<StreamDecoder> decoder_;
  GenerateResult result_;
};

SamplerOptions Generation::sampler_options() const {
  SamplerOptions o = options_.sampler;
  if (tokenizer_ == nullptr) return o;
  const int64_t vocab = context_.engine().model().hparams().vocab;
  const std::vector<TokenId> suppressed = suppressed_tokens(*tokenizer_, vocab);
  o.suppress.insert(o.suppress.end(), suppressed.begin(), suppressed.end());
  for (TokenId id = 0; options_.ignore_eog && id < std::min<int64_t>(vocab, tokenizer_->vocab_size()); ++id) {
    if (tokenizer_->is_end_of_generation(id)) o.suppress.push_back(id);
  }
  return o;
}

void Generation::check(std::span<const TokenId> prompt) const {
  if (prompt.empty()) fail("the prompt has no tokens, so there is nothing to go on from");
  const int64_t most = context_.options().context;
  if (static_cast<int64_t>(prompt.size()) > most) {
    fail("the prompt has {} tokens and the context holds {}: raise the context size or shorten the prompt",
         prompt.size(), most);
  }
  if (static_cast<int64_t>(held_.size()) != sequence_.length()) {
    fail("the sequence holds {} positions and {} tokens are said to be in it", sequence_.length(), held_.size());
  }
  if (!options_.stop.empty() && tokenizer_ == nullptr) context_.engine().tokenizer();  // says why there is none
}

/// Computes what the sequence does not hold yet; false if cancelled meanwhile.
bool Generation::feed(std::span<const TokenId> prompt) {
  size_t same = 0;
  // The last token is always computed: its logits are what goes on.
  while (same < held_.size() && same + 1 < prompt.size() && held_[same] == prompt[same]) ++same;
  same = static_cast<size_t>(sequence_.truncate(static_cast<int64_t>(same)));
  held_.resize(same);
  held_.reserve(prompt.size());
  result_.prompt_tokens = static_cast<int64_t>(prompt.size());
  result_.reused_tokens = static_cast<int64_t>(same);
  const auto step = static_cast<size_t>(context_.options().group_rows);
  std::vector<BatchRow> rows;
  while (held_.size() < prompt.size()) {
    if (cancelled()) return false;
    rows.clear();
    const size_t end = std::min(prompt.size(), held_.size() + step);
    for (size_t i = held_.size(); i < end; ++i) rows.push_back({prompt[i], &sequence_, i + 1 == prompt.size()});
    try {
      context_.decode(rows);
    } catch (const Cancelled&) {
      return false;
    }
    held_.insert(held_.end(), prompt.begin() + static_cast<ptrdiff_t>(held_.size()),
                 prompt.begin() + static_cast<ptrdiff_t>(end));
  }
  return true;
}

/// Adds text to the result and hands it out; false if its receiver wants no more.
bool Generation::show(const std::string& text) {
  if (text.empty()) return true;
  result_.text += text;
  return !on_text_ || on_text_(text);
}

/// Looks at a token just sampled; false if it or its text ends the generation, and then `reason` says why.
bool Generation::take(TokenId token) {
  if (tokenizer_ == nullptr) {
    result_.tokens.push_back(token);
    return true;
  }
  if (tokenizer_->is_end_of_generation(token)) {
    result_.reason = StopReason::end_of_generation;
    return false;
  }
  const std::string text = stop_.push(decoder_->push(token));
  if (!stop_.stopped()) result_.tokens.push_back(token);
  const bool wanted = show(text);
  if (stop_.stopped()) {
    result_.reason = StopReason::stop_text;
    return false;
  }
  if (!wanted) result_.reason = StopReason::cancelled;
  return wanted;
}

void Generation::sample() {
  Stopwatch watch;
  const int64_t most = options_.max_tokens < 0 ? INT64_MAX : options_.max_tokens;
  for (int64_t n = 0;; ++n) {
    TokenTimes times;
    result_.reason = StopReason::length;
    if (n >= most) return;
    if (n > 0) {  // the token before is not in the sequence yet
      result_.reason = StopReason::context_full;
      if (sequence_.length() >= context_.options().context) return;
      const BatchRow row{result_.tokens.back(), &sequence_, true};
      Stopwatch decoding;
      try {
        context_.decode({&row, 1});
      } catch (const Cancelled&) {
        result_.reason = StopReason::cancelled;
        return;
      }
      times.decode = decoding.lap();
      held_.push_back(row.token);
    }
    result_.reason = StopReason::cancelled;
    if (cancelled()) return;
    Stopwatch sampling;
    const TokenId token = sampler_.sample(context_.logits(0));
    sampler_.accept(token);
    times.sampling = sampling.lap();
    times.wall = watch.lap();
    result_.token_seconds.push_back(times.wall);
    const bool more = take(token);
    if (options_.watcher != nullptr) options_.watcher->token_done(token, times);
    if (!more) return;
  }
}

GenerateResult Generation::run(std::span<const TokenId> prompt) {
  check(prompt);
  const CancelScope cancel(context_, options_.cancel);
  for (const TokenId token : prompt) sampler_.accept(token);
  if (tokenizer_ != nullptr) decoder_.emplace(*tokenizer_, options_.special);
  Stopwatch watch;
  const bool fed = feed(prompt);
  result_.prompt_seconds = watch.lap();
  if (options_.watcher != nullptr) {
    options_.watcher->prompt_done(static_cast<int64_t>(held_.size()) - result_.reused_tokens, result_.prompt_seconds);
  }
  if (!fed) {
    result_.reason = StopReason::cancelled;
    return std::move(result_);
  }
  sample();
  if (decoder_ && !stop_.stopped() && result_.reason != StopReason::cancelled) {
    // A character cut short and a stop text that did not come true are part of the answer after all.
    show(stop_.push(decoder_->finish()));
    show(stop_.finish());
    if (stop_.stopped()) result_.reason = StopReason::stop_text;
  }
  return std::move(result_);
}

}  // namespace

std::string_view to_string(StopReason reason) {
  switch (reason) {
    case StopReason::end_of_generation:
      return "end of generation";
    case StopReason::length:
      return "length";
    case StopReason::stop_text:
      return "stop text";
    case StopReason::context_full:
      return "context full";
    case StopReason::cancelled:
      return "cancelled";
  }
  return "unknown";
}

GenerateResult generate(Context& context, SequenceState& sequence, std::vector<TokenId>& held,
                        std::span<const TokenId> prompt, const GenerateOptions& options,
                        const std::function<bool(std::string_view)>& on_text) {
  if (options.watcher != nullptr) options.watcher->started();
  GenerateResult result = Generation(context, sequence, held, options, on_text).run(prompt);
  if (options.watcher != nullptr) options.watcher->finished();
  return result;
}

}  // namespace moetier
