// Which tokens are special, where files leave it to the engine to know.
#pragma once

#include "tokenizer/vocab.h"

namespace moetier {

/// Finds the end-of-turn, end-of-message and fill-in-the-middle tokens by text where the file names no id, collects the
/// tokens that end a generation, and corrects the kinds of some families' tokens (architectures.md, 5.10 and 5.4). Sets
/// `vocab.eot`, `eom`, `fim_*`, `ends_generation` and flags.
void apply_fixups(Vocab& vocab, const VocabSource& source);

}  // namespace moetier
