// check-api against servers that are right, that lack things, and that are wrong in every way it looks for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "cli/process.h"

namespace moetier::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kModel = MOETIER_SOURCE_DIR "/models/fairytale-moe-q8_0.gguf";
constexpr const char* kKey = "secret";

/// Something that the stand-in does to answers of `path` whose request holds `asked`.
struct Fault {
  std::string path, asked;
  std::string from, to;    ///< the first place of this text in the answer; {n} counts the answers
  std::string line, told;  ///< the check that must fail, and words of its reason
  int status = 0;          ///< instead of the real one
  std::string type = "";   ///< likewise the Content-Type
};

/// A server between check-api and a real one: it passes everything on, and alters what the faults say.
class StandIn {
 public:
  StandIn(int port, std::vector<Fault> faults, bool notices_hang_ups = true)
      : upstream_(port), faults_(std::move(faults)), notices_(notices_hang_ups) {
    const auto pass = [this](const httplib::Request& request, httplib::Response& response) {
      serve(request, response);
    };
    server_.Get(".*", pass);
    server_.Post(".*", pass);
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ~StandIn() {
    server_.stop();
    thread_.join();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  httplib::Request copy_of(const httplib::Request& request) const {
    httplib::Request out;
    out.method = request.method;
    out.path = request.path;
    out.body = request.body;
    for (const char* header : {"Authorization", "X-Api-Key", "Content-Type"})
      if (request.has_header(header)) out.set_header(header, request.get_header_value(header));
    return out;
  }

  void serve(const httplib::Request& request, httplib::Response& response) {
    const bool there = std::ranges::none_of(
        faults_, [&](const Fault& fault) { return fault.path == request.path && fault.status == 404; });
    if (there && notices_ && request.body.find("\"ignore_eos\":true") != std::string::npos)
      return stream(request, response);
    httplib::Client client("127.0.0.1", upstream_);
    client.set_read_timeout(60);
    const httplib::Result result = client.send(copy_of(request));
    if (!result) {
      response.status = 502;
      return;
    }
    std::string body = result->body, type = result->get_header_value("Content-Type");
    response.status = result->status;
    for (const Fault& fault : faults_) {
      if (fault.path != request.path || request.body.find(fault.asked) == std::string::npos) continue;
      const size_t at = body.find(fault.from);
      if (at == std::string::npos) continue;
      std::string to = fault.to;
      if (const size_t n = to.find("{n}"); n != std::string::npos) to.replace(n, 3, std::to_string(++count_));
      body.replace(at, fault.from.size(), to);
      if (fault.status != 0) response.status = fault.status;
      if (!fault.type.empty()) type = fault.type;
    }
    response.set_content(body, type);
  }

  /// As it comes, so that the real server sees that the client has gone.
  void stream(const httplib::Request& request, httplib::Response& response) const {
    response.set_chunked_content_provider("text/event-stream", [this, forward = copy_of(request)](
                                                                   size_t, httplib::DataSink& sink) {
      httplib::Request copy = forward;
      copy.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) { return sink.write(data, size); };
      httplib::Client client("127.0.0.1", upstream_);
      client.send(copy);
      sink.done();
      return true;
    });
  }

  int upstream_, port_ = 0;
  std::vector<Fault> faults_;
  bool notices_;
  std::atomic<int> count_{0};
  httplib::Server server_;
  std::thread thread_;
};

/// A real server with a key, for all tests.
class CheckApi : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = new RunningMoetier({"serve", "-m", kModel, "--port", "0", "--ctx", "2048", "--api-key", kKey});
    if (!server_->wait_for_err(" slot", 60)) return;
    const std::string err = server_->so_far();
    const size_t at = err.find("http://127.0.0.1:");
    if (at != std::string::npos) port_ = std::atoi(err.c_str() + at + 17);
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  void SetUp() override { ASSERT_GT(port_, 0) << server_->so_far(); }

  static ProcessResult ask(const std::string& url, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = {"check-api", "--url", url, "--api-key", kKey};
    all.insert(all.end(), more.begin(), more.end());
    return run_moetier(all);
  }

