// Settings written back as the command line that asks for them.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "cli/settings.h"

namespace moetier::cli {

/// A word as a shell takes it: quoted where it has to be.
std::string shell_word(std::string_view text);

/// What was typed or came from the environment, in the table's order, each flag with a space before it. Flags that
/// change nothing (Handling::noop) and those in `without` are left out.
std::string given_flags(const ParamList& params, const Settings& settings,
                        std::initializer_list<std::string_view> without);

}  // namespace moetier::cli
