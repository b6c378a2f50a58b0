// /v1/chat/completions.
#include <ctime>

#include "server/api/chat_messages.h"
#include "server/api/openai_shapes.h"
#include "server/api/sse.h"

namespace moetier::server {
namespace {

struct Head {
  std::string id = make_id("chatcmpl-");
  int64_t created = static_cast<int64_t>(std::time(nullptr));
  std::string model;
};

Json tool_call_json(const ToolCall& call) {
  return {{"id", call.id.empty() ? make_id("call_") : call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

/// Requests with `functions` are answered in their own words.
std::string_view finish_of(const RequestResult& result, const Answer& answer, bool legacy) {
  const std::string_view reason = finish_reason(result.finish, !answer.calls.empty());
  return legacy && reason == "tool_calls" ? "function_call" : reason;
}

Json choice_json(const Answer& answer, size_t index, bool logprobs, bool legacy, const Tokenizer& tokenizer) {
  Json message = {{"role", "assistant"},
                  {"content", answer.content.empty() && !answer.calls.empty() ? Json() : Json(answer.content)},
                  {"refusal", nullptr}};
  if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
  for (const ToolCall& call : answer.calls) {
    if (legacy) {
      message["function_call"] = {{"name", call.name}, {"arguments", call.arguments}};
    } else {
      message["tool_calls"].push_back(tool_call_json(call));
    }
  }
  return {{"index", index},
          {"message", message},
          {"logprobs", logprobs ? chat_logprobs(answer.tokens, tokenizer) : Json()},
          {"finish_reason", finish_of(*answer.result, answer, legacy)}};
}

Json whole(const Head& head, const std::vector<Answer>& answers, const ChatRequest& request, const Service& service) {
  Json choices = Json::array();
  for (size_t i = 0; i < answers.size(); ++i) {
    choices.push_back(
        choice_json(answers[i], i, request.params.n_probs >= 0, request.legacy_functions, service.model.tokenizer()));
  }
  return {{"id", head.id},
          {"object", "chat.completion"},
          {"created", head.created},
          {"model", head.model},
          {"choices", choices},
          {"usage", openai_usage(usage_of(answers, answers.size()))},
          {"system_fingerprint", "moetier-" MOETIER_VERSION},
          {"timings", timings(*answers[0].result)}};
}

/// One chunk a piece.
class ChatStream : public StreamShape {
 public:
  ChatStream(Head head, const ChatRequest& request, const Service& service, size_t choices)
      : head_(std::move(head)),
        params_(request.params),
        legacy_(request.legacy_functions),
        service_(service),
        answers_(choices),
        calls_(choices) {}

  void begin(SseWriter& out) override {
    for (size_t i = 0; i < answers_.size(); ++i) send(out, i, {{"role", "assistant"}, {"content", ""}});
  }

  void part(SseWriter& out, const AnswerPart& part) override {
    if (part.progress) {
      Json json = chunk();
      json["prompt_progress"] = prompt_progress(part);
      out.data(json);
      return;
    }
    so_far_ = part.usage;
    Answer& answer = answers_[part.choice];
    const bool logprobs = params_.n_probs >= 0 && !part.tokens.empty();
    tokens_ = logprobs ? chat_logprobs(part.tokens, service_.model.tokenizer()) : Json();
    for (const ChatPiece& piece : part.pieces) send_piece(out, part.choice, piece);
    if (!tokens_.is_null()) send(out, part.choice, Json::object());
    answer.add(part);
    if (part.result != nullptr) {
      send(out, part.choice, Json::object(), finish_of(*part.result, answer, legacy_), part.result.get());
    }
  }

  void end(SseWriter& out) override {
    if (params_.include_usage) {
      Json json = chunk();
      json["choices"] = Json::array();
      json["usage"] = openai_usage(usage_of(answers_, answers_.size()));
      out.data(json);
    }
    out.data_text("[DONE]");
    log_answers(service_, answers_);
  }

  void error(SseWriter& out, const ApiError& error) override { out.data(error_body(Api::openai, error)); }

 private:
  Json chunk() const {
    Json json = {{"id", head_.id},
                 {"object", "chat.completion.chunk"},
                 {"created", head_.created},
                 {"model", head_.model},
                 {"system_fingerprint", "moetier-" MOETIER_VERSION},
                 {"choices", Json::array()}};
    if (params_.include_usage) json["usage"] = nullptr;
    return json;
  }

  void send(SseWriter& out, size_t choice, const Json& delta, std::string_view finish = "",
            const RequestResult* result = nullptr) {
    Json json = chunk();
    json["choices"].push_back({{"index", choice},
                               {"delta", delta},
                               {"logprobs", tokens_},
                               {"finish_reason", finish.empty() ? Json() : Json(finish)}});
    tokens_ = nullptr;
    if (result != nullptr) {
      json["timings"] = timings(*result);
    } else if (so_far_) {
      json["timings"] = timings(*so_far_);
    }
    out.data(json);
  }

  void begin_call(SseWriter& out, size_t choice, const ToolCall& call) {
    const size_t index = calls_[choice]++;
    if (legacy_) {
      send(out, choice, {{"function_call", {{"name", call.name}, {"arguments", ""}}}});
      return;
    }
    Json json = {{"index", index}};
    json.update(tool_call_json(call));
    json["function"]["arguments"] = "";
    send(out, choice, {{"tool_calls", Json::array({json})}});
  }
  /// Of the call that was begun last.
  void send_arguments(SseWriter& out, size_t choice, const std::string& arguments) {
    const Json function = {{"arguments", arguments}};
    if (legacy_) {
      send(out, choice, {{"function_call", function}});
      return;
    }
    send(out, choice, {{"tool_calls", Json::array({{{"index", calls_[choice] - 1}, {"function", function}}})}});
  }
  void send_piece(SseWriter& out, size_t choice, const ChatPiece& piece) {
    switch (piece.kind) {
      case ChatPiece::Kind::reasoning:
        send(out, choice, {{"reasoning_content", piece.raw}});
        break;
      case ChatPiece::Kind::content:
        send(out, choice, {{"content", piece.raw}});
        break;
      case ChatPiece::Kind::tool_call:
        begin_call(out, choice, piece.call);
        send_arguments(out, choice, piece.call.arguments);
        break;
      case ChatPiece::Kind::call_begin:
        begin_call(out, choice, piece.call);
        break;
      case ChatPiece::Kind::call_arguments:
        send_arguments(out, choice, piece.raw);
        break;
      case ChatPiece::Kind::call_end:
      case ChatPiece::Kind::call_cut:
      case ChatPiece::Kind::markup:
        break;
    }
  }

  Head head_;
  GenerationParams params_;
  bool legacy_;
  const Service& service_;
  std::vector<Answer> answers_;
  std::vector<size_t> calls_;           // begun so far, by choice
  Json tokens_;                         // log-probabilities that go with the next chunk
  std::optional<RequestUsage> so_far_;  // goes with every chunk of a part
};

void chat(const Service& service, const std::string& body, httplib::Response& response) {
  const Json json = parse_body(body);
  const Fields fields(json);
  fields.text("model");
  const ChatRequest request = read_openai_chat(fields, service.options.defaults, service.model);
  const PreparedChat prepared = prepare_chat(request, service.model);
  log_prompt(service, prepared.prompt);
  auto answers = std::make_shared<Answers>(service.scheduler, requests_for(prepared, request.params, service.model));
  answers->parse(prepared);
  Head head{.model = service.model.name()};
  if (request.params.stream) {
    auto shape = std::make_shared<ChatStream>(std::move(head), request, service, answers->count());
    stream_answers(response, std::move(answers), std::move(shape), service.options.keep_alive_seconds);
    return;
  }
  const std::vector<Answer> gathered = gather(*answers);
  log_answers(service, gathered);
  answer(response, whole(head, gathered, request, service));
}

}  // namespace

void add_openai_chat(Routes& routes) {
  const auto handler = [&service = routes.service()](const httplib::Request&, const std::string& body,
                                                     httplib::Response& response) { chat(service, body, response); };
  routes.post("/v1/chat/completions", Cost::generation, handler);
  routes.post("/chat/completions", Cost::generation, handler);
}

}  // namespace moetier::server
