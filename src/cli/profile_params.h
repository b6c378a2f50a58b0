// The table of profile and of the commands for profile files.
#pragma once

#include <vector>

#include "cli/command.h"

namespace moetier::cli {

std::vector<Command> profile_commands();

}  // namespace moetier::cli
