#include "server/api/openai_shapes.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "engine/json_schema.h"

namespace moetier::server {
namespace {

constexpr double kLeastLogprob = -9999.0;  // OpenAI's own word for "less than can be told"

std::string shown(const Tokenizer& tokenizer, TokenId token) {
  return tokenizer.piece(token, true);
}

Json bytes_of(const std::string& piece) {
  Json bytes = Json::array();
  for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

Json one_logprob(const Tokenizer& tokenizer, TokenId token, float logprob) {
  const std::string piece = shown(tokenizer, token);
  return {{"token", piece}, {"logprob", finite(logprob)}, {"bytes", bytes_of(piece)}};
}

int64_t characters(const std::string& piece) {
  return std::count_if(piece.begin(), piece.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

}  // namespace

double finite(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : kLeastLogprob;
}

std::string_view finish_reason(Finish finish, bool called_tools) {
  if (finish != Finish::end_of_generation && finish != Finish::stop_text) return "length";
  return called_tools ? "tool_calls" : "stop";
}

Json chat_logprobs(const std::vector<TokenOut>& tokens, const Tokenizer& tokenizer) {
  Json content = Json::array();
  for (const TokenOut& token : tokens) {
    Json one = one_logprob(tokenizer, token.token, token.logprob);
    one["top_logprobs"] = Json::array();
    for (const TokenProb& top : token.top)
      one["top_logprobs"].push_back(one_logprob(tokenizer, top.token, top.logprob));
    content.push_back(std::move(one));
  }
  return {{"content", content}};
}

void TextPlace::skip_back(const std::vector<TokenId>& tokens, const std::string& text) {
  // Of a whole text a leading space is left out that is the first token's.
  StreamDecoder pieces = decoder_;
  int64_t whole = 0;
  for (const TokenId token : tokens) whole += characters(pieces.push(token));
  offset_ = characters(text) - (whole + characters(pieces.finish()));
}

void TextPlace::jump_behind(const std::string& text) {
  decoder_.finish();
  offset_ = characters(text);
}

void TextPlace::pass(TokenId token) {
  offset_ += characters(decoder_.push(token));
}

Json legacy_logprobs(const std::vector<TokenOut>& tokens, const Tokenizer& tokenizer, bool top, TextPlace& place) {
  Json out = {{"tokens", Json::array()},
              {"token_logprobs", Json::array()},
              {"top_logprobs", top ? Json::array() : Json()},
              {"text_offset", Json::array()}};
  for (const TokenOut& token : tokens) {
    const bool first = std::isnan(token.logprob);
    out["tokens"].push_back(shown(tokenizer, token.token));
    out["token_logprobs"].push_back(first ? Json() : Json(finite(token.logprob)));
    out["text_offset"].push_back(place.place());
    place.pass(token.token);
    if (!top) continue;
    if (first) {
      out["top_logprobs"].push_back(nullptr);
      continue;
    }
    Json likeliest = Json::object();
    for (const TokenProb& one : token.top) likeliest[shown(tokenizer, one.token)] = finite(one.logprob);
    out["top_logprobs"].push_back(std::move(likeliest));
  }
  return out;
}

Json openai_usage(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.completion},
          {"total_tokens", usage.prompt + usage.completion},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning}}}};
}

std::vector<Request> requests_for(const std::vector<std::vector<TokenId>>& prompts, const GenerationParams& params) {
  std::vector<Request> requests;
  for (const auto& prompt : prompts) {
    for (int i = 0; i < params.n; ++i) {
      Request request = to_request(params);
      request.prompt = prompt;
      request.sampler.seed = params.sampler.seed + static_cast<uint64_t>(i);
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

std::vector<Request> requests_for(const PreparedChat& chat, const GenerationParams& params, const ServedModel& model) {
  std::vector<Request> requests = requests_for({chat.tokens}, params);
  for (Request& request : requests) {
    request.special = chat.control_text;
    request.thoughts = chat.thoughts;
    if (!chat.gbnf.empty()) request.constraint = model.constraint(chat.gbnf, chat.triggers, chat.control_text);
  }
  return requests;
}

void constrain_text(std::vector<Request>& requests, const GenerationParams& params, const ServedModel& model) {
  std::string gbnf = params.grammar;
  if (params.schema) gbnf = json_schema_grammar(*params.schema);
  if (params.json_object) gbnf = json_object_grammar();
  if (gbnf.empty()) return;
  for (Request& request : requests) request.constraint = model.constraint(gbnf, {}, false);
}

void log_prompt(const Service& service, std::string_view prompt) {
  if (service.options.log_prompts)
    log::info("prompt: {}", Json(std::string(prompt)).dump(-1, ' ', false, Json::error_handler_t::replace));
}

void log_answers(const Service& service, const std::vector<Answer>& answers) {
  if (!service.options.log_prompts) return;
  for (const Answer& answer : answers) {
    log::info("answer: {}", Json(answer.result->text).dump(-1, ' ', false, Json::error_handler_t::replace));
  }
}

}  // namespace moetier::server
