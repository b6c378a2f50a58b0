// JSON as Python's json.dumps writes it.
#pragma once

#include <string>

#include "tokenizer/template/value.h"

namespace moetier::jinja {

struct JsonStyle {
  bool ascii = false;  ///< escape everything outside ASCII
  bool lines = false;  ///< one item a line, indented by `indent` a level
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sorted = false;
};

/// A value that JSON has no form for is a `type` fault.
std::string json_text(const Value& value, const JsonStyle& style);

}  // namespace moetier::jinja
