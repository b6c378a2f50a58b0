// C API: version, errors, model.
#include <cstdio>

#include "base/log.h"
#include "capi/handles.h"

namespace moetier::capi {
namespace {
// Fixed, so that reporting an error cannot fail.
thread_local char last_error[2048] = "";
}  // namespace

void set_last_error(const char* sentence) noexcept {
  std::snprintf(last_error, sizeof last_error, "%s", sentence);
}

}  // namespace moetier::capi

using namespace moetier;
using namespace moetier::capi;

int32_t moetier_api_version(void) {
  return MOETIER_API_VERSION;
}
const char* moetier_version(void) {
  return MOETIER_VERSION;
}
const char* moetier_last_error(void) {
  return last_error;
}

moetier_status moetier_set_log_level(int32_t level) {
  return guarded([&] {
    if (level < 0 || level > 3) usage_error("log level {} does not exist: choose 0 to 3", level);
    log::set_level(static_cast<log::Level>(level));
    return MOETIER_OK;
  });
}

namespace {
moetier_model_options default_options() {
  return {0, 0, "auto", 1};
}
}  // namespace

void moetier_model_options_init(moetier_model_options* options, size_t size_of_struct) {
  give_defaults(options, size_of_struct, default_options());
}

moetier_status moetier_model_open(const char* path, const moetier_model_options* options, moetier_model** model) {
  return guarded([&] {
    need(path, "the path");
    need(model, "the place for the model");
    const moetier_model_options o = take_options(options, default_options(), "the model options");
    if (o.threads < 0)
      usage_error("{} threads cannot compute: choose 0 (as many as there are CPUs) or more", o.threads);
    EngineOptions engine;
    engine.cpu.threads = o.threads;
    engine.cpu.isa = parse_isa(o.isa == nullptr ? "auto" : o.isa);
    engine.survive_faults = o.handle_sigbus != 0;
    *model = new moetier_model{Engine::load(path, engine)};
    return MOETIER_OK;
  });
}

void moetier_model_free(moetier_model* model) {
  delete model;
}

// Getters take no NULL seriously: they give what an empty model would.
namespace {
const HParams& hparams_of(const moetier_model* model) {
  static const HParams none;
  return model == nullptr ? none : model->engine->model().hparams();
}
const Tokenizer* tokenizer_of(const moetier_model* model) {
  return model == nullptr || !model->engine->has_tokenizer() ? nullptr : &model->engine->tokenizer();
}
}  // namespace

int32_t moetier_model_vocab_size(const moetier_model* model) {
  return static_cast<int32_t>(hparams_of(model).vocab);
}
int64_t moetier_model_context_length(const moetier_model* model) {
  return hparams_of(model).context_length;
}
int32_t moetier_model_layers(const moetier_model* model) {
  return hparams_of(model).layers;
}
int32_t moetier_model_experts(const moetier_model* model) {
  return hparams_of(model).experts;
}
int32_t moetier_model_top_k(const moetier_model* model) {
  return hparams_of(model).top_k;
}
const char* moetier_model_architecture(const moetier_model* model) {
  return hparams_of(model).architecture.c_str();
}
const char* moetier_model_name(const moetier_model* model) {
  return hparams_of(model).name.c_str();
}

uint64_t moetier_model_dense_bytes(const moetier_model* model) {
  return model == nullptr ? 0 : model->engine->model().dense_bytes();
}

uint64_t moetier_model_expert_bytes(const moetier_model* model) {
  ExpertStore* store = model == nullptr ? nullptr : model->engine->store();
  return store == nullptr ? 0 : store->map().total_bytes();
}

const char* moetier_model_chat_template(const moetier_model* model) {
  const Tokenizer* tokenizer = tokenizer_of(model);
  return tokenizer == nullptr ? "" : tokenizer->chat_template().c_str();
}

int32_t moetier_model_has_vocab(const moetier_model* model) {
  return tokenizer_of(model) != nullptr ? 1 : 0;
}

int32_t moetier_token_bos(const moetier_model* model) {
  const Tokenizer* tokenizer = tokenizer_of(model);
  return tokenizer == nullptr ? -1 : tokenizer->bos();
}

int32_t moetier_token_eos(const moetier_model* model) {
  const Tokenizer* tokenizer = tokenizer_of(model);
  return tokenizer == nullptr ? -1 : tokenizer->eos();
}

int32_t moetier_token_is_end(const moetier_model* model, int32_t token) {
  const Tokenizer* tokenizer = tokenizer_of(model);
  if (tokenizer == nullptr || token < 0 || token >= tokenizer->vocab_size()) return 0;
  return tokenizer->is_end_of_generation(token) ? 1 : 0;
}
