#include "server/api/generation_params.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"

namespace moetier::server {
namespace {

constexpr int64_t kMostInt = std::numeric_limits<int32_t>::max();

uint64_t random_seed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 31) ^ device();
}

float bias_value(const Json& value, const std::string& field) {
  if (value.is_boolean() && !value.get<bool>()) return -std::numeric_limits<float>::infinity();
  if (!value.is_number()) bad_field(field, fmt::format("{} must be a number, or false to forbid the token", field));
  return static_cast<float>(value.get<double>());
}

/// A token id, or a text that stands for each of its tokens.
void add_bias(const Json& token, float bias, const std::string& field, const ServedModel& model, SamplerOptions& out) {
  const int32_t size = model.tokenizer().vocab_size();
  if (token.is_number_integer()) {
    const int64_t id = token.get<int64_t>();
    if (id < 0 || id >= size) {
      bad_field(field, fmt::format("{} names the token {}, which is not in the vocabulary of {}", field, id, size));
    }
    out.logit_bias.emplace_back(static_cast<TokenId>(id), bias);
  } else if (token.is_string()) {
    for (const TokenId id : model.tokenizer().encode(token.get<std::string>(), {.add_special = false})) {
      out.logit_bias.emplace_back(id, bias);
    }
  } else {
    bad_field(field, fmt::format("{} must name tokens by id or by text", field));
  }
}

/// {"ID": bias} of OpenAI, or [[ID or text, bias]] of llama-server.
void read_bias(const Fields& fields, const ServedModel& model, SamplerOptions& out) {
  const Json* biases = fields.find("logit_bias");
  if (biases == nullptr) return;
  const std::string field = fields.path("logit_bias");
  if (biases->is_object()) {
    for (const auto& [key, value] : biases->items()) {
      int64_t id = 0;
      const auto [end, status] = std::from_chars(key.data(), key.data() + key.size(), id);
      const bool number = status == std::errc() && end == key.data() + key.size();
      add_bias(number ? Json(id) : Json(key), bias_value(value, field), field, model, out);
    }
    return;
  }
  if (!biases->is_array()) fields.wrong("logit_bias", "an object of token ids and numbers");
  for (const Json& pair : *biases) {
    if (!pair.is_array() || pair.size() != 2)
      bad_field(field, fmt::format("{} must hold pairs of a token and a number", field));
    add_bias(pair[0], bias_value(pair[1], field), field, model, out);
  }
}

void read_sampler(const Fields& f, const ServedModel& model, SamplerOptions& s) {
  if (const auto v = f.number("temperature", 0, 100)) s.temperature = static_cast<float>(*v);
  if (const auto v = f.integer("top_k", -1, kMostInt)) s.top_k = static_cast<int>(std::max<int64_t>(*v, 0));
  if (const auto v = f.number("top_p", 0, 1)) s.top_p = static_cast<float>(*v);
  if (const auto v = f.number("min_p", 0, 1)) s.min_p = static_cast<float>(*v);
  if (const auto v = f.number("repeat_penalty", 0.01, 100)) s.repeat_penalty = static_cast<float>(*v);
  if (const auto v = f.number("presence_penalty", -100, 100)) s.presence_penalty = static_cast<float>(*v);
  if (const auto v = f.number("frequency_penalty", -100, 100)) s.frequency_penalty = static_cast<float>(*v);
  if (const auto v = f.integer("repeat_last_n", -1, kMostInt)) s.penalty_window = static_cast<int>(*v);
  read_bias(f, model, s);
}

/// Samplers that Moetier has not: their neutral values are fine, others would be ignored silently.
void refuse_other_samplers(const Fields& f) {
  constexpr struct {
    const char* name;
    double neutral;
  } kOthers[] = {{"typical_p", 1},       {"mirostat", 0},     {"dynatemp_range", 0}, {"dry_multiplier", 0},
                 {"xtc_probability", 0}, {"top_n_sigma", -1}, {"tfs_z", 1}};
  for (const auto& other : kOthers) {
    const Json* value = f.find(other.name);
    if (value == nullptr) continue;
    if (!value->is_number()) f.wrong(other.name, "a number");
    const double number = value->get<double>();
    const bool off = number == other.neutral || (std::string_view(other.name) == "top_n_sigma" && number <= 0);
    if (!off) {
      bad_field(f.path(other.name),
                fmt::format("{} is a sampler that is not in this version; leave it out", f.path(other.name)));
    }
  }
}

void read_structure(const Fields& f, GenerationParams& p) {
  if (const std::string* grammar = f.text("grammar")) p.grammar = *grammar;
  if (const Json* schema = f.find("json_schema")) {
    if (!schema->is_object() && !schema->is_boolean()) f.wrong("json_schema", "an object");
    p.schema = *schema;
  }
  if (const Json* format = f.object("response_format"))
    read_response_format(Fields(*format, f.path("response_format")), p);
  if (!p.grammar.empty() && (p.schema.has_value() || p.json_object)) {
    bad_field(f.path("grammar"), "grammar and a JSON schema exclude each other; give one of them");
  }
}

}  // namespace

