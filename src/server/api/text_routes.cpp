// /tokenize, /detokenize and /apply-template.
#include <fmt/format.h>

#include "server/api/chat_messages.h"
#include "server/api/prompt_input.h"
#include "server/api/service.h"
#include "tokenizer/utf8.h"

namespace moetier::server {
namespace {

/// A piece as text, or as an array of bytes if it is no whole UTF-8.
Json piece_json(const std::string& piece) {
  for (size_t at = 0; at < piece.size();) {
    const Utf8Char one = utf8_at(piece, at);
    if (one.kind != Utf8Char::Kind::valid) {
      Json bytes = Json::array();
      for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
      return bytes;
    }
    at += one.bytes;
  }
  return piece;
}

Json tokenize(const Fields& body, const ServedModel& model) {
  const bool special = body.boolean("add_special").value_or(false);
  const bool parse = body.boolean("parse_special").value_or(true);
  const Json& content = body.need("content");
  if (!content.is_string() && !content.is_array()) body.wrong("content", "a text, or an array of texts and token ids");
  const auto ids = read_prompt(content, "content", model, {.add_special = special, .parse_special = parse});
  if (!body.boolean("with_pieces").value_or(false)) return {{"tokens", ids}};
  Json tokens = Json::array();
  for (const TokenId id : ids) tokens.push_back({{"id", id}, {"piece", piece_json(model.tokenizer().piece(id, true))}});
  return {{"tokens", tokens}};
}

Json detokenize(const Fields& body, const ServedModel& model) {
  const Json* tokens = body.array("tokens");
  if (tokens == nullptr) body.wrong("tokens", "an array of token ids");
  for (size_t i = 0; i < tokens->size(); ++i) {
    if (!(*tokens)[i].is_number()) bad_field(element("tokens", i), element("tokens", i) + " must be a token id");
  }
  return {{"content", model.tokenizer().decode(read_prompt(*tokens, "tokens", model), true)}};
}

}  // namespace

void add_text_routes(Routes& routes) {
  Service& service = routes.service();
  routes.post("/tokenize", Cost::work,
              [&service](const httplib::Request&, const std::string& body, httplib::Response& response) {
                const Json json = parse_body(body);
                answer(response, tokenize(Fields(json), service.model));
              });
  routes.post("/detokenize", Cost::work,
              [&service](const httplib::Request&, const std::string& body, httplib::Response& response) {
                const Json json = parse_body(body);
                answer(response, detokenize(Fields(json), service.model));
              });
  routes.post("/apply-template", Cost::work,
              [&service](const httplib::Request&, const std::string& body, httplib::Response& response) {
                const Json json = parse_body(body);
                const ChatRequest chat = read_openai_chat(Fields(json), service.options.defaults, service.model);
                answer(response, {{"prompt", render_chat(chat, service.model)}});
              });
}

}  // namespace moetier::server
