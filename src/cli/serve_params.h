// The rows of `serve` and `check-api` in the table of subcommands.
#pragma once

#include "cli/command.h"

namespace moetier::cli {

Command serve_command();
Command check_api_command();

}  // namespace moetier::cli
