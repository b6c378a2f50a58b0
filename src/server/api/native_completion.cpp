// llama-server's /completion.
#include "server/api/openai_shapes.h"
#include "server/api/prompt_input.h"
#include "server/api/sse.h"

namespace moetier::server {
namespace {

constexpr size_t kMostPrompts = 64;

struct NativeRequest {
  GenerationParams params;
  std::vector<std::vector<TokenId>> prompts;
  bool several = false;  // the prompt was an array of prompts, so the answer is an array
  bool return_tokens = false;
  std::vector<std::string> response_fields;  // of the last part; empty = all
};

NativeRequest read(const Fields& body, const Service& service) {
  NativeRequest request;
  request.params = read_generation(body, service.options.defaults, service.model, true);
  const Json& prompt = body.need("prompt");
  request.prompts = read_prompts(prompt, "prompt", service.model, kMostPrompts);
  request.several = request.prompts.size() > 1;
  request.return_tokens = body.boolean("return_tokens").value_or(false);
  if (const auto n = body.integer("n_probs", 0, kMostProbs); n && *n > 0) request.params.n_probs = static_cast<int>(*n);
  request.params.sampled_probs = body.boolean("post_sampling_probs").value_or(false);
  request.response_fields = body.texts("response_fields");
  return request;
}

/// `sampled`: the number is the probability that it was drawn with.
Json probability(const Tokenizer& words, TokenId id, float number, bool sampled) {
  const std::string piece = words.piece(id, true);
  Json bytes = Json::array();
  for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
  Json json = {{"id", id}, {"token", piece}, {"bytes", bytes}};
  json[sampled ? "prob" : "logprob"] = sampled ? static_cast<double>(number) : finite(number);
  return json;
}

Json probabilities(const std::vector<TokenOut>& tokens, const Tokenizer& words, bool sampled) {
  Json out = Json::array();
  for (const TokenOut& token : tokens) {
    Json one = probability(words, token.token, token.logprob, sampled);
    Json& likeliest = one[sampled ? "top_probs" : "top_logprobs"] = Json::array();
    for (const TokenProb& top : token.top) likeliest.push_back(probability(words, top.token, top.logprob, sampled));
    out.push_back(std::move(one));
  }
  return out;
}

/// The parts that are wanted, each under its last name: "timings/prompt_ms" becomes "prompt_ms".
Json chosen_fields(const std::vector<std::string>& paths, const Json& whole) {
  if (paths.empty()) return whole;
  Json out = Json::object();
  for (const std::string& path : paths) {
    const Json* at = &whole;
    size_t begin = 0;
    std::string name;
    while (at != nullptr && begin <= path.size()) {
      const size_t end = std::min(path.find('/', begin), path.size());
      name = path.substr(begin, end - begin);
      const auto found = at->find(name);
      at = found == at->end() ? nullptr : &*found;
      begin = end + 1;
    }
    if (at != nullptr) out[name] = *at;
  }
  return out;
}

std::string_view stop_type(Finish finish) {
  switch (finish) {
    case Finish::end_of_generation:
      return "eos";
    case Finish::stop_text:
      return "word";
    default:
      return "limit";
  }
}

Json ids(const std::vector<TokenOut>& tokens) {
  Json out = Json::array();
  for (const TokenOut& token : tokens) out.push_back(token.token);
  return out;
}

/// The last part of a stream, and with `text` the whole answer.
Json last(const NativeRequest& request, size_t index, const std::string& text, const RequestResult& r,
          const Service& service) {
  return {{"index", index},
          {"content", text},
          {"tokens", request.return_tokens && !request.params.stream ? Json(r.tokens) : Json::array()},
          {"id_slot", r.slot},
          {"stop", true},
          {"model", service.model.name()},
          {"tokens_predicted", r.sampled_tokens},
          {"tokens_evaluated", r.prompt_tokens},
          {"generation_settings", settings_json(request.params)},
          {"prompt",
           service.model.tokenizer().decode(request.prompts[index / static_cast<size_t>(request.params.n)], true)},
          {"has_new_line", r.text.find('\n') != std::string::npos},
          {"truncated", r.finish == Finish::context_full},
          {"stop_type", stop_type(r.finish)},
          {"stopping_word", r.stop_text},
          {"timed_out", r.finish == Finish::timed_out},
          {"tokens_cached", r.prompt_tokens + static_cast<int64_t>(r.tokens.size())},
          {"timings", timings(r)}};
}

class NativeStream : public StreamShape {
 public:
  NativeStream(NativeRequest request, const Service& service, size_t choices)
      : request_(std::move(request)), service_(service), answers_(choices) {}

