// What only models like DeepSeek V4 have.
#pragma once

#include <string>

#include "gguf/writer.h"
#include "model/synth.h"
#include "model/synth_plan.h"

namespace moetier {

/// Attention with blocks, the streams' weights, and how experts are chosen. Layers have no blocks, blocks of 4 and
/// blocks of 128 in turn; the first ones look their experts up.
void add_deepseek4_layer(Adder& add, const SynthShape& shape, int64_t layer, uint64_t seed);
/// The streams' weights of the head.
void add_deepseek4_ends(Adder& add, const SynthShape& shape);
/// `a`: the architecture and a dot.
void set_deepseek4_metadata(GgufWriter& writer, const std::string& a, const SynthShape& shape);

}  // namespace moetier
