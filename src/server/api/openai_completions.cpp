// /v1/completions.
#include <fmt/format.h>

#include <ctime>

#include "server/api/openai_shapes.h"
#include "server/api/prompt_input.h"
#include "server/api/sse.h"

namespace moetier::server {
namespace {

constexpr size_t kMostPrompts = 64;

struct TextRequest {
  GenerationParams params;
  std::vector<std::vector<TokenId>> prompts;
  bool echo = false, logprobs = false;
  std::string id = make_id("cmpl-");
  int64_t created = static_cast<int64_t>(std::time(nullptr));
};

TextRequest read(const Fields& body, const Service& service) {
  TextRequest request;
  request.params = read_generation(body, service.options.defaults, service.model);
  request.prompts = read_prompts(body.need("prompt"), "prompt", service.model, kMostPrompts);
  request.echo = body.boolean("echo").value_or(false);
  if (const std::string* suffix = body.text("suffix"); suffix != nullptr && !suffix->empty()) {
    bad_field("suffix", "suffix is not supported; put what should be filled in into the prompt as the model wants it");
  }
  if (body.integer("best_of", 1, 64).value_or(1) > request.params.n) {
    bad_field("best_of", "best_of is not supported; ask for n choices and choose yourself");
  }
  // OpenAI's is a number; the newer chat form, a boolean, is taken too.
  if (const Json* wanted = body.find("logprobs")) {
    if (wanted->is_boolean()) {
      request.logprobs = wanted->get<bool>();
      if (request.logprobs) request.params.n_probs = 0;
    } else {
      request.logprobs = true;
      request.params.n_probs = static_cast<int>(*body.integer("logprobs", 0, kMostProbs));
    }
  } else if (const auto n = body.integer("n_probs", 0, kMostProbs); n && *n > 0) {  // llama-server's name for it
    request.logprobs = true;
    request.params.n_probs = static_cast<int>(*n);
  }
  if (request.echo && request.logprobs) request.params.prompt_probs = request.params.n_probs;
  return request;
}

Json choice(const TextRequest& request, size_t index, const std::string& text, Json logprobs, const Json& finish) {
  return {{"text", text},
          {"index", index},
          {"logprobs", request.logprobs ? std::move(logprobs) : Json()},
          {"finish_reason", finish}};
}

const std::vector<TokenId>& prompt_of(const TextRequest& request, size_t index) {
  return request.prompts[index / static_cast<size_t>(request.params.n)];
}

std::string echoed(const TextRequest& request, size_t index, const Service& service) {
  return request.echo ? service.model.tokenizer().decode(prompt_of(request, index)) : "";
}

/// The log-probabilities of a choice, in one piece or in several.
class ChoiceLogprobs {
 public:
  ChoiceLogprobs(const TextRequest& request, const Service& service)
      : words_(service.model.tokenizer()),
        wanted_(request.logprobs),
        echo_(request.echo),
        top_(request.params.n_probs > 0),
        place_(words_) {}

  Json of_prompt(const std::vector<TokenOut>& tokens, const std::vector<TokenId>& ids, const std::string& text) {
    place_.skip_back(ids, text);
    Json out = of_answer(tokens, nullptr);
    place_.jump_behind(text);
    return out;
  }
  /// `result` where it ends: whoever scores a text counts on one token for each that was sampled.
  Json of_answer(std::vector<TokenOut> tokens, const RequestResult* result) {
    if (!wanted_) return nullptr;
    if (echo_ && result != nullptr && result->finish == Finish::end_of_generation && result->ending)
      tokens.push_back(*result->ending);
    return legacy_logprobs(tokens, words_, top_, place_);
  }

 private:
  const Tokenizer& words_;
  bool wanted_, echo_, top_;
  TextPlace place_;
};

/// Of a whole choice: the prompt's, if it is echoed, and the answer's behind them.
Json whole_logprobs(const TextRequest& request, size_t index, const Answer& answer, const Service& service) {
  ChoiceLogprobs logprobs(request, service);
  if (!request.echo || !request.logprobs) return logprobs.of_answer(answer.tokens, answer.result.get());
  Json out = logprobs.of_prompt(answer.prompt, prompt_of(request, index), echoed(request, index, service));
  const Json rest = logprobs.of_answer(answer.tokens, answer.result.get());
  for (auto& [name, list] : out.items()) {
    if (list.is_array()) list.insert(list.end(), rest[name].begin(), rest[name].end());
  }
  return out;
}

Json frame(const TextRequest& request, const Service& service) {
  return {{"id", request.id},
          {"object", "text_completion"},
          {"created", request.created},
          {"model", service.model.name()},
          {"system_fingerprint", "moetier-" MOETIER_VERSION},
          {"choices", Json::array()}};
}

class TextStream : public StreamShape {
 public:
  TextStream(TextRequest request, const Service& service, size_t choices)
      : request_(std::move(request)),
        service_(service),
        answers_(choices),
        logprobs_(choices, ChoiceLogprobs(request_, service)) {}

