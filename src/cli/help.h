// Help, reference, man page and shell completion, all made from the table.
#pragma once

#include <string>

#include "cli/command.h"

namespace moetier::cli {

std::string program_help();
std::string command_help(const Command& command);
std::string markdown_reference();  ///< docs/cli.md
std::string man_page();            ///< moetier.1
std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

// Shared by the above.
std::string flag_names(const Param& param);     ///< "-t, --threads N"
std::string param_details(const Param& param);  ///< help with default, environment, lossy mark and notes

}  // namespace moetier::cli
