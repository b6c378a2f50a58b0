#include <algorithm>
#include <array>

#include "tokenizer/template/parser_base.h"
#include "tokenizer/template/text.h"

namespace moetier::jinja {
namespace {

ExpressionPtr make(ExpressionKind kind, int line) {
  return std::make_unique<Expression>(kind, line);
}

ExpressionPtr make_constant(Value value, int line) {
  auto constant = make(ExpressionKind::constant, line);
  constant->value = std::move(value);
  return constant;
}

Limits limits() {
  return Budget::current() != nullptr ? Budget::current()->limits() : Limits{};
}

constexpr std::array<std::pair<std::string_view, Comparison>, 6> comparisons = {{{"==", Comparison::equal},
                                                                                 {"!=", Comparison::not_equal},
                                                                                 {"<", Comparison::less},
                                                                                 {"<=", Comparison::less_equal},
                                                                                 {">", Comparison::greater},
                                                                                 {">=", Comparison::greater_equal}}};

bool can_assign(const Expression& target) {
  if (target.kind == ExpressionKind::name) return true;
  if (target.kind != ExpressionKind::tuple) return false;
  return std::all_of(target.parts.begin(), target.parts.end(), [](const auto& part) { return can_assign(*part); });
}

std::string_view target_kind(const Expression& target) {
  switch (target.kind) {
    case ExpressionKind::constant:
      return "const";
    case ExpressionKind::list:
      return "list";
    case ExpressionKind::dict:
      return "dict";
    default:
      return "tuple";
  }
}

}  // namespace

ExpressionParser::Nested::Nested(ExpressionParser& parser) : parser_(parser) {
  if (parser_.nesting_ >= limits().nesting) {
    throw Fault(FaultKind::limit, fmt::format("the template nests more than {} levels", limits().nesting),
                parser_.current().line);
  }
  ++parser_.nesting_;
}

const Token& ExpressionParser::take() {
  const Token& token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool ExpressionParser::skip_op(std::string_view op) {
  if (!current().is_op(op)) return false;
  take();
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  take();
  return true;
}

const Token& ExpressionParser::expect(TokenKind kind) {
  if (!current().is(kind)) {
    Token wanted;
    wanted.kind = kind;
    const std::string name = kind == TokenKind::name ? "name" : describe(wanted);
    if (current().is(TokenKind::end)) fail(fmt::format("unexpected end of template, expected '{}'.", name));
    fail(fmt::format("expected token '{}', got {}", name, repr_of_text(describe(current()))));
  }
  return take();
}

const Token& ExpressionParser::expect_op(std::string_view op) {
  if (!current().is_op(op)) {
    if (current().is(TokenKind::end)) fail(fmt::format("unexpected end of template, expected '{}'.", op));
    fail(fmt::format("expected token '{}', got {}", op, repr_of_text(describe(current()))));
  }
  return take();
}

const Token& ExpressionParser::expect_name(std::string_view name) {
  if (!current().is_name(name)) {
    if (current().is(TokenKind::end)) fail(fmt::format("unexpected end of template, expected '{}'.", name));
    fail(fmt::format("expected token '{}', got {}", name, repr_of_text(describe(current()))));
  }
  return take();
}

void ExpressionParser::fail(const std::string& message, int line) const {
  throw Fault(FaultKind::syntax, message, line != 0 ? line : current().line);
}

ExpressionPtr ExpressionParser::finished(ExpressionPtr expression) const {
  int below = 0;
  const auto see = [&](const ExpressionPtr& part) { below = std::max(below, part != nullptr ? part->height : 0); };
  for (const auto& part : expression->parts) see(part);
  if (expression->arguments != nullptr) {
    for (const auto& argument : expression->arguments->positional) see(argument);
    for (const auto& [name, argument] : expression->arguments->named) see(argument);
    see(expression->arguments->star);
    see(expression->arguments->double_star);
  }
  expression->height = below + 1;
  const int limit = limits().expression_depth;
  if (expression->height > limit) {
    throw Fault(FaultKind::limit, fmt::format("an expression is more than {} operations deep", limit),
                expression->line);
  }
  return expression;
}

ExpressionPtr ExpressionParser::parse_expression(bool with_conditional) {
  return with_conditional ? parse_conditional() : parse_or();
}

ExpressionPtr ExpressionParser::parse_conditional() {
  const Nested nested(*this);
  int line = current().line;
  ExpressionPtr value = parse_or();
  while (skip_name("if")) {
    auto conditional = make(ExpressionKind::conditional, line);
    conditional->parts.push_back(parse_or());
    conditional->parts.push_back(std::move(value));
    conditional->parts.push_back(skip_name("else") ? parse_conditional() : nullptr);
    value = finished(std::move(conditional));
    line = current().line;
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_or() {
  int line = current().line;
  ExpressionPtr left = parse_and();
  while (skip_name("or")) {
    auto either = make(ExpressionKind::either, line);
    either->parts.push_back(std::move(left));
    either->parts.push_back(parse_and());
    left = finished(std::move(either));
    line = current().line;
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  int line = current().line;
  ExpressionPtr left = parse_not();
  while (skip_name("and")) {
    auto both = make(ExpressionKind::both, line);
    both->parts.push_back(std::move(left));
    both->parts.push_back(parse_not());
    left = finished(std::move(both));
    line = current().line;
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!current().is_name("not")) return parse_comparison();
  const Nested nested(*this);
  auto negation = make(ExpressionKind::negation, take().line);
  negation->parts.push_back(parse_not());
  return finished(std::move(negation));
}

ExpressionPtr ExpressionParser::parse_comparison() {
  auto comparison = make(ExpressionKind::comparison, current().line);
  comparison->parts.push_back(parse_sum());
  while (true) {
    const auto known = std::find_if(comparisons.begin(), comparisons.end(),
                                    [&](const auto& entry) { return current().is_op(entry.first); });
    if (known != comparisons.end()) {
      take();
      comparison->comparisons.push_back(known->second);
    } else if (skip_name("in")) {
      comparison->comparisons.push_back(Comparison::in);
    } else if (current().is_name("not") && look().is_name("in")) {
      take();
      take();
      comparison->comparisons.push_back(Comparison::not_in);
    } else {
      break;
    }
    comparison->parts.push_back(parse_sum());
  }
  if (comparison->comparisons.empty()) return std::move(comparison->parts.front());
  return finished(std::move(comparison));
}

ExpressionPtr ExpressionParser::parse_sum() {
  int line = current().line;
  ExpressionPtr left = parse_concatenation();
  while (current().is_op("+") || current().is_op("-")) {
    auto sum = make(ExpressionKind::binary, line);
    sum->op = take().text == "+" ? Operator::add : Operator::subtract;
    sum->parts.push_back(std::move(left));
    sum->parts.push_back(parse_concatenation());
    left = finished(std::move(sum));
    line = current().line;
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concatenation() {
  auto joined = make(ExpressionKind::concatenation, current().line);
  joined->parts.push_back(parse_product());
  while (skip_op("~")) joined->parts.push_back(parse_product());
  if (joined->parts.size() == 1) return std::move(joined->parts.front());
  return finished(std::move(joined));
}

ExpressionPtr ExpressionParser::parse_product() {
  int line = current().line;
  ExpressionPtr left = parse_power();
  while (current().is_op("*") || current().is_op("/") || current().is_op("//") || current().is_op("%")) {
    auto product = make(ExpressionKind::binary, line);
    const std::string& op = take().text;
    product->op = op == "*"    ? Operator::multiply
                  : op == "/"  ? Operator::divide
                  : op == "//" ? Operator::floor_divide
                               : Operator::modulo;
    product->parts.push_back(std::move(left));
    product->parts.push_back(parse_power());
    left = finished(std::move(product));
    line = current().line;
  }
  return left;
}

/// Powers associate to the left in jinja2's tree, but the Python that it writes has brackets around each: so here too.
ExpressionPtr ExpressionParser::parse_power() {
  int line = current().line;
  ExpressionPtr left = parse_unary(true);
  while (skip_op("**")) {
    auto power = make(ExpressionKind::binary, line);
    power->op = Operator::power;
    power->parts.push_back(std::move(left));
    power->parts.push_back(parse_unary(true));
    left = finished(std::move(power));
    line = current().line;
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  const int line = current().line;
  ExpressionPtr value;
  if (current().is_op("-") || current().is_op("+")) {
    const Nested nested(*this);
    value = make(take().text == "-" ? ExpressionKind::minus : ExpressionKind::plus, line);
    value->parts.push_back(parse_unary(false));
    value = finished(std::move(value));
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return with_filters ? parse_filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token& token = current();
  const int line = token.line;
  switch (token.kind) {
    case TokenKind::name: {
      take();
      const std::string& name = token.text;
      if (name == "true" || name == "True") return make_constant(Value::boolean(true), line);
      if (name == "false" || name == "False") return make_constant(Value::boolean(false), line);
      if (name == "none" || name == "None") return make_constant(Value::none(), line);
      auto variable = make(ExpressionKind::name, line);
      variable->name = name;
      return variable;
    }
    case TokenKind::string: {
      std::string text;
      while (current().is(TokenKind::string)) text += take().text;
      return make_constant(Value::string(std::move(text)), line);
    }
    case TokenKind::integer:
    case TokenKind::real:
      return make_constant(take().number, line);
    default:
      break;
  }
  if (token.is_op("(")) {
    const Nested nested(*this);
    take();
    ExpressionPtr value = parse_tuple(true, true);
    expect_op(")");
    return value;
  }
  if (token.is_op("[")) return parse_list();
  if (token.is_op("{")) return parse_dict();
  fail(fmt::format("unexpected {}", repr_of_text(describe(token))));
}

bool ExpressionParser::at_tuple_end() const {
  return current().is(TokenKind::variable_end) || current().is(TokenKind::block_end) || current().is_op(")");
}

ExpressionPtr ExpressionParser::parse_tuple(bool with_conditional, bool explicit_brackets) {
  auto tuple = make(ExpressionKind::tuple, current().line);
  bool is_tuple = false;
  while (true) {
    if (!tuple->parts.empty()) expect_op(",");
    if (at_tuple_end()) break;
    tuple->parts.push_back(parse_expression(with_conditional));
    if (!current().is_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!tuple->parts.empty()) return std::move(tuple->parts.front());
    if (!explicit_brackets) fail(fmt::format("Expected an expression, got {}", repr_of_text(describe(current()))));
  }
  return finished(std::move(tuple));
}

ExpressionPtr ExpressionParser::parse_list() {
  const Nested nested(*this);
  auto list = make(ExpressionKind::list, expect_op("[").line);
  while (!current().is_op("]")) {
    if (!list->parts.empty()) expect_op(",");
    if (current().is_op("]")) break;
    list->parts.push_back(parse_expression());
  }
  expect_op("]");
  return finished(std::move(list));
}

ExpressionPtr ExpressionParser::parse_dict() {
  const Nested nested(*this);
  auto dict = make(ExpressionKind::dict, expect_op("{").line);
  while (!current().is_op("}")) {
    if (!dict->parts.empty()) expect_op(",");
    if (current().is_op("}")) break;
    dict->parts.push_back(parse_expression());
    expect_op(":");
    dict->parts.push_back(parse_expression());
  }
  expect_op("}");
  return finished(std::move(dict));
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr value) {
  while (true) {
    if (current().is_op(".") || current().is_op("[")) {
      value = parse_subscript(std::move(value));
    } else if (current().is_op("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters_and_tests(ExpressionPtr value) {
  while (true) {
    if (current().is_op("|")) {
      value = parse_filters(std::move(value), false);
    } else if (current().is_name("is")) {
      value = parse_test(std::move(value));
    } else if (current().is_op("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr value) {
  const Token& token = take();
  const int line = token.line;
  if (token.text == "[") {
    const Nested nested(*this);
    return parse_subscribed(std::move(value), line);
  }
  const Token& attribute = take();
  if (attribute.is(TokenKind::name)) {
    auto access = make(ExpressionKind::attribute, line);
    access->name = attribute.text;
    access->parts.push_back(std::move(value));
    return finished(std::move(access));
  }
  if (!attribute.is(TokenKind::integer)) fail("expected name or number", attribute.line);
  auto item = make(ExpressionKind::item, line);
  item->parts.push_back(std::move(value));
  item->parts.push_back(make_constant(attribute.number, attribute.line));
  return finished(std::move(item));
}

ExpressionPtr ExpressionParser::parse_subscribed(ExpressionPtr object, int line) {
  auto tuple = make(ExpressionKind::tuple, line);
  auto slice = make(ExpressionKind::slice, current().line);
  bool has_slice = false;
  const auto at_end = [&] { return current().is_op("]") || current().is_op(",") || current().is_op(":"); };
  while (!current().is_op("]")) {
    if (has_slice || !tuple->parts.empty()) {
      expect_op(",");
      if (has_slice) fail("a slice cannot be part of a tuple");
    }
    ExpressionPtr start = current().is_op(":") ? nullptr : parse_expression();
    if (!current().is_op(":")) {
      tuple->parts.push_back(std::move(start));
      continue;
    }
    if (!tuple->parts.empty()) fail("a slice cannot be part of a tuple");
    take();
    has_slice = true;
    slice->parts.push_back(std::move(object));
    slice->parts.push_back(std::move(start));
    slice->parts.push_back(at_end() ? nullptr : parse_expression());
    const bool has_step = skip_op(":") && !current().is_op("]") && !current().is_op(",");
    slice->parts.push_back(has_step ? parse_expression() : nullptr);
  }
  expect_op("]");
  if (has_slice) return finished(std::move(slice));
  auto item = make(ExpressionKind::item, line);
  item->parts.push_back(std::move(object));
  item->parts.push_back(tuple->parts.size() == 1 ? std::move(tuple->parts.front()) : finished(std::move(tuple)));
  return finished(std::move(item));
}

std::unique_ptr<CallArguments> ExpressionParser::parse_arguments() {
  const Nested nested(*this);
  const int line = expect_op("(").line;
  auto arguments = std::make_unique<CallArguments>();
  const auto ensure = [&](bool holds) {
    if (!holds) fail("invalid syntax for function call expression", line);
  };
  bool need_comma = false;
  while (!current().is_op(")")) {
    if (need_comma) {
      expect_op(",");
      if (current().is_op(")")) break;
    }
    need_comma = true;
    if (skip_op("*")) {
      ensure(arguments->star == nullptr && arguments->double_star == nullptr);
      arguments->star = parse_expression();
    } else if (skip_op("**")) {
      ensure(arguments->double_star == nullptr);
      arguments->double_star = parse_expression();
    } else if (current().is(TokenKind::name) && look().is_op("=")) {
      ensure(arguments->double_star == nullptr);
      std::string name = take().text;
      take();
      arguments->named.emplace_back(std::move(name), parse_expression());
    } else {
      ensure(arguments->star == nullptr && arguments->double_star == nullptr && arguments->named.empty());
      arguments->positional.push_back(parse_expression());
    }
  }
  expect_op(")");
  return arguments;
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  auto call = make(ExpressionKind::call, current().line);
  call->parts.push_back(std::move(callee));
  call->arguments = parse_arguments();
  return finished(std::move(call));
}

std::string ExpressionParser::parse_dotted_name() {
  std::string name = expect(TokenKind::name).text;
  while (skip_op(".")) name += "." + expect(TokenKind::name).text;
  return name;
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr value, bool first_without_bar) {
  while (first_without_bar || current().is_op("|")) {
    if (!first_without_bar) take();
    first_without_bar = false;
    auto filter = make(ExpressionKind::filter, current().line);
    filter->name = parse_dotted_name();
    filter->parts.push_back(std::move(value));
    filter->arguments = current().is_op("(") ? parse_arguments() : std::make_unique<CallArguments>();
    value = finished(std::move(filter));
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr value) {
  const int line = take().line;
  const bool negated = skip_name("not");
  auto test = make(ExpressionKind::test, line);
  test->name = parse_dotted_name();
  test->parts.push_back(std::move(value));
  test->arguments = std::make_unique<CallArguments>();
  const Token& next = current();
  const bool literal = next.is(TokenKind::name) || next.is(TokenKind::string) || next.is(TokenKind::integer) ||
                       next.is(TokenKind::real) || next.is_op("[") || next.is_op("{");
  if (next.is_op("(")) {
    test->arguments = parse_arguments();
  } else if (literal && !next.is_name("else") && !next.is_name("or") && !next.is_name("and")) {
    if (next.is_name("is")) fail("You cannot chain multiple tests with is");
    test->arguments->positional.push_back(parse_postfix(parse_primary()));
  }
  test = finished(std::move(test));
  if (!negated) return test;
  auto negation = make(ExpressionKind::negation, line);
  negation->parts.push_back(std::move(test));
  return finished(std::move(negation));
}

std::string ExpressionParser::parse_target_name() {
  const Token& token = expect(TokenKind::name);
  static constexpr std::array<std::string_view, 6> reserved = {"true", "false", "none", "True", "False", "None"};
  if (std::find(reserved.begin(), reserved.end(), token.text) != reserved.end()) {
    fail("can't assign to 'name'", token.line);
  }
  return token.text;
}

ExpressionPtr ExpressionParser::parse_target(bool with_namespace) {
  if (with_namespace && look().is_op(".")) {
    const Token& name = expect(TokenKind::name);
    auto target = make(ExpressionKind::namespace_target, name.line);
    target->name = name.text;
    take();
    target->attribute = expect(TokenKind::name).text;
    return target;
  }
  auto tuple = make(ExpressionKind::tuple, current().line);
  bool is_tuple = false;
  while (true) {
    if (!tuple->parts.empty()) expect_op(",");
    if (at_tuple_end()) break;
    tuple->parts.push_back(parse_primary());
    if (!current().is_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && tuple->parts.empty()) {
    fail(fmt::format("Expected an expression, got {}", repr_of_text(describe(current()))));
  }
  ExpressionPtr target = is_tuple ? finished(std::move(tuple)) : std::move(tuple->parts.front());
  if (!can_assign(*target)) fail(fmt::format("can't assign to '{}'", target_kind(*target)), target->line);
  return target;
}

}  // namespace moetier::jinja
