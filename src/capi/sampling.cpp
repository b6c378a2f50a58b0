// C API: sampling.
#include "capi/handles.h"

using namespace moetier;
using namespace moetier::capi;

namespace {

/// What the two structs have in common.
template <typename From, typename To>
void copy_numbers(const From& from, To& to) {
  to.temperature = from.temperature;
  to.top_k = from.top_k;
  to.top_p = from.top_p;
  to.min_p = from.min_p;
  to.repeat_penalty = from.repeat_penalty;
  to.presence_penalty = from.presence_penalty;
  to.frequency_penalty = from.frequency_penalty;
  to.penalty_window = from.penalty_window;
  to.seed = from.seed;
}

moetier_sampler_options default_options() {
  moetier_sampler_options o{};
  copy_numbers(SamplerOptions(), o);
  return o;
}

SamplerOptions sampler_options(const moetier_model* model, const moetier_sampler_options& o) {
  SamplerOptions s;
  copy_numbers(o, s);
  for (const moetier_logit_bias& b : need_array(o.logit_bias, o.logit_bias_count, "the list of logit biases")) {
    s.logit_bias.emplace_back(b.token, b.bias);
  }
  const std::span<const int32_t> given = need_array(o.suppress, o.suppress_count, "the list of suppressed tokens");
  s.suppress.assign(given.begin(), given.end());
  if (model != nullptr && model->engine->has_tokenizer()) {
    const std::vector<TokenId> more =
        suppressed_tokens(model->engine->tokenizer(), model->engine->model().hparams().vocab);
    s.suppress.insert(s.suppress.end(), more.begin(), more.end());
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
