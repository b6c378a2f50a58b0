// Writes a model again in another file type.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace moetier {

struct QuantizeOptions {
  int threads = 0;                ///< 0 = as many as CPUs are available
  bool allow_requantize = false;  ///< also re-encode weights that are quantized already (a further loss)
  bool pure = false;              ///< all that is quantized gets the file type's base type
  /// Called after every chunk with bytes of tensor data written and to be written; may be empty.
  std::function<void(uint64_t done, uint64_t total)> progress = {};
};

/// What quantize_file did. Sizes are of tensor data.
struct QuantizeReport {
  uint64_t input_bytes = 0, output_bytes = 0;
  int tensors = 0;
  int converted = 0;  ///< tensors that changed their type; the others were copied
  int fallbacks = 0;  ///< tensors whose rows did not fit the blocks that the file type wants
  double bits_per_weight = 0;
};

/// Reads the model `in` (a file, or any shard of a split set) and writes it to `out` as `type`, one of
/// known_file_types(): each tensor gets the type that choose_types() gives it. Memory use does not depend on the size
/// of the model. `out` appears whole or not at all. Fallbacks, and file types made for an importance matrix, are told
/// in a warning. Errors (nothing is written): an unknown type (a usage error), out one of the input's files, weights
/// that are quantized already (unless allowed; from quantized to f32, f16 and bf16 is always allowed), an input type
/// that cannot be decoded, a weight that is not finite.
QuantizeReport quantize_file(const std::string& in, const std::string& out, std::string_view type,
                             const QuantizeOptions& options = {});

}  // namespace moetier
