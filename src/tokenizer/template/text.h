// How values are written: str(), repr(), numbers, HTML escapes.
#pragma once

#include <string>
#include <string_view>

#include "tokenizer/template/value.h"

namespace moetier::jinja {

/// str(value), appended.
void append_str(std::string& out, const Value& value);
std::string str(const Value& value);
/// The value itself if it is a string, else str of it (markupsafe's soft_str).
Value soft_str(const Value& value);
/// repr(value)
void append_repr(std::string& out, const Value& value);
std::string repr(const Value& value);
std::string repr_of_text(std::string_view text);
/// \xNN, \uNNNN or \UNNNNNNNN, whichever is the shortest that fits.
void append_code_escape(std::string& out, char32_t code);
/// repr with everything outside ASCII escaped.
std::string ascii_repr(const Value& value);

std::string integer_text(Integer value, unsigned base = 10);
/// The shortest decimal that reads back as the same double, laid out as Python's repr does.
std::string real_text(double value);

/// markupsafe.escape: safe text of str(value), escaped unless it is safe already.
Value escaped(const Value& value);
std::string escaped_text(std::string_view text);

}  // namespace moetier::jinja
