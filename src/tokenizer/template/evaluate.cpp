// The interpreter's expressions.
#include <algorithm>

#include "tokenizer/template/access.h"
#include "tokenizer/template/callables.h"
#include "tokenizer/template/filters.h"
#include "tokenizer/template/interpreter.h"
#include "tokenizer/template/operators.h"
#include "tokenizer/template/text.h"

namespace moetier::jinja {

Value Interpreter::evaluate(const Expression& expression) {
  const Level level;
  spend(1);
  switch (expression.kind) {
    case ExpressionKind::constant:
      return expression.value;
    case ExpressionKind::name:
      return evaluate_name(expression);
    case ExpressionKind::namespace_target:
      break;  // never read
    case ExpressionKind::tuple:
    case ExpressionKind::list:
      return evaluate_items(expression);
    case ExpressionKind::dict:
      return evaluate_dict(expression);
    case ExpressionKind::conditional:
      return evaluate_conditional(expression);
    case ExpressionKind::binary:
      return evaluate_binary(expression);
    case ExpressionKind::both:
    case ExpressionKind::either: {
      Value left = evaluate(*expression.parts[0]);
      return truth(left) == (expression.kind == ExpressionKind::either) ? left : evaluate(*expression.parts[1]);
    }
    case ExpressionKind::negation:
      return Value::boolean(!truth(evaluate(*expression.parts[0])));
    case ExpressionKind::minus:
      return negated(evaluate(*expression.parts[0]));
    case ExpressionKind::plus:
      return plus(evaluate(*expression.parts[0]));
    case ExpressionKind::concatenation:
      return evaluate_concatenation(expression);
    case ExpressionKind::comparison:
      return evaluate_comparison(expression);
    case ExpressionKind::attribute:
      return evaluate_attribute(expression);
    case ExpressionKind::item:
      return evaluate_item(expression);
    case ExpressionKind::slice:
      return evaluate_slice(expression);
    case ExpressionKind::call:
      return evaluate_call(expression, nullptr);
    case ExpressionKind::filter:
      return evaluate_filter(expression);
    case ExpressionKind::test:
      return evaluate_test(expression);
  }
  return {};
}

Value Interpreter::evaluate_name(const Expression& expression) {
  Value value = expression.place.slot >= 0 ? slot(expression.place) : activation_->context->find(expression.name);
  if (!value.is_missing()) return value;
  return Value::undefined(fmt::format("{} is undefined", repr_of_text(expression.name)));
}

Value Interpreter::evaluate_conditional(const Expression& expression) {
  if (truth(evaluate(*expression.parts[0]))) return evaluate(*expression.parts[1]);
  if (expression.parts[2] != nullptr) return evaluate(*expression.parts[2]);
  return Value::undefined(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined.", expression.line));
}

Value Interpreter::evaluate_binary(const Expression& expression) {
  const Value left = evaluate(*expression.parts[0]);
  const Value right = evaluate(*expression.parts[1]);
  line_ = expression.line;
  return apply(expression.op, left, right);
}

Value Interpreter::evaluate_comparison(const Expression& expression) {
  Value left = evaluate(*expression.parts[0]);
  bool holds = true;
  for (size_t i = 0; i < expression.comparisons.size() && holds; ++i) {
    Value right = evaluate(*expression.parts[i + 1]);
    line_ = expression.line;
    holds = compare(expression.comparisons[i], left, right);
    left = std::move(right);
  }
  return Value::boolean(holds);
}

Value Interpreter::evaluate_concatenation(const Expression& expression) {
  std::vector<Value> values;
  values.reserve(expression.parts.size());
  for (const auto& part : expression.parts) values.push_back(evaluate(*part));
  std::string text;
  for (const Value& value : values) {
    if (value.is_string()) check_text_size(text.size() + value.text().size());
    append_str(text, value);
  }
  return Value::string(std::move(text));
}

Value Interpreter::evaluate_items(const Expression& expression) {
  std::vector<Value> items;
  items.reserve(expression.parts.size());
  for (const auto& part : expression.parts) items.push_back(evaluate(*part));
  return expression.kind == ExpressionKind::list ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

Value Interpreter::evaluate_dict(const Expression& expression) {
  auto dict = std::make_shared<DictData>();
  for (size_t i = 0; i + 1 < expression.parts.size(); i += 2) {
    const Value key = evaluate(*expression.parts[i]);
    dict->set(key, evaluate(*expression.parts[i + 1]));
  }
  return Value::dict(std::move(dict));
}

Value Interpreter::evaluate_attribute(const Expression& expression) {
  const Value object = evaluate(*expression.parts[0]);
  line_ = expression.line;
  return get_attribute(object, expression.name);
}

Value Interpreter::evaluate_item(const Expression& expression) {
  const Value object = evaluate(*expression.parts[0]);
  const Value key = evaluate(*expression.parts[1]);
  line_ = expression.line;
  return get_item(object, key);
}

Value Interpreter::evaluate_slice(const Expression& expression) {
  const Value object = evaluate(*expression.parts[0]);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (expression.parts[i + 1] != nullptr) bounds[i] = evaluate(*expression.parts[i + 1]);
  }
  line_ = expression.line;
  return sliced(object, bounds[0], bounds[1], bounds[2]);
}

void Interpreter::evaluate_arguments(const CallArguments& source, Arguments& arguments) {
  for (const auto& argument : source.positional) arguments.positional.push_back(evaluate(*argument));
  for (const auto& named : source.named) {
    Value value = evaluate(*named.second);
    const auto same = [&](const auto& entry) { return entry.first == named.first; };
    const auto found = std::find_if(arguments.named.begin(), arguments.named.end(), same);
    if (found != arguments.named.end()) {
      found->second = std::move(value);  // two of one name pass only if a name is a word of Python: the last counts
    } else {
      arguments.named.emplace_back(named.first, std::move(value));
    }
  }
  if (source.star != nullptr) {
    const Value values = evaluate(*source.star);
    if (!is_iterable(values)) {
      raise(FaultKind::type, "argument after * must be an iterable, not {}", type_name(values));
    }
    for (Value& value : collect(values)) arguments.positional.push_back(std::move(value));
  }
  if (source.double_star != nullptr) add_double_star(evaluate(*source.double_star), arguments);
}

void Interpreter::add_double_star(const Value& mapping, Arguments& arguments) {
  if (!mapping.is(Kind::dict)) {
    raise(FaultKind::type, "argument after ** must be a mapping, not {}", type_name(mapping));
  }
  for (const auto& [key, value] : mapping.dict_data().entries()) {
    if (!key.is_string()) raise(FaultKind::type, "keywords must be strings");
    for (const auto& [name, other] : arguments.named) {
      spend(1);
      if (name == key.text()) raise(FaultKind::type, "got multiple values for keyword argument {}", repr(key));
    }
    arguments.named.emplace_back(std::string(key.text()), value);
  }
}

Value Interpreter::evaluate_call(const Expression& expression, const Value* caller) {
  const Value callee = evaluate(*expression.parts[0]);
  Arguments arguments;
  evaluate_arguments(*expression.arguments, arguments);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  line_ = expression.line;
  return call(callee, std::move(arguments));
}

Value Interpreter::call(const Value& callee, Arguments&& arguments) {
  const Level level;
  if (callee.is_undefined()) raise_undefined(callee);
  if (!callee.is(Kind::object)) {
    raise(FaultKind::type, "'{}' object is not callable", type_name(callee));
  }
  return callee.as_object().call(*this, std::move(arguments));
}

Value Interpreter::evaluate_filter(const Expression& expression) {
  Arguments arguments;
  arguments.positional.push_back(expression.parts[0] != nullptr ? evaluate(*expression.parts[0]) : *block_text_);
  evaluate_arguments(*expression.arguments, arguments);
  line_ = expression.line;
  const NativeFunction filter = find_filter(expression.name);
  if (filter == nullptr) raise(FaultKind::runtime, "No filter named {} found.", repr_of_text(expression.name));
  return filter(*this, std::move(arguments));
}

Value Interpreter::evaluate_test(const Expression& expression) {
  Arguments arguments;
  arguments.positional.push_back(evaluate(*expression.parts[0]));
  evaluate_arguments(*expression.arguments, arguments);
  line_ = expression.line;
  const NativeFunction test = find_test(expression.name);
  if (test == nullptr) raise(FaultKind::runtime, "No test named {} found.", repr_of_text(expression.name));
  return test(*this, std::move(arguments));
}

Value Interpreter::call_filter(const Value& name, Arguments&& arguments) {
  const Level level;
  const NativeFunction filter = name.is_string() ? find_filter(name.text()) : nullptr;
  if (filter == nullptr) raise(FaultKind::runtime, "No filter named {}.", repr(name));
  return filter(*this, std::move(arguments));
}

Value Interpreter::call_test(const Value& name, Arguments&& arguments) {
  const Level level;
  const NativeFunction test = name.is_string() ? find_test(name.text()) : nullptr;
  if (test == nullptr) raise(FaultKind::runtime, "No test named {}.", repr(name));
  return test(*this, std::move(arguments));
}

}  // namespace moetier::jinja
