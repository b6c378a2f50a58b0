// Where an answer thinks: how many of its tokens are thoughts, and an end to them when a budget is used up.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat_output.h"
#include "engine/constraint.h"
#include "tokenizer/tokenizer.h"

namespace moetier {

/// What is written to end a thought: `close` is the family's mark, the others the white space that it writes around it.
struct ThoughtEnding {
  std::string lead, close, tail;
  std::string text() const { return lead + close + tail; }
};

/// The ending of a family's thoughts. Of several marks it is that of the thought that `prompt` opens, or that stands in
/// `chat_template`. Empty texts for a family without thoughts.
ThoughtEnding thought_ending(ChatFormat format, std::string_view chat_template, std::string_view prompt);

/// Whether a template knows thoughts: it holds one of the family's marks.
bool template_thinks(ChatFormat format, std::string_view chat_template);

/// Whether a prompt ends behind a thought that it closes, as templates write where thinking is off.
bool prompt_closes_reasoning(ChatFormat format, std::string_view prompt);

struct ThoughtOptions {
  ChatFormat format = ChatFormat::plain;
  bool in_reasoning = false;  ///< the prompt has opened a thought
  bool tools = true;          ///< as ChatOutputOptions::tools: whether what looks like a call is one
  int64_t budget = -1;        ///< tokens of thoughts at most; -1 = no limit
  ThoughtEnding ending;
};

/// Follows one answer's tokens. A token is a thought if it was chosen while one was open, so a closing mark that the
/// model wrote counts; the ending that a budget writes does not.
class ThoughtWatch {
 public:
  ThoughtWatch(const Tokenizer& tokenizer, ThoughtOptions options);

  /// The token that must come next, if the budget says so: the next of the ending. `constraint` may be null; where it
  /// allows no ending yet, the thought goes on until it does.
  std::optional<TokenId> forced(const TokenConstraint* constraint);
  void accept(TokenId token);
  int64_t thought_tokens() const { return count_; }

 private:
  bool begin_ending(const TokenConstraint* constraint);

  ThoughtOptions options_;
  const Tokenizer* tokenizer_;
  StreamDecoder decoder_;
  ChatOutputParser parser_;
  std::vector<std::vector<TokenId>> endings_;  // best first
  std::vector<TokenId> queue_;                 // of the ending that is being written
  size_t written_ = 0;
  int64_t count_ = 0;
  bool half_character_ = false;  // the text ends in one
  int64_t retry_at_ = 0;         // the count at which an ending is tried again
};

}  // namespace moetier
