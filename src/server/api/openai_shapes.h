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

/// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; `offset`: characters before the first, moved on.
Json legacy_logprobs(const std::vector<TokenOut>& tokens, const Tokenizer& tokenizer, bool top, int64_t& offset);

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
