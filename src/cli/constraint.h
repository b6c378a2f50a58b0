// Grammars and schemas as the command line asks for them.
#pragma once

#include <memory>

#include "cli/settings.h"
#include "engine/constraint.h"

namespace moetier::cli {

/// What --grammar, --grammar-file, --json-schema or --json-schema-file ask for, at its beginning; null if none does.
/// Errors (usage): more than one of them, what is wrong with the grammar or the schema.
std::unique_ptr<TokenConstraint> make_constraint(const Settings& settings, const Tokenizer& tokenizer);

}  // namespace moetier::cli
