// Parts of OpenAI's answers that several endpoints share.
#pragma once

#include <string>

#include "server/api/answers.h"
#include "server/api/service.h"

namespace moetier::server {

/// finish_reason of chat and completions. `called_tools`: the answer has whole calls; a limit that ended it is told
/// all the same, since there may have been more to come.
std::string_view finish_reason(Finish finish, bool called_tools);

/// {"token", "logprob", "bytes", "top_logprobs"} of each token; how many likeliest were asked for decides the last.
Json chat_logprobs(const std::vector<TokenOut>& tokens, const Tokenizer& tokenizer);

/// Where in an answer's text its tokens begin, in characters. A token that begins inside a character begins with it.
class TextPlace {
 public:
  explicit TextPlace(const Tokenizer& tokenizer) : decoder_(tokenizer) {}
  /// `text` is the decoded `tokens`, which the answer begins with, and its tokens are the next to come.
  void skip_back(const std::vector<TokenId>& tokens, const std::string& text);
  void jump_behind(const std::string& text);
  int64_t place() const { return offset_ > 0 ? offset_ : 0; }
  void pass(TokenId token);

 private:
  StreamDecoder decoder_;
  int64_t offset_ = 0;
};

/// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; `place` moves on. What a prompt's first token has not
/// is null.
Json legacy_logprobs(const std::vector<TokenOut>& tokens, const Tokenizer& tokenizer, bool top, TextPlace& place);

Json openai_usage(const Usage& usage);

/// A log-probability that JSON can hold.
double finite(float logprob);

/// One request for each choice of each prompt, with seeds counting up.
std::vector<Request> requests_for(const std::vector<std::vector<TokenId>>& prompts, const GenerationParams& params);
/// The choices of a chat, and with them its constraint.
std::vector<Request> requests_for(const PreparedChat& chat, const GenerationParams& params, const ServedModel& model);

/// Of plain completions: the grammar that llama-server's fields ask for, if any.
void constrain_text(std::vector<Request>& requests, const GenerationParams& params, const ServedModel& model);

void log_prompt(const Service& service, std::string_view prompt);
void log_answers(const Service& service, const std::vector<Answer>& answers);

}  // namespace moetier::server
