// The sampler's part of a request, under llama-server's names.
#pragma once

#include "server/api/generation_params.h"

namespace moetier::server {

/// temperature, top_k, ..., samplers, logit_bias and seed. Errors: 400 with the field's name, also for samplers that
/// are not here.
void read_sampler(const Fields& fields, const GenerationDefaults& defaults, const ServedModel& model,
                  GenerationParams& params);

/// The same as /completion and /slots tell it.
Json sampler_json(const GenerationParams& params);

}  // namespace moetier::server
