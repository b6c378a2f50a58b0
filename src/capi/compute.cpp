// C API: contexts, sequences, decoding.
#include <algorithm>
#include <vector>

#include "capi/handles.h"

using namespace moetier;
using namespace moetier::capi;

namespace {

moetier_context_options default_options() {
  return {0, 0, 1, 512, MOETIER_KV_F16, 4096};
}

TensorType kv_type_of(int32_t type) {
  if (type == MOETIER_KV_F16) return TensorType::f16;
  if (type == MOETIER_KV_F32) return TensorType::f32;
  if (type == MOETIER_KV_Q8_0) return TensorType::q8_0;
  usage_error("the context options: KV type {} does not exist", type);
}

}  // namespace

void moetier_context_options_init(moetier_context_options* options, size_t size_of_struct) {
  give_defaults(options, size_of_struct, default_options());
}

moetier_status moetier_context_new(const moetier_model* model, const moetier_context_options* options,
                                   moetier_context** context) {
  return guarded([&] {
    need(model, "the model");
    need(context, "the place for the context");
    const moetier_context_options o = take_options(options, default_options(), "the context options");
    ContextOptions wanted;
    wanted.context = o.context;
    wanted.sequences = o.sequences;
    wanted.ubatch = o.ubatch;
    wanted.kv_type = kv_type_of(o.kv_type);
    if (o.prompt_rows < 1)
      usage_error("the context options: {} prompt rows cannot pass together: choose 1 or more", o.prompt_rows);
    ExpertStore* store = model->engine->store();
    if (store != nullptr && store->status().mode == ExpertMode::stream) {
      wanted.group_rows = o.prompt_rows;
    }
    *context = new moetier_context{std::make_shared<SharedContext>(model->engine, wanted)};
    return MOETIER_OK;
  });
}

void moetier_context_free(moetier_context* context) {
  delete context;
}

int64_t moetier_context_length(const moetier_context* context) {
  return context == nullptr ? 0 : context->shared->context.options().context;
}

moetier_status moetier_sequence_new(moetier_context* context, moetier_sequence** sequence) {
  return guarded([&] {
    need(context, "the context");
    need(sequence, "the place for the sequence");
    *sequence = new moetier_sequence{context->shared, context->shared->context.new_sequence()};
    return MOETIER_OK;
  });
}

void moetier_sequence_free(moetier_sequence* sequence) {
  delete sequence;
}

int64_t moetier_sequence_length(const moetier_sequence* sequence) {
  return sequence == nullptr ? 0 : sequence->state.length();
}

moetier_status moetier_sequence_fork(const moetier_sequence* sequence, moetier_sequence** fork) {
  return guarded([&] {
    need(sequence, "the sequence");
    need(fork, "the place for the fork");
    *fork = new moetier_sequence{sequence->shared, sequence->state.fork()};
    return MOETIER_OK;
  });
}

moetier_status moetier_sequence_truncate(moetier_sequence* sequence, int64_t length) {
  return guarded([&] {
    need(sequence, "the sequence").state.truncate(length);
    return MOETIER_OK;
  });
}

moetier_status moetier_sequence_save(const moetier_sequence* sequence, void* bytes, size_t capacity, size_t* size) {
  return guarded([&]() -> moetier_status {
    need(sequence, "the sequence");
    need(size, "the place for the size");
    const std::span<char> out = need_array(static_cast<char*>(bytes), capacity, "the place for the bytes");
    const uint64_t wanted = sequence->state.saved_bytes();
    *size = wanted;
    if (wanted > out.size()) {
      set_last_error("the place for the sequence's bytes is too small");
      return MOETIER_TOO_SMALL;
    }
    const std::string saved = sequence->state.save();
    std::copy(saved.begin(), saved.end(), out.begin());
    return MOETIER_OK;
  });
}

moetier_status moetier_sequence_load(moetier_sequence* sequence, const void* bytes, size_t size) {
  return guarded([&] {
    const std::span<const char> from = need_array(static_cast<const char*>(bytes), size, "the list of bytes");
    need(sequence, "the sequence").state.load({from.data(), from.size()});
    return MOETIER_OK;
  });
}

moetier_status moetier_decode(moetier_context* context, const moetier_row* rows, size_t count) {
  return guarded([&] {
    need(context, "the context");
    SharedContext& shared = *context->shared;
    shared.rows.clear();
    for (const moetier_row& row : need_array(rows, count, "the list of rows")) {
      need(row.sequence, "a row's sequence");
      shared.rows.push_back({row.token, &row.sequence->state, row.want_logits != 0});
    }
    shared.context.decode(shared.rows);
    return MOETIER_OK;
  });
}

moetier_status moetier_context_cancel(moetier_context* context, int32_t cancel) {
  return guarded([&] {
    need(context, "the context").shared->cancelled = cancel != 0;
    return MOETIER_OK;
  });
}

size_t moetier_logits_count(const moetier_context* context) {
  return context == nullptr ? 0 : static_cast<size_t>(context->shared->context.logits_count());
}

const float* moetier_logits(const moetier_context* context, size_t index) {
  const float* logits = nullptr;
  guarded([&] {
    need(context, "the context");
    logits = context->shared->context.logits(static_cast<int64_t>(std::min<size_t>(index, INT64_MAX))).data();
    return MOETIER_OK;
  });
  return logits;
}
