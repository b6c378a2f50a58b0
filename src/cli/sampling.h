// Sampling and stopping as the command line asks for them.
#pragma once

#include "cli/settings.h"
#include "engine/generate.h"

namespace moetier::cli {

/// `seed` "auto" is drawn here; read it back from the result to record it.
GenerateOptions generate_options(const Settings& settings);

}  // namespace moetier::cli
