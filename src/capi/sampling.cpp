// C API: sampling.
#include "capi/handles.h"

using namespace moetier;
using namespace moetier::capi;

namespace {

moetier_sampler_options default_options() {
  const SamplerOptions d;
  moetier_sampler_options o{};
  o.temperature = d.temperature;
  o.top_k = d.top_k;
  o.top_p = d.top_p;
  o.min_p = d.min_p;
  o.repeat_penalty = d.repeat_penalty;
  o.presence_penalty = d.presence_penalty;
  o.frequency_penalty = d.frequency_penalty;
  o.penalty_window = d.penalty_window;
  o.seed = d.seed;
  return o;
}

SamplerOptions sampler_options(const moetier_model* model, const moetier_sampler_options& o) {
  SamplerOptions s;
  s.temperature = o.temperature;
  s.top_k = o.top_k;
  s.top_p = o.top_p;
  s.min_p = o.min_p;
  s.repeat_penalty = o.repeat_penalty;
  s.presence_penalty = o.presence_penalty;
  s.frequency_penalty = o.frequency_penalty;
  s.penalty_window = o.penalty_window;
  s.seed = o.seed;
  for (const moetier_logit_bias& b : need_array(o.logit_bias, o.logit_bias_count, "the list of logit biases")) {
    s.logit_bias.emplace_back(b.token, b.bias);
  }
  for (const int32_t id : need_array(o.suppress, o.suppress_count, "the list of suppressed tokens")) {
    s.suppress.push_back(id);
  }
  if (model != nullptr && model->engine->has_tokenizer()) {
    for (const TokenId id : model->engine->tokenizer().suppressed()) {
      if (id < model->engine->model().hparams().vocab) s.suppress.push_back(id);
    }
  }
  return s;
}

}  // namespace

void moetier_sampler_options_init(moetier_sampler_options* options, size_t size_of_struct) {
  give_defaults(options, size_of_struct, default_options());
}

moetier_status moetier_sampler_new(const moetier_model* model, const moetier_sampler_options* options,
                                   moetier_sampler** sampler) {
  return guarded([&] {
    need(sampler, "the place for the sampler");
    const moetier_sampler_options o = take_options(options, default_options(), "the sampler options");
    *sampler = new moetier_sampler{Sampler(sampler_options(model, o))};
    return MOETIER_OK;
  });
}

void moetier_sampler_free(moetier_sampler* sampler) {
  delete sampler;
}

moetier_status moetier_sampler_accept(moetier_sampler* sampler, int32_t token) {
  return guarded([&] {
    need(sampler, "the sampler");
    if (token < 0) usage_error("token {} does not exist", token);
    sampler->sampler.accept(token);
    return MOETIER_OK;
  });
}

moetier_status moetier_sampler_sample(moetier_sampler* sampler, const float* logits, size_t count, int32_t* token) {
  return guarded([&] {
    need(sampler, "the sampler");
    need(token, "the place for the token");
    *token = sampler->sampler.sample(need_array(logits, count, "the list of logits"));
    return MOETIER_OK;
  });
}

moetier_status moetier_sampler_reset(moetier_sampler* sampler) {
  return guarded([&] {
    need(sampler, "the sampler").sampler.reset();
    return MOETIER_OK;
  });
}