void read_response_format(const Fields& format, GenerationParams& p) {
  const auto type = format.choice("type", {"text", "json_object", "json_schema"});
  if (!type) format.need_text("type");
  if (*type == "json_object") {
    // llama-server takes a schema here, too.
    if (const Json* schema = format.object("schema")) {
      p.schema = *schema;
    } else {
      p.json_object = true;
    }
  } else if (*type == "json_schema") {
    // Chat nests name and schema in json_schema; responses do not.
    const Json* nested = format.object("json_schema");
    const Fields inner = nested == nullptr ? format : Fields(*nested, format.path("json_schema"));
    const Json* schema = inner.find("schema");
    if (schema == nullptr || !(schema->is_object() || schema->is_boolean())) inner.wrong("schema", "an object");
    p.schema = *schema;
  }
}

GenerationParams read_generation(const Fields& f, const GenerationDefaults& defaults, const ServedModel& model) {
  GenerationParams p;
  p.sampler = defaults.sampler;
  p.max_tokens = defaults.max_tokens;
  p.stop = defaults.stop;
  p.time_limit = defaults.time_limit;
  read_sampler(f, model, p.sampler);
  refuse_other_samplers(f);
  if (const Json* seed = f.find("seed")) {
    if (!seed->is_number_integer()) f.wrong("seed", "a whole number");
    // -1 (or 2^32 - 1) asks for a random one; other negative numbers are taken as their bits.
    const auto value = seed->is_number_unsigned() ? seed->get<uint64_t>() : static_cast<uint64_t>(seed->get<int64_t>());
    p.sampler.seed = value == ~uint64_t{0} || value == 0xffffffffu ? random_seed() : value;
  } else if (!defaults.seeded) {
    p.sampler.seed = random_seed();
  }
  for (const char* name : {"max_completion_tokens", "max_tokens", "n_predict"}) {
    if (const auto v = f.integer(name, -1, kMostInt)) {
      p.max_tokens = *v;
      break;
    }
  }
  for (std::string& stop : f.texts("stop")) {
    if (stop.empty()) bad_field(f.path("stop"), f.path("stop") + " holds an empty text");
    p.stop.push_back(std::move(stop));
  }
  p.ignore_eog = f.boolean("ignore_eos").value_or(defaults.ignore_eog);
  p.n = static_cast<int>(f.integer("n", 1, defaults.most_choices).value_or(1));
  p.stream = f.boolean("stream").value_or(false);
  if (const Json* options = f.object("stream_options")) {
    p.include_usage = Fields(*options, f.path("stream_options")).boolean("include_usage").value_or(false);
  }
  p.cache_prompt = f.boolean("cache_prompt").value_or(true);
  p.slot = static_cast<int>(f.integer("id_slot", -1, 65535).value_or(-1));
  if (const auto ms = f.integer("t_max_predict_ms", -1, kMostInt); ms && *ms > 0) {
    const double limit = static_cast<double>(*ms) / 1000;
    if (p.time_limit == 0 || limit < p.time_limit) p.time_limit = limit;
  }
  p.progress = f.boolean("return_progress").value_or(false);
  p.timings = f.boolean("timings_per_token").value_or(false);
  read_structure(f, p);
  return p;
}

Request to_request(const GenerationParams& p) {
  Request request;
  request.sampler = p.sampler;
  request.max_tokens = p.max_tokens;
  request.stop = p.stop;
  request.ignore_eog = p.ignore_eog;
  request.n_probs = p.n_probs;
  request.prompt_probs = p.prompt_probs;
  request.cache_prompt = p.cache_prompt;
  request.slot = p.slot;
  request.time_limit = p.time_limit;
  request.progress = p.progress;
  return request;
}

Json settings_json(const GenerationParams& p) {
  const SamplerOptions& s = p.sampler;
  Json bias = Json::array();
  for (const auto& [token, value] : s.logit_bias) {
    bias.push_back({{"token", token}, {"bias", std::isinf(value) ? Json(false) : Json(value)}});
  }
  return {{"seed", s.seed},
          {"temperature", s.temperature},
          {"top_k", s.top_k},
          {"top_p", s.top_p},
          {"min_p", s.min_p},
          {"repeat_last_n", s.penalty_window},
          {"repeat_penalty", s.repeat_penalty},
          {"presence_penalty", s.presence_penalty},
          {"frequency_penalty", s.frequency_penalty},
          {"stop", p.stop},
          {"max_tokens", p.max_tokens},
          {"n_predict", p.max_tokens},
          {"n_probs", std::max(p.n_probs, 0)},
          {"ignore_eos", p.ignore_eog},
          {"stream", p.stream},
          {"logit_bias", bias},
          {"grammar", p.grammar}};
}

}  // namespace moetier::server