  void begin(SseWriter& out) override {
    if (!request_.echo || request_.logprobs) return;  // with log-probabilities it comes once these are computed
    for (size_t i = 0; i < answers_.size(); ++i) send(out, i, echoed(request_, i, service_), Json(), Json());
  }
  void part(SseWriter& out, const AnswerPart& part) override {
    if (part.progress) return;
    ChoiceLogprobs& logprobs = logprobs_[part.choice];
    if (part.prompt) {
      const std::string text = echoed(request_, part.choice, service_);
      send(out, part.choice, text, logprobs.of_prompt(part.tokens, prompt_of(request_, part.choice), text), Json());
      return;
    }
    answers_[part.choice].add(part);
    const RequestResult* result = part.result.get();
    if (part.text.empty() && result == nullptr && (part.tokens.empty() || !request_.logprobs)) return;
    usage_ = result != nullptr ? *result : part.usage;
    send(out, part.choice, part.text, logprobs.of_answer(part.tokens, result),
         result != nullptr ? Json(finish_reason(result->finish, false)) : Json());
  }
  void end(SseWriter& out) override {
    if (request_.params.include_usage) {
      Json json = frame(request_, service_);
      json["usage"] = openai_usage(usage_of(answers_, static_cast<size_t>(request_.params.n)));
      out.data(json);
    }
    out.data_text("[DONE]");
    log_answers(service_, answers_);
  }
  void error(SseWriter& out, const ApiError& error) override { out.data(error_body(Api::openai, error)); }

 private:
  void send(SseWriter& out, size_t index, const std::string& text, Json logprobs, const Json& finish) {
    Json json = frame(request_, service_);
    json["choices"].push_back(choice(request_, index, text, std::move(logprobs), finish));
    if (request_.params.include_usage) json["usage"] = nullptr;
    if (request_.params.timings && usage_) json["timings"] = timings(*usage_);
    out.data(json);
  }
  TextRequest request_;
  const Service& service_;
  std::vector<Answer> answers_;
  std::vector<ChoiceLogprobs> logprobs_;
  std::optional<RequestUsage> usage_;  // of the part that is sent
};

void complete(const Service& service, const std::string& body, httplib::Response& response) {
  const Json json = parse_body(body);
  const Fields fields(json);
  fields.text("model");
  TextRequest request = read(fields, service);
  for (const auto& prompt : request.prompts) {
    if (service.options.log_prompts) log_prompt(service, service.model.tokenizer().decode(prompt, true));
  }
  std::vector<Request> requests = requests_for(request.prompts, request.params);
  constrain_text(requests, request.params, service.model);
  auto answers = std::make_shared<Answers>(service.scheduler, std::move(requests));
  if (request.params.stream) {
    const size_t count = answers->count();
    auto shape = std::make_shared<TextStream>(std::move(request), service, count);
    stream_answers(response, std::move(answers), std::move(shape), service.options.keep_alive_seconds);
    return;
  }
  const std::vector<Answer> gathered = gather(*answers);
  log_answers(service, gathered);
  Json out = frame(request, service);
  for (size_t i = 0; i < gathered.size(); ++i) {
    out["choices"].push_back(choice(request, i, echoed(request, i, service) + gathered[i].text,
                                    whole_logprobs(request, i, gathered[i], service),
                                    finish_reason(gathered[i].result->finish, false)));
  }
  out["usage"] = openai_usage(usage_of(gathered, static_cast<size_t>(request.params.n)));
  out["timings"] = timings(*gathered[0].result);
  answer(response, out);
}

}  // namespace

void add_openai_completions(Routes& routes) {
  routes.post("/v1/completions", Cost::generation,
              [&service = routes.service()](const httplib::Request&, const std::string& body,
                                            httplib::Response& response) { complete(service, body, response); });
}

}  // namespace moetier::server
