// Template source to tokens, with trim_blocks and lstrip_blocks on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/template/value.h"

namespace moetier::jinja {

enum class TokenKind {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  real,
  op,  ///< `text` is the operator itself
  end
};

struct Token {
  TokenKind kind = TokenKind::end;
  int line = 1;
  std::string text;  ///< data, a name, a string's value, or an operator
  Value number;      ///< of integer and real

  bool is(TokenKind k) const { return kind == k; }
  bool is_name(std::string_view name) const { return kind == TokenKind::name && text == name; }
  bool is_op(std::string_view op) const { return kind == TokenKind::op && text == op; }
};

/// The source must be valid UTF-8. Comments and the marks of raw blocks are left out; the last token is `end`.
std::vector<Token> tokenize(std::string_view source);

/// How messages name a token.
std::string describe(const Token& token);

}  // namespace moetier::jinja
