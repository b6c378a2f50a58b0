// Groups of parameters that several subcommands share.
#pragma once

#include "cli/param.h"

namespace moetier::cli {

ParamList model_params();       ///< --model and how to load it
ParamList compute_params();     ///< threads, instruction set, ubatch, context, KV type
ParamList sampling_params();    ///< temperature and friends
ParamList constraint_params();  ///< grammar and JSON schema
ParamList check_params();       ///< of checks that run a model with a cache: profile, size, threads
ParamList log_params();         ///< --verbose, --quiet

/// All the lists in one.
ParamList join(std::vector<ParamList> lists);

}  // namespace moetier::cli
