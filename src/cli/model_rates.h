// What a model needs for a token and how fast this machine gives it, for plan and simulate.
#pragma once

#include <string>

#include "cli/param.h"
#include "cli/settings.h"
#include "experts/entry_map.h"
#include "experts/token_time.h"
#include "gguf/reader.h"

namespace moetier::cli {

/// --measure, --drive-gb-s, --memory-gb-s. `fallback`: of --measure.
ParamList rate_params(std::string_view fallback);

/// Bytes of dense weights that every token reads: without a table of embeddings that gives it one row only.
uint64_t dense_token_bytes(const GgufFile& file, const EntryMap& map);

/// What is given, and with --measure what is not given is measured: kernels by the model's types with the threads asked
/// for, the drive by direct reads of the model's file. Without a model (`file` null) only what is given.
struct MeasuredRates {
  TokenRates rates;
  std::string how;  ///< one line
};
MeasuredRates rates_of(const Settings& settings, const GgufFile* file, const EntryMap& map);

}  // namespace moetier::cli
