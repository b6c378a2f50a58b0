// The token stream and the expression parser, under the statement parser.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/template/ast.h"
#include "tokenizer/template/lexer.h"

namespace moetier::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take();
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  const Token& expect(TokenKind kind);
  const Token& expect_op(std::string_view op);
  const Token& expect_name(std::string_view name);
  [[noreturn]] void fail(const std::string& message, int line = 0) const;

  ExpressionPtr parse_expression(bool with_conditional = true);
  /// An expression, or a tuple without brackets. Only within explicit brackets it may be empty.
  ExpressionPtr parse_tuple(bool with_conditional = true, bool explicit_brackets = false);
  /// What may stand left of an assignment.
  ExpressionPtr parse_target(bool with_namespace);
  std::string parse_target_name();
  /// Filters behind `value` (null in blocks), each after its bar; `first` has none before it.
  ExpressionPtr parse_filters(ExpressionPtr value, bool first_without_bar);

  /// One level of brackets or statements; too many are a fault.
  class Nested {
   public:
    explicit Nested(ExpressionParser& parser);
    ~Nested() { --parser_.nesting_; }

   private:
    ExpressionParser& parser_;
  };

 private:
  ExpressionPtr parse_conditional();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr value);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr value);
  ExpressionPtr parse_subscript(ExpressionPtr value);
  ExpressionPtr parse_subscribed(ExpressionPtr object, int line);
  ExpressionPtr parse_call(ExpressionPtr callee);
  ExpressionPtr parse_test(ExpressionPtr value);
  std::string parse_dotted_name();
  std::unique_ptr<CallArguments> parse_arguments();
  bool at_tuple_end() const;
  /// Sets the height from the parts; too high a tree is a fault.
  ExpressionPtr finished(ExpressionPtr expression) const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace moetier::jinja
