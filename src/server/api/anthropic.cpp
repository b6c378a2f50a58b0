// Anthropic's /v1/messages and /v1/messages/count_tokens.
#include "server/api/chat_messages.h"
#include "server/api/openai_shapes.h"
#include "server/api/sse.h"

namespace moetier::server {
namespace {

std::string_view stop_reason(const RequestResult& result, bool called_tools) {
  switch (result.finish) {
    case Finish::end_of_generation:
      return called_tools ? "tool_use" : "end_turn";
    case Finish::stop_text:
      return called_tools ? "tool_use" : "stop_sequence";
    case Finish::context_full:
      return "model_context_window_exceeded";
    default:
      return "max_tokens";
  }
}

Json input_object(const ToolCall& call) {
  Json input = Json::parse(call.arguments, nullptr, false);
  return input.is_object() ? input : Json::object();
}

std::string call_id(const ToolCall& call) {
  return call.id.empty() ? make_id("toolu_") : call.id;
}

Json usage(int64_t prompt, int64_t cached, int64_t output) {
  return {{"input_tokens", prompt - cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached},
          {"output_tokens", output}};
}

Json message(const std::string& id, const std::string& model) {
  return {{"id", id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", model},
          {"content", Json::array()},
          {"stop_reason", nullptr},
          {"stop_sequence", nullptr}};
}

void set_stop(Json& json, const RequestResult& result, bool called_tools) {
  json["stop_reason"] = stop_reason(result, called_tools);
  json["stop_sequence"] = result.finish == Finish::stop_text && !called_tools ? Json(result.stop_text) : Json();
}

Json whole(const Answer& a, const Service& service) {
  Json json = message(make_id("msg_"), service.model.name());
  Json& content = json["content"];
  if (!a.reasoning.empty()) content.push_back({{"type", "thinking"}, {"thinking", a.reasoning}, {"signature", ""}});
  if (!a.content.empty() || (a.calls.empty() && a.reasoning.empty())) {
    content.push_back({{"type", "text"}, {"text", a.content}});
  }
  for (const ToolCall& call : a.calls) {
    content.push_back(
        {{"type", "tool_use"}, {"id", call_id(call)}, {"name", call.name}, {"input", input_object(call)}});
  }
  const RequestResult& r = *a.result;
  set_stop(json, r, !a.calls.empty());
  json["usage"] = usage(r.prompt_tokens, r.cached_tokens, r.sampled_tokens);
  return json;
}

/// One block at a time: begun when its kind begins, ended when another kind does.
class MessageStream : public StreamShape {
 public:
  MessageStream(const Service& service, int64_t prompt_tokens) : service_(service), prompt_tokens_(prompt_tokens) {}

  void begin(SseWriter& out) override {
    Json json = message(make_id("msg_"), service_.model.name());
    json["usage"] = usage(prompt_tokens_, 0, 0);
    out.event("message_start", {{"type", "message_start"}, {"message", json}});
    keep_alive(out);
  }

  void part(SseWriter& out, const AnswerPart& part) override {
    for (const ChatPiece& piece : part.pieces) send(out, piece);
    answer_.add(part);
    if (part.result == nullptr) return;
    if (blocks_ == 0) begin_block(out, ChatPiece::Kind::content, {{"type", "text"}, {"text", ""}});
    end_block(out);
    Json delta = Json::object();
    const RequestResult& r = *part.result;
    set_stop(delta, r, !answer_.calls.empty());
    out.event("message_delta", {{"type", "message_delta"},
                                {"delta", delta},
                                {"usage", usage(r.prompt_tokens, r.cached_tokens, r.sampled_tokens)}});
  }

  void end(SseWriter& out) override {
    out.event("message_stop", {{"type", "message_stop"}});
    log_answers(service_, {answer_});
  }
  void error(SseWriter& out, const ApiError& error) override { out.event("error", error_body(Api::anthropic, error)); }
  void keep_alive(SseWriter& out) override { out.event("ping", {{"type", "ping"}}); }

 private:
  void begin_block(SseWriter& out, ChatPiece::Kind kind, const Json& block) {
    open_ = true;
    kind_ = kind;
    out.event("content_block_start", {{"type", "content_block_start"}, {"index", blocks_++}, {"content_block", block}});
  }
  void end_block(SseWriter& out) {
    if (!open_) return;
    open_ = false;
    out.event("content_block_stop", {{"type", "content_block_stop"}, {"index", blocks_ - 1}});
  }
  void delta(SseWriter& out, const Json& json) {
    out.event("content_block_delta", {{"type", "content_block_delta"}, {"index", blocks_ - 1}, {"delta", json}});
  }
  void begin_tool(SseWriter& out, const ToolCall& call) {
    end_block(out);
    begin_block(out, ChatPiece::Kind::tool_call,
                {{"type", "tool_use"}, {"id", call_id(call)}, {"name", call.name}, {"input", Json::object()}});
  }
  void arguments(SseWriter& out, const std::string& json) {
    delta(out, {{"type", "input_json_delta"}, {"partial_json", json}});
  }
  void send(SseWriter& out, const ChatPiece& piece) {
    using Kind = ChatPiece::Kind;
    switch (piece.kind) {
      case Kind::tool_call:
        begin_tool(out, piece.call);
        arguments(out, input_object(piece.call).dump());
        end_block(out);
        break;
      case Kind::call_begin:
        begin_tool(out, piece.call);
        break;
      case Kind::call_arguments:
        arguments(out, piece.raw);
        break;
      case Kind::call_end:
      case Kind::call_cut:
        end_block(out);
        break;
      case Kind::reasoning:
        if (kind_ != piece.kind) end_block(out);
        if (!open_) begin_block(out, piece.kind, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
        delta(out, {{"type", "thinking_delta"}, {"thinking", piece.raw}});
        break;
      case Kind::content:
        if (kind_ != piece.kind) end_block(out);
        if (!open_) begin_block(out, piece.kind, {{"type", "text"}, {"text", ""}});
        delta(out, {{"type", "text_delta"}, {"text", piece.raw}});
        break;
      case Kind::markup:
        break;
    }
  }

  const Service& service_;
  int64_t prompt_tokens_;
  Answer answer_;
  int blocks_ = 0;
  bool open_ = false;
  ChatPiece::Kind kind_ = ChatPiece::Kind::content;
};

void messages(const Service& service, const std::string& body, httplib::Response& response) {
  const Json json = parse_body(body);
  const Fields fields(json);
  fields.text("model");
  if (!fields.integer("max_tokens", 1, 2147483647)) fields.wrong("max_tokens", "a whole number");
  const ChatRequest request = read_anthropic(fields, service.options.defaults, service.model);
  const PreparedChat prepared = prepare_chat(request, service.model);
  log_prompt(service, prepared.prompt);
  auto answers = std::make_shared<Answers>(service.scheduler, requests_for(prepared, request.params, service.model));
  answers->parse(prepared);
  if (request.params.stream) {
    auto shape = std::make_shared<MessageStream>(service, static_cast<int64_t>(prepared.tokens.size()));
    stream_answers(response, std::move(answers), std::move(shape), service.options.keep_alive_seconds);
    return;
  }
  const std::vector<Answer> gathered = gather(*answers);
  log_answers(service, gathered);
  answer(response, whole(gathered[0], service));
}

void count_tokens(const Service& service, const std::string& body, httplib::Response& response) {
  const Json json = parse_body(body);
  const ChatRequest request = read_anthropic(Fields(json), service.options.defaults, service.model);
  answer(response, {{"input_tokens", service.model.encode_rendered(render_chat(request, service.model)).size()}});
}

}  // namespace

void add_anthropic_routes(Routes& routes) {
  Service& service = routes.service();
  routes.post("/v1/messages", Cost::generation,
              [&service](const httplib::Request&, const std::string& body, httplib::Response& response) {
                messages(service, body, response);
              });
  routes.post("/v1/messages/count_tokens", Cost::work,
              [&service](const httplib::Request&, const std::string& body, httplib::Response& response) {
                count_tokens(service, body, response);
              });
}

}  // namespace moetier::server
