// All that keeps a file from running, not only what comes first.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "compute/compute.h"
#include "gguf/reader.h"

namespace moetier {

/// What a try to load came to. Lists are cut where they have as many items as were asked for.
struct LoadProblems {
  std::vector<std::string> sentences;  ///< each as load_model() would fail with it; none: the model runs
  size_t more = 0;                     ///< sentences beyond those
  std::vector<std::string> ignored;    ///< tensors that the graph does not use
  size_t more_ignored = 0;
};

/// Loads as load_model() does, but goes on behind a missing or misshapen tensor, and behind a key that is missing or
/// that the graph does not know. Tensors are not looked for where a count is missing or out of range, since their
/// shapes depend on it. What else is wrong ends the list.
LoadProblems find_load_problems(const GgufFile& file, Compute& compute, size_t most);

// --- for the code that loads ---

/// Fails with the sentence, unless find_load_problems() runs on this thread: then it is noted, and the caller goes on
/// with something in the place of what is wrong. `shapes`: tensors' shapes depend on it.
void fail_or_note(const std::string& sentence, bool shapes = false);
/// Ends a survey that noted something on which shapes depend; called before tensors are looked for.
void end_survey_of_keys();
/// Whether a survey runs; it takes note of a tensor that the graph does not use.
bool note_ignored(std::string_view tensor);

}  // namespace moetier
