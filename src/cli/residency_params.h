// The parameters that say how a model's entries and dense weights are kept, and the rules between them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/param.h"
#include "cli/settings.h"
#include "experts/residency.h"

namespace moetier::cli {

ParamList residency_params();
/// --moe-cache-audit alone, which is also one of them.
Param audit_param();

/// One sentence that names the flag and the reason if what is given contradicts itself, else empty. Pure. Lists without
/// these parameters have no rules.
std::string residency_problem(const ParamList& params, const GivenValues& given);

/// Sentences to say once: deprecated spellings, flags that do nothing with the mode that was chosen.
std::vector<std::string> residency_notes(const ParamList& params, const GivenValues& given);

/// Of settings that passed residency_problem().
ResidencyOptions residency_options(const Settings& settings);

/// Says that --drop-cold-experts, if given, needs a cache, which the model turned out not to have in this mode.
void note_unused_drop(const Settings& settings, std::string_view mode);

}  // namespace moetier::cli