  void part(SseWriter& out, const AnswerPart& part) override {
    Answer& answer = answers_[part.choice];
    answer.add(part);
    const bool told = !part.text.empty() || part.progress || (request_.params.n_probs >= 0 && !part.tokens.empty());
    if (told) {
      Json json = {{"index", part.choice},
                   {"content", part.text},
                   {"tokens", ids(part.tokens)},
                   {"stop", false},
                   {"tokens_predicted", answer.tokens.size()},
                   {"tokens_evaluated", request_.prompts[part.choice / static_cast<size_t>(request_.params.n)].size()}};
      if (part.slot >= 0) json["id_slot"] = part.slot;
      if (part.progress) json["prompt_progress"] = prompt_progress(part);
      if (part.usage) json["timings"] = timings(*part.usage);
      if (request_.params.n_probs >= 0) {
        json["completion_probabilities"] =
            probabilities(part.tokens, service_.model.tokenizer(), request_.params.sampled_probs);
      }
      out.data(json);
    }
    if (part.result == nullptr) return;
    out.data(chosen_fields(request_.response_fields, last(request_, part.choice, "", *part.result, service_)));
  }
  void end(SseWriter&) override { log_answers(service_, answers_); }
  void error(SseWriter& out, const ApiError& error) override { out.data(error_body(Api::native, error)); }

 private:
  NativeRequest request_;
  const Service& service_;
  std::vector<Answer> answers_;
};

void complete(const Service& service, const std::string& body, httplib::Response& response) {
  const Json json = parse_body(body);
  NativeRequest request = read(Fields(json), service);
  for (const auto& prompt : request.prompts) {
    if (service.options.log_prompts) log_prompt(service, service.model.tokenizer().decode(prompt, true));
  }
  std::vector<Request> requests = requests_for(request.prompts, request.params);
  constrain_text(requests, request.params, service.model);
  auto answers = std::make_shared<Answers>(service.scheduler, std::move(requests));
  if (request.params.stream) {
    const size_t count = answers->count();
    auto shape = std::make_shared<NativeStream>(std::move(request), service, count);
    stream_answers(response, std::move(answers), std::move(shape), service.options.keep_alive_seconds);
    return;
  }
  const std::vector<Answer> gathered = gather(*answers);
  log_answers(service, gathered);
  Json all = Json::array();
  for (size_t i = 0; i < gathered.size(); ++i) {
    Json one = last(request, i, gathered[i].text, *gathered[i].result, service);
    if (request.params.n_probs >= 0) {
      one["completion_probabilities"] =
          probabilities(gathered[i].tokens, service.model.tokenizer(), request.params.sampled_probs);
    }
    all.push_back(chosen_fields(request.response_fields, one));
  }
  answer(response, all.size() == 1 ? all[0] : all);
}

}  // namespace

void add_completion_routes(Routes& routes) {
  const auto handler = [&service = routes.service()](const httplib::Request&, const std::string& body,
                                                     httplib::Response& response) {
    complete(service, body, response);
  };
  routes.post("/completion", Cost::generation, handler);
  routes.post("/completions", Cost::generation, handler);
}

}  // namespace moetier::server
