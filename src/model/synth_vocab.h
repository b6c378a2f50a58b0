// A vocabulary for made-up models: byte-level BPE whose every token can be reached.
#pragma once

#include <cstdint>

#include "gguf/writer.h"

namespace moetier {

/// The fewest tokens it can have: 256 bytes and three control tokens.
inline constexpr int64_t kMinSynthVocab = 259;

/// Sets `tokenizer.ggml.*` with `n` tokens: the bytes; `<|endoftext|>` (BOS, not added), `<|im_start|>`, `<|im_end|>`
/// (EOS); then syllables and words of them ("ba", " ba", " babe"), each with the merge that makes it. Also a ChatML
/// template.
void set_synth_vocab(GgufWriter& writer, int64_t n);

}  // namespace moetier
