// Command line and environment to given values.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace moetier::cli {

/// What the command line asks for, besides running.
struct Parsed {
  GivenValues given;
  bool help = false;
};

/// Parses what follows the subcommand's name, then adds the environment. A wrong flag is a usage error with the nearest
/// known flag.
Parsed parse_arguments(const Command& command, const std::vector<std::string>& arguments);

}  // namespace moetier::cli
