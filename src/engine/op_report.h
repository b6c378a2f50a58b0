// Where the time of prompts and tokens went, by operation and by kind of wait.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/run_meters.h"

namespace moetier {

/// Operations of decoding and of prompts, the dearest first, with barriers apart. The engine must time them.
nlohmann::ordered_json ops_json(Engine& engine);
/// The same as a table for people, a line each.
std::vector<std::string> op_lines(Engine& engine);
/// What a token took, and of it computing, waits and the rest; empty if none was decoded.
std::vector<std::string> token_lines(Engine& engine, const RunMeters& meters);

}  // namespace moetier