  /// Each fault's line has failed, for its reason, and no other line has.
  static void expect_found(const std::vector<Fault>& faults, const ProcessResult& result) {
    EXPECT_EQ(result.code, 1) << result.err;
    std::vector<std::string> failed;
    size_t at = 0;
    while ((at = result.out.find("FAILED", at)) != std::string::npos) {
      const size_t end = result.out.find('\n', at);
      failed.push_back(result.out.substr(at, end - at));
      at = end;
    }
    for (const Fault& fault : faults) {
      const auto found = std::ranges::find_if(
          failed, [&](const std::string& line) { return line.starts_with("FAILED  " + fault.line + ": "); });
      if (found == failed.end()) {
        ADD_FAILURE() << "not found: " << fault.line << "\n" << result.out;
        continue;
      }
      EXPECT_THAT(*found, HasSubstr(fault.told));
      failed.erase(found);
    }
    for (const std::string& line : failed) ADD_FAILURE() << "not expected: " << line;
  }

  static inline RunningMoetier* server_ = nullptr;
  static inline int port_ = 0;
};

TEST_F(CheckApi, AServerOfItsOwnPasses) {
  const ProcessResult result = run_moetier({"check-api", kModel, "--cache-mib", "8"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  for (const char* line :
       {"ok      /metrics: the cache's counters move", "ok      keys: /slots wants one",
        "ok      /v1/chat/completions: tools", "ok      /v1/responses: JSON schema", "ok      /completion: grammar",
        "ok      cancel: /v1/messages", "ok      context overflow: /completion", " 0 failed, 0 absent, 0 unclear"})
    EXPECT_THAT(result.out, HasSubstr(line));
}

TEST_F(CheckApi, AServerThatRunsPasses) {
  const ProcessResult direct = ask("http://127.0.0.1:" + std::to_string(port_) + "/v1", {"--complete"});
  EXPECT_EQ(direct.code, 0) << direct.out << direct.err;
  EXPECT_THAT(direct.out, HasSubstr(" 0 failed, 0 absent, 0 unclear"));
  const StandIn honest(port_, {});
  const ProcessResult through = ask(honest.url());
  EXPECT_EQ(through.code, 0) << through.out << through.err;
  EXPECT_THAT(through.out, HasSubstr(" 0 failed, 0 absent, 0 unclear"));
}

TEST_F(CheckApi, WhatIsNotThereIsToldAndFailsWhereItIsRequired) {
  const auto gone = [](const char* path) { return Fault{path, "", "", "", "", "", 404}; };
  const std::vector<Fault> lacks = {gone("/v1/responses"), gone("/v1/messages"), gone("/v1/messages/count_tokens"),
                                    gone("/v1/embeddings"), gone("/slots")};
  const StandIn poor(port_, lacks);
  const ProcessResult lenient = ask(poor.url());
  EXPECT_EQ(lenient.code, 0) << lenient.out << lenient.err;
  EXPECT_THAT(lenient.out, AllOf(HasSubstr("absent  /v1/responses: answers: /v1/responses is not there (404)\n"),
                                 HasSubstr("absent  /slots: answers: "), HasSubstr("absent  cancel: /v1/responses: "),
                                 HasSubstr("absent  /v1/embeddings: of several texts: "),
                                 HasSubstr("ok      cancel: /completion"),  // by /metrics
                                 Not(HasSubstr("/v1/responses: streams")), HasSubstr(" 0 failed")));
  const ProcessResult strict = ask(poor.url(), {"--complete"});
  EXPECT_EQ(strict.code, 1);
  EXPECT_THAT(strict.out, HasSubstr("FAILED  /v1/responses: answers: /v1/responses is not there (404)\n"));
  const StandIn poorer(port_, {gone("/v1/chat/completions"), gone("/tokenize")});
  const ProcessResult required = ask(poorer.url());
  EXPECT_EQ(required.code, 1);
  EXPECT_THAT(required.out, AllOf(HasSubstr("FAILED  /v1/chat/completions: answers: /v1/chat/completions is not there"),
                                  HasSubstr("FAILED  /tokenize and /detokenize: there and back: ")));
}

TEST_F(CheckApi, WrongAnswersOfOpenAisEndpointsAreFound) {
  const std::string chat = "/v1/chat/completions", text = "/v1/completions", responses = "/v1/responses";
  const std::vector<Fault> faults = {
      {"/v1/models", "", R"("object":"list")", R"("object":"lists")", "/v1/models: lists the model",
       "$.object should be =list: \"lists\""},
      {chat, R"("max_tokens":16,"temperature":0})", R"("total_tokens":)", R"("total_tokens":1)", chat + ": answers",
       "and their sum"},
      {chat, "include_usage", "data: [DONE]", "data: done", chat + ": streams the same, with usage",
       "expected a JSON object as the data of every event, got done"},
      {chat, R"("seed":7)", R"("content":")", R"("content":"{n})", chat + ": seed", "the same text of the same seed"},
      {chat, R"("n":2)", R"("index":1)", R"("index":0)", chat + ": n", "choices 0 and 1"},
      {chat, R"("stop":[)", R"("finish_reason":"stop")", R"("finish_reason":"length")", chat + ": stop",
       "expected finish_reason stop, got length"},
      {chat, "top_logprobs", R"("logprob":-)", R"("logprob":)", chat + ": logprobs", "logprobs of at most 0"},
      {chat, "json_schema", R"(\"days\")", R"(\"day\")", chat + ": JSON schema, whole and streamed", "$ lacks days"},
      {chat, "json_object", R"("content":"{)", R"("content":"[)", chat + ": JSON object", "JSON object"},
      {chat, R"("tool_choice":"required")", R"("finish_reason":"tool_calls")", R"("finish_reason":"stop")",
       chat + ": tools: a call, streamed too, and its result", "expected finish_reason tool_calls, got stop"},
      {text, R"("max_tokens":16,"temperature":0})", R"("created":)", R"("made":)", text + ": answers",
       "$ lacks created"},
      {text, R"("stop":")", R"("text":")", R"("text":"!)", text + ": stop", "got '!"},
      {text, R"("logprobs":2)", "text_offset", "offsets", text + ": logprobs", "$ lacks text_offset"},
      {text, R"("n":2)", R"("index":1)", R"("index":2)", text + ": n", "choices numbered from 0"},
      {responses, R"(16,"temperature":0,"stream":true)", R"("sequence_number":3)", R"("sequence_number":7)",
       responses + ": streams the same", "expected sequence_number 3"},
      {responses, R"("format":{)", R"(\"cold\")", R"(\"warm\")", responses + ": JSON schema, whole and streamed",
       "$ lacks cold"},
      {responses, R"("tool_choice")", R"("type":"function_call")", R"("type":"tool_call")",
       responses + ": tools: a call, streamed too, and its result", "$.output[0].type should be"},
      {"/v1/embeddings", "queen", R"("index":1)", R"("index":5)", "/v1/embeddings: of several texts",
       "expected index 1, got 5"}};
  const StandIn wrong(port_, faults);
  std::vector<Fault> expected = faults;
  // What asks likewise, and what looks up that answer.
  expected.push_back({"", "", "", "", text + ": streams the same", "expected a text"});
  expected.push_back({"", "", "", "", text + ": several prompts", "$ lacks created"});
  expect_found(expected, ask(wrong.url()));
}

TEST_F(CheckApi, WrongAnswersOfTheOthersEndpointsAreFound) {
  const std::string messages = "/v1/messages", native = "/completion";
  const std::vector<Fault> faults = {
      {"/health", "", R"("status":"ok")", R"("status":1)", "/health: answers, without a key", "$.status should be"},
      {"/props", "", "total_slots", "slots_in_all", "/props: answers", "$ lacks total_slots"},
      {"/metrics", "", "\nllamacpp:n_decode_total ", "\nllamacpp n_decode ", "/metrics: answers",
       "lines of the Prometheus text format"},
      {messages, R"(16,"temperature":0,"stream":true)", "event: message_stop", "event: message_end",
       messages + ": streams the same", "expected events named by their type, got 'message_end'"},
      {messages, R"("stop_sequences")", R"("stop_sequence":")", R"("stop_sequence":"!)", messages + ": stop_sequences",
       "expected stop_reason stop_sequence"},
      {messages, "disable_parallel", R"("stop_reason":"tool_use")", R"("stop_reason":"end_turn")",
       messages + ": tools: a call, streamed too, and its result", "expected stop_reason tool_use"},
      {messages + "/count_tokens", "", R"("input_tokens":)", R"("input_tokens":-)", messages + "/count_tokens: counts",
       "more tokens of more text"},
      {native, R"("n_predict":16,"temperature":0,"stream":true)", R"("stop":false)", R"("stop":true)",
       native + ": streams the same", "expected stop false"},
      {native, R"("seed":7)", R"("content":")", R"("content":"{n})", native + ": seed", "the same seed"},
      {native, R"("stop":[)", R"("stopping_word":")", R"("stopping_word":"!)", native + ": stop", "stop_type word"},
      {native, "n_probs", "completion_probabilities", "probabilities", native + ": n_probs",
       "$ lacks completion_probabilities"},
      {native, "grammar", R"("content":")", R"("content":"oh )", native + ": grammar", "expected yes! or no!, got oh "},
      {native, R"("json_schema")", R"(\"days\")", R"(\"day\")", native + ": json_schema", "$ lacks days"},
      {"/detokenize", "", "Once", "Twice", "/tokenize and /detokenize: there and back", "Twice"},
      {"/apply-template", "", "Once", "Twice", "/apply-template: holds the message", "in the prompt"}};
  const StandIn wrong(port_, faults);
  expect_found(faults, ask(wrong.url()));
}

TEST_F(CheckApi, WrongErrorsAreFound) {
  const std::string chat = "/v1/chat/completions", messages = "/v1/messages";
  const std::vector<Fault> faults = {
      {chat, R"("max_tokens":1})", R"("type":"authentication_error")", R"("kind":"none")",
       "keys: OpenAI's endpoints want one", "$.error lacks type"},
      {messages, R"("max_tokens":1})", R"("type":"error",)", "",
       "keys: Anthropic's endpoints want one, and say so in their shape", "$ lacks type"},
      {"/tokenize", R"({"content":"x"})", "", "", "keys: llama-server's endpoints want one",
       "expected status 401, got 200", 200},
      {chat, R"("messages":3)", "", "", "errors: /v1/chat/completions names the field", "expected status 400, got 500",
       500},
      {"/v1/responses", R"({"model":"fairytale-moe-q8_0"})", R"("message":)", R"("message":7,"was":)",
       "errors: /v1/responses names the field", "$.error.message should be string: 7"},
      {messages, R"("messages":"Hi")", "invalid_request_error", "bad_request",
       "errors: /v1/messages in Anthropic's shape", "$.error.type should be =invalid_request_error"},
      {"/completion", R"({"n_predict":1})", R"("code":400)", R"("code":"400")",
       "errors: /completion in llama-server's shape", "$.error.code should be int"},
      {"/v1/nowhere", "", "", "", "errors: what is not there is 404", "expected status 404, got 200", 200},
      {chat, "king king", "context_length_exceeded", "too_long", "context overflow: /v1/chat/completions",
       "expected code context_length_exceeded"},
      {messages, "king king", "", "", "context overflow: /v1/messages", "expected status 400, got 500", 500},
      {"/completion", "king king", "n_prompt_tokens", "n", "context overflow: /completion, with both numbers",
       "$.error lacks n_prompt_tokens"},
      {"/v1/completions", R"(16,"temperature":0,"stream":true)", "", "", "/v1/completions: streams the same",
       "expected Content-Type text/event-stream, got text/plain", 0, "text/plain"}};
  const StandIn wrong(port_, faults);
  expect_found(faults, ask(wrong.url()));
}

TEST_F(CheckApi, AServerThatGoesOnForNobodyIsFound) {
  const StandIn deaf(port_, {}, false);
  std::vector<Fault> expected;
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/completion"})
    expected.push_back(
        {"", "", "", "", std::string("cancel: ") + path, "expected fewer tokens than the 1536 asked for"});
  expect_found(expected, ask(deaf.url()));
}

TEST_F(CheckApi, WhatCannotBeAskedIsSaid) {
  const ProcessResult nobody = run_moetier({"check-api", "--url", "http://127.0.0.1:1"});
  EXPECT_EQ(nobody.code, 1);
  EXPECT_THAT(nobody.err, HasSubstr("the server at http://127.0.0.1:1 does not answer"));
  EXPECT_EQ(run_moetier({"check-api", "--url", "127.0.0.1:1"}).code, 2);
  EXPECT_EQ(run_moetier({"check-api"}).code, 2);
  EXPECT_EQ(run_moetier({"check-api", kModel, "--url", "http://127.0.0.1:1"}).code, 2);
}

}  // namespace
}  // namespace moetier::cli
