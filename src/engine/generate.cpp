#include "engine/generate.h"

#include <algorithm>

#include "base/error.h"
#include "base/stopwatch.h"

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
        answer_(context.engine().has_tokenizer() ? &context.engine().tokenizer() : nullptr,
                context.engine().model().hparams().vocab, checked(context, options)) {}

  GenerateResult run(std::span<const TokenId> prompt);

 private:
  static const GenerateOptions& checked(Context& context, const GenerateOptions& options);
  void check(std::span<const TokenId> prompt) const;
  bool feed(std::span<const TokenId> prompt);
  void sample();
  bool show(const std::string& text);
  bool cancelled() const { return options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed); }

  Context& context_;
  SequenceState& sequence_;
  std::vector<TokenId>& held_;
  const GenerateOptions& options_;
  const std::function<bool(std::string_view)>& on_text_;
  Answer answer_;
  GenerateResult result_;
};

const GenerateOptions& Generation::checked(Context& context, const GenerateOptions& options) {
  if (!options.stop.empty()) context.engine().tokenizer();  // says why there is none
  return options;
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

void Generation::sample() {
  Stopwatch watch;
  for (int64_t n = 0;; ++n) {
    TokenTimes times;
    result_.reason = StopReason::length;
    if (answer_.full()) return;
    if (n > 0) {  // the token before is not in the sequence yet
      result_.reason = StopReason::context_full;
      if (sequence_.length() >= context_.options().context) return;
      const BatchRow row{answer_.tokens().back(), &sequence_, true};
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
    const TokenId token = answer_.sample(context_.logits(0));
    times.sampling = sampling.lap();
    times.wall = watch.lap();
    result_.token_seconds.push_back(times.wall);
    const bool wanted = show(answer_.take(token));
    if (options_.watcher != nullptr) options_.watcher->token_done(token, times);
    if (answer_.reason()) {
      result_.reason = *answer_.reason();
      return;
    }
    if (!wanted) return;
  }
}

GenerateResult Generation::run(std::span<const TokenId> prompt) {
  check(prompt);
  const CancelScope cancel(context_, options_.cancel);
  answer_.begin(prompt);
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
  if (result_.reason != StopReason::cancelled) {
    show(answer_.finish());
    if (answer_.reason()) result_.reason = *answer_.reason();
  }
  result_.tokens = answer_.tokens();
  return std::move(result_);
}

}  // namespace

GenerateResult generate(Context& context, SequenceState& sequence, std::vector<TokenId>& held,
                        std::span<const TokenId> prompt, const GenerateOptions& options,
                        const std::function<bool(std::string_view)>& on_text) {
  if (options.watcher != nullptr) options.watcher->started();
  GenerateResult result = Generation(context, sequence, held, options, on_text).run(prompt);
  if (options.watcher != nullptr) options.watcher->finished();
  return result;
}

}  // namespace moetier
