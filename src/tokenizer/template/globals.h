// The functions and types that every template sees.
#pragma once

#include <memory>

#include "tokenizer/template/interpreter.h"

namespace moetier::jinja {

/// range, dict, namespace, cycler, joiner, raise_exception, strftime_now, and lipsum, which is refused.
void add_globals(Context& context);

}  // namespace moetier::jinja
