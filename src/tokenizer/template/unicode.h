// UTF-8 text as Python sees it: code points, their properties and case maps.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tokenizer/utf8.h"

namespace moetier::jinja {

/// The code point at `position`, which moves past it. The text must be valid UTF-8 (all text in the interpreter is).
char32_t next_code_point(std::string_view text, size_t& position);
/// The code point before `position`, which moves back to its start.
char32_t previous_code_point(std::string_view text, size_t& position);

bool is_valid_utf8(std::string_view text);
/// Every byte that is not part of a valid character becomes U+FFFD.
std::string repaired_utf8(std::string_view text);

/// How many code points.
size_t count_code_points(std::string_view text);
/// The byte at which code point `index` begins; the size of the text if there are fewer.
size_t byte_of_code_point(std::string_view text, size_t index);

bool is_alpha(char32_t code);
bool is_decimal(char32_t code);
bool is_digit(char32_t code);
bool is_numeric(char32_t code);
bool is_alnum(char32_t code);
bool is_space(char32_t code);
bool is_lower(char32_t code);
bool is_upper(char32_t code);
bool is_title_only(char32_t code);  ///< a titlecase letter, such as U+01C5
bool is_printable(char32_t code);
bool is_identifier_start(char32_t code);
bool is_identifier_part(char32_t code);
/// Python's str.isupper or islower: there are cased characters, and all are of that case.
bool has_case(std::string_view text, bool upper);
/// 0 to 9 for a decimal character of any script, else -1.
int decimal_value(char32_t code);

void append_upper(std::string& out, char32_t code);
void append_lower(std::string& out, char32_t code);
void append_title(std::string& out, char32_t code);

/// Python's str.upper, lower, title, capitalize, swapcase, casefold.
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);
std::string capitalized(std::string_view text);
std::string swapped_case(std::string_view text);
std::string case_folded(std::string_view text);

/// string_view::find and rfind in linear time, whatever the texts are.
size_t find_text(std::string_view text, std::string_view wanted, size_t from = 0);
size_t find_last_text(std::string_view text, std::string_view wanted);

/// The text without white space at its ends.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
std::string_view strip(std::string_view text);

}  // namespace moetier::jinja
