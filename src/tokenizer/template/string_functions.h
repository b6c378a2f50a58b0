// Text operations that methods and filters share. Texts are valid UTF-8; positions count code points.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/template/value.h"

namespace moetier::jinja {

/// str.replace; a negative count replaces all.
std::string replaced(std::string_view text, std::string_view from, std::string_view to, int64_t count);

/// str.split and rsplit: at `separator`, or at white space without one; a negative `most` splits everywhere.
std::vector<std::string_view> split(std::string_view text, std::optional<std::string_view> separator, int64_t most);
std::vector<std::string_view> split_from_right(std::string_view text, std::optional<std::string_view> separator,
                                               int64_t most);
/// str.splitlines
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

/// str.strip of the characters in `characters`, or of white space.
std::string_view stripped(std::string_view text, std::optional<std::string_view> characters, bool left, bool right);

/// `piece` as often as said.
std::string repeated_text(std::string_view piece, size_t times);

/// str.center
std::string centered(std::string_view text, int64_t width, std::string_view fill);

/// textwrap.wrap of one line without tabs expanded or white space replaced.
std::vector<std::string> wrapped_lines(std::string_view line, int64_t width, bool break_long_words,
                                       bool break_on_hyphens);

/// The strings, as list of values; safe if `safe`.
Value list_of(const std::vector<std::string_view>& texts, bool safe);

}  // namespace moetier::jinja
