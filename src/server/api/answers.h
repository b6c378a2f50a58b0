// Generations under way for one HTTP request, and what has come of them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/chat_output.h"
#include "server/api/chat_request.h"
#include "server/scheduler.h"

namespace moetier::server {

/// The client hung up, so nobody waits for the answer.
class ClientGone : public std::runtime_error {
 public:
  ClientGone() : std::runtime_error("the client has closed the connection") {}
};

/// What one choice has come to since its last part.
struct AnswerPart {
  size_t choice = 0;
  std::string text;               ///< of a plain completion
  std::vector<ChatPiece> pieces;  ///< of a chat; never markup
  std::vector<TokenOut> tokens;
  bool progress = false;  ///< no text: so much of the prompt is done
  bool prompt = false;    ///< no text: `tokens` are the prompt's
  int64_t prompt_done = 0, prompt_tokens = 0, prompt_cached = 0;
  double prompt_seconds = 0;
  std::optional<RequestUsage> usage;            ///< so far, where it was asked for
  int slot = -1;                                ///< once it is known
  std::shared_ptr<const RequestResult> result;  ///< the last part of this choice
};

/// Letting go of it cancels what is not finished.
class Answers {
 public:
  /// Submits all, or none: what the scheduler refuses is thrown.
  Answers(Scheduler& scheduler, std::vector<Request> requests);
  /// Takes a chat's output apart.
  void parse(const PreparedChat& chat);

  /// Waits up to `timeout`; nullopt if nothing came. Errors: ClientGone; ApiError if a generation failed.
  std::optional<AnswerPart> next(std::chrono::milliseconds timeout);
  bool ended() const { return open_ == 0; }
  size_t count() const { return choices_.size(); }
  void cancel(bool stalled = false);

 private:
  struct Choice {
    std::shared_ptr<Stream> stream;
    std::optional<ChatOutputParser> parser;
    bool ended = false;
    bool unscored = false;  // the prompt's log-probabilities are to come
  };
  std::optional<AnswerPart> ask(size_t index, std::chrono::milliseconds timeout);
  std::vector<Choice> choices_;
  std::shared_ptr<Bell> arrival_;  // rung by all choices
  size_t open_ = 0, turn_ = 0;
};

/// A whole choice.
struct Answer {
  std::string text;                ///< plain
  std::string reasoning, content;  ///< chat
  std::vector<ToolCall> calls;
  std::optional<ToolCall> cut_call;  ///< its arguments ended too early
  std::vector<TokenOut> prompt, tokens;
  std::shared_ptr<const RequestResult> result;
  void add(const AnswerPart& part);
};

/// Waits for all choices; `each` sees every part as it comes.
std::vector<Answer> gather(Answers& answers, const std::function<void(const AnswerPart&)>& each = {});

/// Tokens that a client is billed for, over all choices; `prompts`: how many different prompts there were.
struct Usage {
  int64_t prompt = 0, cached = 0, completion = 0;
  int64_t reasoning = 0;  ///< of the completion
};
Usage usage_of(const std::vector<Answer>& answers, size_t choices_each = 1);

/// llama-server's `timings`.
Json timings(const RequestUsage& usage);

/// Its `prompt_progress`, of a part that is one.
Json prompt_progress(const AnswerPart& part);

/// A random id behind this prefix.
std::string make_id(std::string_view prefix);

}  // namespace moetier::server
