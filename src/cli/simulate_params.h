// The row of `simulate` in the table of subcommands.
#pragma once

#include "cli/command.h"

namespace moetier::cli {

Command simulate_command();

}  // namespace moetier::cli
