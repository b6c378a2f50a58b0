// The environment variables that set parameters.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace moetier::cli {

/// Adds what the environment sets and the command line does not. LLAMA_ARG_NO_X, with any value, switches the flag of
/// LLAMA_ARG_X off. Errors (usage): a flag's variable that is neither 1 nor 0.
void read_environment(const Command& command, GivenValues& given);

/// A sentence about variables named LLAMA_ARG_* that are set and that no command knows, if the command takes flags of
/// other tools; else empty.
std::string unknown_variables(const Command& command);

}  // namespace moetier::cli
