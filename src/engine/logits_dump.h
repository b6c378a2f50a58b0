// The logits of every position, to a file.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "engine/context.h"

namespace moetier {

/// Feeds `tokens` to a new sequence and writes float32 [positions x vocabulary], little-endian, row after row, as they
/// are computed. The file appears whole or not at all. `progress(done, total)` in positions. Errors: no tokens, more
/// than the context holds, a file that cannot be written.
void dump_logits(Context& context, std::span<const TokenId> tokens, const std::string& path,
                 const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace moetier
