// Tokens to a tree.
#pragma once

#include <string_view>

#include "tokenizer/template/ast.h"

namespace moetier::jinja {

/// Raises a `syntax` fault with the line. Nesting and sizes are bounded by Limits. Variables are not resolved yet.
std::unique_ptr<ParsedTemplate> parse_template(std::string_view source);

}  // namespace moetier::jinja
