// Gives every variable its place, by jinja2's rules of scope.
#pragma once

#include "tokenizer/template/ast.h"

namespace moetier::jinja {

/// Fills the places, frames and slots of a parsed template, and checks what jinja2 checks when it compiles: filters and
/// tests that do not exist, break outside a loop, arguments given twice. Raises `syntax` faults.
void resolve(ParsedTemplate& parsed);

}  // namespace moetier::jinja
