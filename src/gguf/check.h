// Looks through a model's weights for values that no encoder writes.
#pragma once

#include <cstdint>
#include <functional>

#include "gguf/reader.h"

namespace moetier {

/// Reads all tensor data (opening a file does not) and fails on the first number that is no finite one: a weight of
/// f32, f16, bf16 or f64, a block's f16 scale or minimum, or exponent byte 255 of MXFP4. The error names the file,
/// tensor, block and byte offset. Integer types and nvfp4 hold nothing to check. `progress(done, total)` in bytes, may
/// be empty; called at least once per 64 MiB.
void check_tensor_data(const GgufFile& file, const std::function<void(uint64_t done, uint64_t total)>& progress = {});

/// The same for one tensor.
void check_tensor_data(const GgufFile& file, const TensorInfo& tensor);

}  // namespace moetier
