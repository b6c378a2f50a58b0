// The row of `serve` in the table of subcommands.
#pragma once

#include "cli/command.h"

namespace moetier::cli {

Command serve_command();

}  // namespace moetier::cli
