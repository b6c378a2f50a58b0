// What `moetier inspect` says of a file, as JSON; the text form is made from it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "gguf/reader.h"

namespace moetier::cli {

/// Metadata (arrays cut to `max_elements`, or whole if negative), tensors, layers with entry bytes, token cycle, dense
/// bytes, what the tiers would hold, whether the model runs, and if not, what is missing or wrong.
nlohmann::ordered_json inspect_report(const GgufFile& file, int64_t max_elements);

/// The report for people.
std::string inspect_text(const nlohmann::ordered_json& report);

}  // namespace moetier::cli
