// Flags of llama-server and llama-cli that people paste and that Moetier has nothing to do for: each is ignored,
// accepted where it says what is so anyway, or refused, by name and with the reason.
#pragma once

#include "cli/param.h"

namespace moetier::cli {

/// Those that a subcommand ("serve", "run") takes.
ParamList pasted_params(std::string_view command);

}  // namespace moetier::cli
