// What stands behind the C API's handles, and how C++ errors become values.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "base/error.h"
#include "engine/context.h"
#include "engine/sampler.h"
#include "moetier/moetier.h"

struct moetier_model {
  std::shared_ptr<moetier::Engine> engine;
};

namespace moetier::capi {

/// A context and the model it needs: freed with the last handle that needs either.
struct SharedContext {
  SharedContext(std::shared_ptr<Engine> model, const ContextOptions& options)
      : engine(std::move(model)), context(*engine, options) {
    context.cancel_on(&cancelled);
    const std::lock_guard lock(engine->run_mutex());
    ExpertStore* store = engine->store();
    if (store == nullptr) return;
    for (const LayerEntries& layer : store->map().layers) before.push_back(store->counters(layer.layer));
  }
  std::shared_ptr<Engine> engine;
  Context context;
  std::vector<StoreCounters> before;  // per MoE layer, when the context was made: its statistics begin there
  std::vector<BatchRow> rows;         // of the batch in progress, kept for its memory
  std::atomic<bool> cancelled{false};
};

void set_last_error(const char* sentence) noexcept;

/// Runs `body` and turns what it throws into a status and the thread's last error.
template <typename Body>
moetier_status guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const Cancelled& e) {
    set_last_error(e.what());
    return MOETIER_CANCELLED;
  } catch (const Error& e) {
    set_last_error(e.what());
    return e.kind() == ErrorKind::usage ? MOETIER_INVALID : MOETIER_FAILED;
  } catch (const std::bad_alloc&) {
    set_last_error("there is not enough memory for this");
    return MOETIER_OUT_OF_MEMORY;
  } catch (const std::exception& e) {
    set_last_error(e.what());
    return MOETIER_FAILED;
  } catch (...) {
    set_last_error("something unknown went wrong");
    return MOETIER_FAILED;
  }
}

/// A pointer that must not be NULL.
template <typename T>
T& need(T* pointer, const char* what) {
  if (pointer == nullptr) usage_error("{} is NULL", what);
  return *pointer;
}

/// An array that may only be NULL if it is empty.
template <typename T>
std::span<T> need_array(T* data, size_t count, const char* what) {
  if (data == nullptr && count > 0) usage_error("{} is NULL and should hold {}", what, count);
  return {data, count};
}

/// Fills as much of the caller's struct as its version of it has.
template <typename Options>
void give_defaults(Options* options, size_t size, Options defaults) noexcept {
  if (options == nullptr || size < sizeof(size_t)) return;
  std::memset(static_cast<void*>(options), 0, size);
  defaults.size = size;
  std::memcpy(static_cast<void*>(options), &defaults, size < sizeof defaults ? size : sizeof defaults);
}

/// The caller's options over the defaults. A newer caller's struct is taken as long as what this library does not know
/// of is zero.
template <typename Options>
Options take_options(const Options* options, Options defaults, const char* what) {
  if (options == nullptr) return defaults;
  const size_t size = options->size;
  if (size < sizeof(size_t)) usage_error("{}: the size is {}; call the init function first", what, size);
  const auto* bytes = reinterpret_cast<const unsigned char*>(options);
  for (size_t i = sizeof defaults; i < size; ++i) {
    if (bytes[i] != 0) usage_error("{}: they set something that this version of the library does not know", what);
  }
  std::memcpy(static_cast<void*>(&defaults), options, size < sizeof defaults ? size : sizeof defaults);
  return defaults;
}

}  // namespace moetier::capi

struct moetier_context {
  std::shared_ptr<moetier::capi::SharedContext> shared;
};

struct moetier_sequence {
  std::shared_ptr<moetier::capi::SharedContext> shared;  // before the state: the state needs its pool to the end
  moetier::SequenceState state;
};

struct moetier_sampler {
  moetier::Sampler sampler;
};

struct moetier_stream {
  std::shared_ptr<moetier::Engine> engine;
  moetier::StreamDecoder decoder;
  bool special;
  std::string text;
};
