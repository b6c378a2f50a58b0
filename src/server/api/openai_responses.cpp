// OpenAI's /v1/responses, without stored state: every request brings its whole input.
#include <algorithm>
#include <ctime>
#include <utility>

#include "server/api/chat_messages.h"
#include "server/api/openai_shapes.h"
#include "server/api/sse.h"

namespace moetier::server {
namespace {

/// The response object before and after its output; what was asked is told back.
class ResponseObject {
 public:
  ResponseObject(const Json& body, const ChatRequest& request, const ServedModel& model)
      : id_(make_id("resp_")), created_(static_cast<int64_t>(std::time(nullptr))), model_(model) {
    const auto given = [&](const char* name, Json otherwise) {
      const auto it = body.find(name);
      return it == body.end() ? otherwise : *it;
    };
    truncation_ = given("truncation", "disabled");
    if (truncation_.is_null()) truncation_ = "disabled";
    asked_ = {{"instructions", given("instructions", nullptr)},
              {"max_output_tokens", given("max_output_tokens", nullptr)},
              {"metadata", given("metadata", Json::object())},
              {"parallel_tool_calls", request.parallel_tools},
              {"reasoning", given("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
              {"temperature", request.params.sampler.temperature},
              {"text", given("text", {{"format", {{"type", "text"}}}})},
              {"tool_choice", given("tool_choice", "auto")},
              {"tools", given("tools", Json::array())},
              {"top_logprobs", std::max(request.params.n_probs, 0)},
              {"top_p", request.params.sampler.top_p}};
  }

  Json json(std::string_view status, const Json& output, const Answer* answer) const {
    Json out = {{"id", id_},
                {"object", "response"},
                {"created_at", created_},
                {"status", status},
                {"background", false},
                {"error", nullptr},
                {"incomplete_details", nullptr},
                {"model", model_.name()},
                {"output", output},
                {"previous_response_id", nullptr},
                {"store", false},
                {"truncation", truncation_},
                {"usage", nullptr}};
    out.update(asked_);
    if (status == "incomplete") out["incomplete_details"] = {{"reason", "max_output_tokens"}};
    if (answer != nullptr) out["usage"] = usage(*answer);
    return out;
  }

  static std::string_view status_of(const RequestResult& result) {
    return result.finish == Finish::end_of_generation || result.finish == Finish::stop_text ? "completed"
                                                                                            : "incomplete";
  }

 private:
  Json usage(const Answer& answer) const {
    const RequestResult& r = *answer.result;
    return {{"input_tokens", r.prompt_tokens},
            {"input_tokens_details", {{"cached_tokens", r.cached_tokens}}},
            {"output_tokens", r.sampled_tokens},
            {"output_tokens_details", {{"reasoning_tokens", r.thought_tokens}}},
            {"total_tokens", r.prompt_tokens + r.sampled_tokens}};
  }

  std::string id_;
  int64_t created_;
  const ServedModel& model_;
  Json truncation_, asked_;
};

Json reasoning_item(const std::string& id, const std::string& text, std::string_view status) {
  Json content = Json::array();
  if (status != "in_progress") content.push_back({{"type", "reasoning_text"}, {"text", text}});
  return {{"id", id}, {"type", "reasoning"}, {"summary", Json::array()}, {"content", content}, {"status", status}};
}

Json text_part(const std::string& text, const Json& logprobs) {
  return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", logprobs}};
}

Json message_item(const std::string& id, const std::string& text, const Json& logprobs, std::string_view status) {
  Json content = Json::array();
  if (status != "in_progress") content.push_back(text_part(text, logprobs));
  return {{"id", id}, {"type", "message"}, {"role", "assistant"}, {"status", status}, {"content", content}};
}

Json call_item(const std::string& id, const std::string& call_id, const ToolCall& call, std::string_view status) {
  return {{"id", id},
          {"type", "function_call"},
          {"call_id", call_id},
          {"name", call.name},
          {"arguments", status == "in_progress" ? std::string() : call.arguments},
          {"status", status}};
}

std::string call_id(const ToolCall& call) {
  return call.id.empty() ? make_id("call_") : call.id;
}

/// The log-probabilities of the tokens that wrote a message's text: not those of thoughts, calls and the end.
class TextLogprobs {
 public:
  TextLogprobs(bool wanted, const Tokenizer& tokenizer) : wanted_(wanted), tokenizer_(tokenizer) {}

  /// What this part adds. Tokens whose text is still held back wait for the part that brings it.
  Json add(const AnswerPart& part) {
    if (!wanted_) return Json::array();
    waiting_.insert(waiting_.end(), part.tokens.begin(), part.tokens.end());
    if (part.pieces.empty()) return Json::array();
    const bool text = std::any_of(part.pieces.begin(), part.pieces.end(),
                                  [](const ChatPiece& piece) { return piece.kind == ChatPiece::Kind::content; });
    Json added = text ? chat_logprobs(waiting_, tokenizer_)["content"] : Json::array();
    waiting_.clear();
    return added;
  }

 private:
  bool wanted_;
  const Tokenizer& tokenizer_;
  std::vector<TokenOut> waiting_;
};

void append(Json& list, const Json& more) {
  list.insert(list.end(), more.begin(), more.end());
}

Json output_of(const Answer& answer, const Json& logprobs) {
  Json output = Json::array();
  // What was cut off is the last of it.
  const std::string_view last =
      answer.calls.empty() && !answer.cut_call ? ResponseObject::status_of(*answer.result) : "completed";
  const bool cut_in_thought = answer.content.empty() && !answer.reasoning.empty() && last == "incomplete";
  if (!answer.reasoning.empty()) {
    output.push_back(reasoning_item(make_id("rs_"), answer.reasoning, cut_in_thought ? last : "completed"));
  }
  if (!answer.content.empty() || (answer.calls.empty() && !answer.cut_call && !cut_in_thought)) {
    output.push_back(message_item(make_id("msg_"), answer.content, logprobs, last));
  }
  for (const ToolCall& call : answer.calls)
    output.push_back(call_item(make_id("fc_"), call_id(call), call, "completed"));
  if (answer.cut_call) {
    output.push_back(call_item(make_id("fc_"), call_id(*answer.cut_call), *answer.cut_call, "incomplete"));
  }
  return output;
}

class ResponseStream : public StreamShape {
 public:
  ResponseStream(ResponseObject object, const Service& service, bool logprobs)
      : object_(std::move(object)), service_(service), text_logprobs_(logprobs, service.model.tokenizer()) {}

  void begin(SseWriter& out) override {
    send(out, "response.created", {{"response", object_.json("in_progress", Json::array(), nullptr)}});
    send(out, "response.in_progress", {{"response", object_.json("in_progress", Json::array(), nullptr)}});
  }

  void part(SseWriter& out, const AnswerPart& part) override {
    Json fresh = text_logprobs_.add(part);  // told with the part's first piece of text
    for (const ChatPiece& piece : part.pieces) {
      if (piece.kind != ChatPiece::Kind::content && piece.kind != ChatPiece::Kind::reasoning) {
        send_call_piece(out, piece);
        continue;
      }
      if (!open_ || kind_ != piece.kind) {
        close(out);
        open(out, piece.kind);
      }
      text_ += piece.raw;
      Json json = place();
      json["delta"] = piece.raw;
      if (kind_ == ChatPiece::Kind::reasoning) {
        send(out, "response.reasoning_text.delta", json);
      } else {
        append(logprobs_, fresh);
        json["logprobs"] = std::exchange(fresh, Json::array());
        send(out, "response.output_text.delta", json);
      }
    }
    answer_.add(part);
  }

  void end(SseWriter& out) override {
    const std::string_view status = ResponseObject::status_of(*answer_.result);
    close(out, status);
    if (output_.empty()) {
      open(out, ChatPiece::Kind::content);
      close(out, status);
    }
    send(out, std::string("response.") + std::string(status), {{"response", object_.json(status, output_, &answer_)}});
    log_answers(service_, {answer_});
  }

  void error(SseWriter& out, const ApiError& error) override {
    Json failed = object_.json("failed", output_, nullptr);
    failed["error"] = {{"code", error.status() == 400 ? "invalid_prompt" : "server_error"}, {"message", error.what()}};
    send(out, "response.failed", {{"response", failed}});
  }

 private:
  void send(SseWriter& out, const std::string& type, const Json& fields) {
    Json json = {{"type", type}, {"sequence_number", sequence_++}};
    json.update(fields);
    out.event(type, json);
  }
  Json place() const { return {{"item_id", item_}, {"output_index", output_.size()}, {"content_index", 0}}; }
  void open(SseWriter& out, ChatPiece::Kind kind) {
    open_ = true;
    kind_ = kind;
    text_.clear();
    logprobs_ = Json::array();
    const bool thoughts = kind == ChatPiece::Kind::reasoning;
    item_ = make_id(thoughts ? "rs_" : "msg_");
    send(out, "response.output_item.added",
         {{"output_index", output_.size()},
          {"item", thoughts ? reasoning_item(item_, "", "in_progress") : message_item(item_, "", {}, "in_progress")}});
    if (thoughts) return;
    Json json = place();
    json["part"] = text_part("", Json::array());
    send(out, "response.content_part.added", json);
  }
  void close(SseWriter& out, std::string_view status = "completed") {
    if (!open_) return;
    open_ = false;
    Json json = place();
    json["text"] = text_;
    if (kind_ == ChatPiece::Kind::reasoning) {
      send(out, "response.reasoning_text.done", json);
      finish(out, reasoning_item(item_, text_, status));
      return;
    }
    json["logprobs"] = logprobs_;
    send(out, "response.output_text.done", json);
    Json part = place();
    part["part"] = text_part(text_, logprobs_);
    send(out, "response.content_part.done", part);
    finish(out, message_item(item_, text_, logprobs_, status));
  }
  void send_call_piece(SseWriter& out, const ChatPiece& piece) {
    switch (piece.kind) {
      case ChatPiece::Kind::tool_call:
        begin_call(out, piece.call);
        call_delta(out, piece.call.arguments);
        end_call(out, piece.call, "completed");
        break;
      case ChatPiece::Kind::call_begin:
        begin_call(out, piece.call);
        break;
      case ChatPiece::Kind::call_arguments:
        call_delta(out, piece.raw);
        break;
      case ChatPiece::Kind::call_end:
        end_call(out, piece.call, "completed");
        break;
      case ChatPiece::Kind::call_cut:
        end_call(out, piece.call, "incomplete");
        break;
      default:
        break;
    }
  }
  void begin_call(SseWriter& out, const ToolCall& call) {
    close(out);
    item_ = make_id("fc_");
    call_id_ = call_id(call);
    send(out, "response.output_item.added",
         {{"output_index", output_.size()}, {"item", call_item(item_, call_id_, call, "in_progress")}});
  }
  void call_delta(SseWriter& out, const std::string& arguments) {
    send(out, "response.function_call_arguments.delta",
         {{"item_id", item_}, {"output_index", output_.size()}, {"delta", arguments}});
  }
  void end_call(SseWriter& out, const ToolCall& call, std::string_view status) {
    send(out, "response.function_call_arguments.done",
         {{"item_id", item_}, {"output_index", output_.size()}, {"name", call.name}, {"arguments", call.arguments}});
    finish(out, call_item(item_, call_id_, call, status));
  }
  void finish(SseWriter& out, const Json& item) {
    send(out, "response.output_item.done", {{"output_index", output_.size()}, {"item", item}});
    output_.push_back(item);
  }

  ResponseObject object_;
  const Service& service_;
  Answer answer_;
  Json output_ = Json::array();
  int64_t sequence_ = 0;
  bool open_ = false;
  ChatPiece::Kind kind_ = ChatPiece::Kind::content;
  std::string item_, text_;  // of the item that is open
  std::string call_id_;      // of the call that is told
  Json logprobs_;            // likewise
  TextLogprobs text_logprobs_;
};

/// Nothing of an input is ever left out, so `truncation` of auto asks for nothing while the input fits.
std::shared_ptr<Answers> submit(const Service& service, const ChatRequest& request, const PreparedChat& prepared,
                                const Fields& fields) {
  const bool truncate = fields.choice("truncation", {"auto", "disabled"}) == "auto";
  try {
    return std::make_shared<Answers>(service.scheduler, requests_for(prepared, request.params, service.model));
  } catch (const ContextOverflow& error) {
    if (!truncate) throw;
    ApiError named = to_api_error(std::current_exception());
    ApiError answer(400, "truncation: auto is not supported where the input does not fit: " + std::string(error.what()),
                    "truncation", named.code());
    answer.details = named.details;
    throw answer;
  }
}

void respond(const Service& service, const std::string& body, httplib::Response& response) {
  const Json json = parse_body(body);
  const Fields fields(json);
  fields.text("model");
  const ChatRequest request = read_responses(fields, service.options.defaults, service.model);
  const PreparedChat prepared = prepare_chat(request, service.model);
  log_prompt(service, prepared.prompt);
  ResponseObject object(json, request, service.model);
  const std::shared_ptr<Answers> answers = submit(service, request, prepared, fields);
  answers->parse(prepared);
  if (request.params.stream) {
    auto shape = std::make_shared<ResponseStream>(std::move(object), service, request.params.n_probs >= 0);
    stream_answers(response, answers, std::move(shape), service.options.keep_alive_seconds);
    return;
  }
  TextLogprobs text_logprobs(request.params.n_probs >= 0, service.model.tokenizer());
  Json logprobs = Json::array();
  const std::vector<Answer> gathered =
      gather(*answers, [&](const AnswerPart& part) { append(logprobs, text_logprobs.add(part)); });
  log_answers(service, gathered);
  const Answer& only = gathered[0];
  answer(response, object.json(ResponseObject::status_of(*only.result), output_of(only, logprobs), &only));
}

}  // namespace

void add_responses_routes(Routes& routes) {
  routes.post("/v1/responses", Cost::generation,
              [&service = routes.service()](const httplib::Request&, const std::string& body,
                                            httplib::Response& response) { respond(service, body, response); });
}

}  // namespace moetier::server
