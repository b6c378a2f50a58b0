// Command line and environment to given values. The parser is our own, since llama-server's short flags have several
// letters (-ngl), which the usual libraries read as a flag and its value.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace moetier::cli {

/// What the command line asks for, besides running.
struct Parsed {
  GivenValues given;
  bool help = false;
  std::vector<std::string> notes;  ///< sentences to say once
};

/// Parses what follows the subcommand's name, then adds the environment. Unknown flags are a usage error that names all
/// of them, with the nearest known ones.
Parsed parse_arguments(const Command& command, const std::vector<std::string>& arguments);

}  // namespace moetier::cli
