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
/// OpenAI's and Anthropic's share by name. Errors: 400 with the field's name.
GenerationParams read_generation(const Fields& fields, const GenerationDefaults& defaults, const ServedModel& model);

/// OpenAI's response_format, or the `format` of responses' `text`.
void read_response_format(const Fields& format, GenerationParams& params);

/// The request for the scheduler, without prompt, constraint and seed of the further choices.
Request to_request(const GenerationParams& params);

/// As /completion and /slots tell it.
Json settings_json(const GenerationParams& params);

}  // namespace moetier::server
