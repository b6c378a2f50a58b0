// libFuzzer: whatever the bytes, a log of guesses is read whole or refused with a sentence.
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "experts/guess_log.h"
#include "experts/route_predict.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moetier;
  try {
    const GuessLog log = parse_guess_log({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
    for (const GuessLog::Layer& layer : log.layers) {
      if (layer.picks.size() != static_cast<size_t>(log.tokens) * static_cast<size_t>(log.top_k)) __builtin_trap();
      for (const int32_t id : layer.picks) {
        if (id < 0 || id >= log.n_expert) __builtin_trap();
      }
    }
    if (log.n_expert <= 64) static_cast<void>(predict_routes(log));
  } catch (const Error&) {
  }
  return 0;
}
