// What a request says about sampling and stopping, the same in all APIs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/api/fields.h"
#include "server/api/served_model.h"
#include "server/request.h"

namespace moetier::server {

/// Where nothing is said.
struct GenerationDefaults {
  SamplerOptions sampler;   ///< without a seed
  bool seeded = false;      ///< sampler.seed was chosen by whoever started the server
  int64_t max_tokens = -1;  ///< -1 = until the context is full
  std::vector<std::string> stop;
  bool ignore_eog = false;
  double time_limit = 0;                     ///< seconds a request may take; 0 = no limit
  int most_choices = 8;                      ///< the largest `n`
  int64_t reasoning_budget = -1;             ///< tokens of thoughts at most in a chat; -1 = no limit
  bool split_reasoning = true;               ///< false: thoughts stay in the content
  Json template_variables = Json::object();  ///< for chat templates, where a request says nothing else
};

struct GenerationParams {
  SamplerOptions sampler;
  int64_t max_tokens = -1;
  std::vector<std::string> stop;
  bool ignore_eog = false;
  int n_probs = -1;
  int prompt_probs = -1;
  bool sampled_probs = false;  ///< probabilities of what was drawn from, instead of the model's
  int n_keep = 0;              ///< of a context that is shifted: none is here, so it is only told
  std::vector<std::string> dry_breakers = {"\n", ":", "\"", "*"};  ///< texts; sampler.dry_breakers are the tokens
  int n = 1;
  bool stream = false;
  bool include_usage = false;
  bool cache_prompt = true;
  int slot = -1;
  double time_limit = 0;
  bool progress = false;
  bool timings = false;        ///< timings in every part of a stream
  std::string grammar;         ///< GBNF; empty = none
  std::optional<Json> schema;  ///< JSON schema of the answer
  bool json_object = false;    ///< any JSON object
};

/// The fields that llama-server takes in all its generating endpoints (temperature, top_k, seed, grammar, ...), which
/// OpenAI's and Anthropic's share by name. `native`: for /completion, which takes some that the others do not. Errors:
/// 400 with the field's name.
GenerationParams read_generation(const Fields& fields, const GenerationDefaults& defaults, const ServedModel& model,
                                 bool native = false);

/// What /slots finds again of a request.
struct GenerationNote : RequestNote {
  explicit GenerationNote(GenerationParams given) : params(std::move(given)) {}
  GenerationParams params;
};

/// OpenAI's response_format, or the `format` of responses' `text`.
void read_response_format(const Fields& format, GenerationParams& params);

/// The request for the scheduler, without prompt, constraint and seed of the further choices.
Request to_request(const GenerationParams& params);

/// As /completion and /slots tell it.
Json settings_json(const GenerationParams& params);

}  // namespace moetier::server
