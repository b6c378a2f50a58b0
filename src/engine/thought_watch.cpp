#include "engine/thought_watch.h"

#include <algorithm>

#include "base/error.h"
#include "engine/structured/call_text.h"

namespace moetier {
namespace {

std::string_view without_space_behind(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return text;
}

bool allows(const TokenConstraint& constraint, std::span<const TokenId> tokens) {
  const auto ahead = constraint.clone();
  try {
    for (const TokenId token : tokens) ahead->accept(token);
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace

ThoughtEnding thought_ending(ChatFormat format, std::string_view chat_template, std::string_view prompt) {
  if (format == ChatFormat::harmony) return {"", "<|end|>", "<|start|>assistant"};
  const std::vector<ChatMarkup::Pair> pairs = chat_markup(format).reasoning;
  if (pairs.empty()) return {};
  ChatMarkup::Pair pair = pairs.front();
  for (const ChatMarkup::Pair& one : pairs) {
    if (chat_template.find(pair.open) == std::string_view::npos &&
        chat_template.find(one.open) != std::string_view::npos)
      pair = one;
  }
  for (const ChatMarkup::Pair& one : pairs) {
    if (without_space_behind(prompt).ends_with(one.open)) pair = one;
  }
  switch (format) {
    case ChatFormat::hermes:
    case ChatFormat::qwen_xml:
    case ChatFormat::minimax:
      return {"\n", std::string(pair.close), "\n\n"};
    case ChatFormat::glm:
      return {"", std::string(pair.close), "\n"};
    default:
      return {"", std::string(pair.close), ""};
  }
}

bool template_thinks(ChatFormat format, std::string_view chat_template) {
  if (format == ChatFormat::harmony) return true;
  const std::vector<ChatMarkup::Pair> pairs = chat_markup(format).reasoning;
  return std::any_of(pairs.begin(), pairs.end(), [&](const ChatMarkup::Pair& pair) {
    return chat_template.find(pair.open) != std::string_view::npos ||
           chat_template.find(pair.close) != std::string_view::npos;
  });
}

bool prompt_closes_reasoning(ChatFormat format, std::string_view prompt) {
  const std::vector<ChatMarkup::Pair> pairs = chat_markup(format).reasoning;
  return std::any_of(pairs.begin(), pairs.end(),
                     [&](const ChatMarkup::Pair& pair) { return without_space_behind(prompt).ends_with(pair.close); });
}

ThoughtWatch::ThoughtWatch(const Tokenizer& tokenizer, ThoughtOptions options)
    : options_(std::move(options)),
      tokenizer_(&tokenizer),
      decoder_(tokenizer, chat_format_needs_control_text(options_.format)),
      parser_(options_.format, {.tools = options_.tools, .in_reasoning = options_.in_reasoning, .tool_list = {}}) {
  const ThoughtEnding& e = options_.ending;
  if (options_.budget < 0 || e.close.empty()) return;
  for (const std::string& text : {e.lead + e.close + e.tail, e.close + e.tail, e.lead + e.close, e.close}) {
    endings_.push_back(tokenizer.encode(text, {.add_special = false, .parse_special = true}));
  }
}

bool ThoughtWatch::begin_ending(const TokenConstraint* constraint) {
  for (const std::vector<TokenId>& ending : endings_) {
    if (constraint != nullptr && !allows(*constraint, ending)) continue;
    queue_ = ending;
    written_ = 0;
    return true;
  }
  // Looking ahead costs a copy of the constraint, so it is done ever less often.
  retry_at_ = count_ + std::max<int64_t>(1, (count_ - options_.budget) / 2);
  return false;
}

std::optional<TokenId> ThoughtWatch::forced(const TokenConstraint* constraint) {
  if (written_ < queue_.size()) return queue_[written_];
  if (endings_.empty() || !parser_.in_reasoning() || count_ < std::max(options_.budget, retry_at_)) return std::nullopt;
  if (half_character_ || !begin_ending(constraint)) return std::nullopt;
  return queue_.front();
}

void ThoughtWatch::accept(TokenId token) {
  if (written_ < queue_.size() && token == queue_[written_]) {
    ++written_;
  } else if (parser_.in_reasoning()) {
    ++count_;
  }
  const std::string text = decoder_.push(token);
  half_character_ = text.empty() && !tokenizer_->piece(token, chat_format_needs_control_text(options_.format)).empty();
  parser_.push(text);
}

}  // namespace moetier
