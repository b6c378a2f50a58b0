// C API: version, errors, model.
#include <cstdio>
#include <initializer_list>
#include <string_view>

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
  moetier_model_options o{};
  o.isa = o.experts = o.dense_weights = o.io = "auto";
  o.handle_sigbus = 1;
  o.cache_mb = -1;
  o.cache_floor_mb = 1536;
  o.cache_policy = "default";
  o.overlap = o.direct_io = 1;
  o.planned_sequences = 1;
  o.planned_ubatch = 512;
  return o;
}

/// The one of `all` that `text` names; NULL is the first.
template <typename Enum>
Enum named(const char* text, std::initializer_list<Enum> all, const char* what) {
  if (text == nullptr) return *all.begin();
  for (const Enum value : all) {
    if (to_string(value) == text) return value;
  }
  usage_error("the model options: {} '{}' does not exist", what, text);
}

ReadKind read_kind(const char* text) {
  const std::string_view name = text == nullptr ? "auto" : text;
  if (name == "auto") return ReadKind::automatic;
  if (name == "io_uring") return ReadKind::io_uring;
  if (name == "threads") return ReadKind::threads;
  usage_error("the model options: io '{}' does not exist: choose auto, io_uring or threads", name);
}

uint64_t mebibytes(int64_t count, const char* what) {
  constexpr int64_t kMost = int64_t{1} << 40;
  if (count < 0 || count > kMost) usage_error("the model options: {} cannot be {} MiB", what, count);
  return static_cast<uint64_t>(count) << 20;
}

int in_range(int32_t value, int32_t most, const char* what) {
  if (value < 0 || value > most) usage_error("the model options: {} must be from 0 to {}, not {}", what, most, value);
  return value;
}

ResidencyOptions residency_of(const moetier_model_options& o) {
  ResidencyOptions r;
  r.mode = named(o.experts,
                 {ExpertMode::automatic, ExpertMode::resident, ExpertMode::mmap, ExpertMode::advise, ExpertMode::noop,
                  ExpertMode::stream},
                 "the mode of experts");
  r.dense = named(o.dense_weights, {DensePolicy::automatic, DensePolicy::mmap, DensePolicy::warm, DensePolicy::anon},
                  "the policy of dense weights");
  r.policy = named(o.cache_policy,
                   {CachePolicy::standard, CachePolicy::lru, CachePolicy::heat, CachePolicy::cycle, CachePolicy::pinned,
                    CachePolicy::adaptive, CachePolicy::reuse},
                   "the cache policy");
  if (o.moe_cache_adaptive != 0) {
    if (r.policy != CachePolicy::standard && r.policy != CachePolicy::adaptive)
      usage_error("the model options: moe_cache_adaptive and the cache policy {} exclude each other", o.cache_policy);
    r.policy = CachePolicy::adaptive;
  }
  if (o.cache_mb != -1) {
    r.cache_bytes = mebibytes(o.cache_mb, "the cache");
    if (r.mode == ExpertMode::automatic) r.mode = ExpertMode::stream;
  }
  r.floor_bytes = mebibytes(o.cache_floor_mb, "the memory to leave free");
  r.ceil_bytes = mebibytes(o.cache_ceil_mb, "the most that the cache may take");
  if (o.moe_cache_profile != nullptr) r.profile = o.moe_cache_profile;
  r.prefetch = in_range(o.prefetch, 8, "prefetch");
  r.overlap = o.overlap != 0;
  r.direct = o.direct_io != 0;
  r.mlock = o.mlock != 0;
  r.io = read_kind(o.io);
  r.io_depth = in_range(o.io_depth, 1024, "io_depth");
  r.io_lanes = in_range(o.io_threads, 64, "io_threads");
  return r;
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
    engine.residency = residency_of(o);
    engine.planned.context = o.planned_context;
    engine.planned.sequences = o.planned_sequences;
    engine.planned.ubatch = o.planned_ubatch;
    if (o.planned_context < 0 || o.planned_sequences < 1 || o.planned_ubatch < 1)
      usage_error("the model options: the planned context, sequences and ubatch cannot be negative, or no rows at all");
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
