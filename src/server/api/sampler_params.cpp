#include "server/api/sampler_params.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <random>

namespace moetier::server {
namespace {

constexpr int64_t kMostInt = std::numeric_limits<int32_t>::max();
constexpr uint64_t kAnySeed = 0xffffffffu;  // llama-server's word for a random one

/// 32 bits, so that it comes back whole from clients whose numbers are doubles; but not the one that asks for another.
uint64_t random_seed() {
  std::random_device device;
  return device() % kAnySeed;
}

float bias_value(const Json& value, const std::string& field) {
  if (value.is_boolean() && !value.get<bool>()) return -std::numeric_limits<float>::infinity();
  if (!value.is_number()) bad_field(field, fmt::format("{} must be a number, or false to forbid the token", field));
  return static_cast<float>(value.get<double>());
}

/// A token id, or a text that stands for each of its tokens.
void add_bias(const Json& token, float bias, const std::string& field, const ServedModel& model, SamplerOptions& out) {
  const int32_t size = model.tokenizer().vocab_size();
  if (token.is_number()) {
    const int64_t id = whole_number(token).value_or(-1);
    if (id < 0 || id >= size) {
      bad_field(field,
                fmt::format("{} names the token {}, which is not in the vocabulary of {}", field, token.dump(), size));
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

/// Text that a repetition does not reach over, as the tokens that hold it.
void read_breakers(const Fields& f, const ServedModel& model, GenerationParams& p) {
  const Json* wanted = f.array("dry_sequence_breakers");
  if (wanted != nullptr) p.dry_breakers = f.texts("dry_sequence_breakers");
  if (p.sampler.dry_multiplier == 0) return;
  const Tokenizer& words = model.tokenizer();
  std::vector<bool> met(p.dry_breakers.size());
  p.sampler.dry_breakers.clear();
  for (TokenId id = 0; id < words.vocab_size(); ++id) {
    const std::string piece = words.piece(id, true);
    bool breaks = false;
    for (size_t i = 0; i < p.dry_breakers.size(); ++i) {
      if (piece.find(p.dry_breakers[i]) == std::string::npos) continue;
      breaks = met[i] = true;
    }
    if (breaks) p.sampler.dry_breakers.push_back(id);
  }
  for (size_t i = 0; wanted != nullptr && i < met.size(); ++i) {
    if (p.dry_breakers[i].empty() || !met[i]) {
      const std::string where = element(f.path("dry_sequence_breakers"), i);
      bad_field(where, where + " must be a text that a single token of the vocabulary holds");
    }
  }
}

/// Names in an array, or a letter each in a text.
void read_order(const Fields& f, SamplerOptions& s) {
  const Json* wanted = f.find("samplers");
  if (wanted == nullptr) return;
  constexpr std::string_view kKnown =
      "penalties (e), dry (d), top_n_sigma (s), top_k (k), typ_p (y), top_p (p), min_p (m), xtc (x), temperature (t)";
  s.order.clear();
  const auto add = [&](std::optional<SamplerStep> step, const std::string& name) {
    if (!step) bad_field(f.path("samplers"), fmt::format("samplers names '{}'; there are {}", name, kKnown));
    s.order.push_back(*step);
  };
  if (wanted->is_string()) {
    for (const char letter : wanted->get<std::string>()) add(sampler_step(letter), std::string(1, letter));
  } else {
    for (const std::string& name : f.texts("samplers")) add(sampler_step(name), name);
  }
}

void read_numbers(const Fields& f, SamplerOptions& s) {
  const auto number = [&](const char* name, double min, double max, float& out) {
    if (const auto v = f.number(name, min, max)) out = static_cast<float>(*v);
  };
  const auto integer = [&](const char* name, int64_t min, int& out) {
    if (const auto v = f.integer(name, min, kMostInt)) out = static_cast<int>(*v);
  };
  number("temperature", -100, 100, s.temperature);
  s.temperature = std::max(s.temperature, 0.0f);  // below 0: greedy, too
  integer("top_k", -1, s.top_k);
  s.top_k = std::max(s.top_k, 0);
  number("top_p", 0, 1, s.top_p);
  number("min_p", 0, 1, s.min_p);
  number("typical_p", 0, 1, s.typical_p);
  number("top_n_sigma", -1000, 1000, s.top_n_sigma);
  number("dynatemp_range", 0, 100, s.dynatemp_range);
  number("dynatemp_exponent", 0, 100, s.dynatemp_exponent);
  number("xtc_probability", 0, 1, s.xtc_probability);
  number("xtc_threshold", 0, 1, s.xtc_threshold);
  number("dry_multiplier", 0, 1000, s.dry_multiplier);
  number("dry_base", 1, 1000, s.dry_base);
  integer("dry_allowed_length", 0, s.dry_allowed_length);
  integer("dry_penalty_last_n", -1, s.dry_window);
  number("repeat_penalty", 0.01, 100, s.repeat_penalty);
  number("presence_penalty", -100, 100, s.presence_penalty);
  number("frequency_penalty", -100, 100, s.frequency_penalty);
  integer("repeat_last_n", -1, s.penalty_window);
  integer("min_keep", 0, s.min_keep);
}

/// Samplers that Moetier has not: their neutral values are fine, others would be ignored silently.
void refuse_other_samplers(const Fields& f) {
  constexpr struct {
    const char* name;
    double neutral;
  } kOthers[] = {{"mirostat", 0}, {"tfs_z", 1}, {"adaptive_target", -1}};
  for (const auto& other : kOthers) {
    const Json* value = f.find(other.name);
    if (value == nullptr) continue;
    if (!value->is_number()) f.wrong(other.name, "a number");
    if (value->get<double>() == other.neutral) continue;
    bad_field(f.path(other.name),
              fmt::format("{} is a sampler that is not in this version; leave it out", f.path(other.name)));
  }
}

void read_seed(const Fields& f, bool seeded, SamplerOptions& s) {
  const Json* seed = f.find("seed");
  if (seed == nullptr) {
    if (!seeded) s.seed = random_seed();
    return;
  }
  // -1 (or 2^32 - 1) asks for a random one; other negative numbers are taken as their bits.
  uint64_t value = 0;
  if (seed->is_number_unsigned()) {
    value = seed->get<uint64_t>();
  } else if (const auto whole = whole_number(*seed)) {
    value = static_cast<uint64_t>(*whole);
  } else {
    f.wrong("seed", "a whole number");
  }
  s.seed = value == ~uint64_t{0} || value == kAnySeed ? random_seed() : value;
}

}  // namespace

void read_sampler(const Fields& f, const GenerationDefaults& defaults, const ServedModel& model, GenerationParams& p) {
  p.sampler = defaults.sampler;
  read_numbers(f, p.sampler);
  read_order(f, p.sampler);
  read_breakers(f, model, p);
  read_bias(f, model, p.sampler);
  refuse_other_samplers(f);
  read_seed(f, defaults.seeded, p.sampler);
}

Json sampler_json(const GenerationParams& p) {
  const SamplerOptions& s = p.sampler;
  Json bias = Json::array(), order = Json::array();
  for (const auto& [token, value] : s.logit_bias) {
    bias.push_back({{"token", token}, {"bias", std::isinf(value) ? Json(false) : Json(value)}});
  }
  for (const SamplerStep step : s.order) order.push_back(to_string(step));
  return {{"seed", s.seed},
          {"temperature", s.temperature},
          {"dynatemp_range", s.dynatemp_range},
          {"dynatemp_exponent", s.dynatemp_exponent},
          {"top_k", s.top_k},
          {"top_p", s.top_p},
          {"min_p", s.min_p},
          {"top_n_sigma", s.top_n_sigma},
          {"xtc_probability", s.xtc_probability},
          {"xtc_threshold", s.xtc_threshold},
          {"typical_p", s.typical_p},
          {"repeat_last_n", s.penalty_window},
          {"repeat_penalty", s.repeat_penalty},
          {"presence_penalty", s.presence_penalty},
          {"frequency_penalty", s.frequency_penalty},
          {"dry_multiplier", s.dry_multiplier},
          {"dry_base", s.dry_base},
          {"dry_allowed_length", s.dry_allowed_length},
          {"dry_penalty_last_n", s.dry_window},
          {"dry_sequence_breakers", p.dry_breakers},
          {"mirostat", 0},
          {"min_keep", s.min_keep},
          {"samplers", order},
          {"logit_bias", bias}};
}

}  // namespace moetier::server
