#include "tokenizer/template/access.h"
#include "tokenizer/template/arguments.h"
#include "tokenizer/template/filters.h"
#include "tokenizer/template/operators.h"
#include "tokenizer/template/text.h"
#include "tokenizer/template/unicode.h"

namespace moetier::jinja {
namespace {

/// A test of the value alone.
template <bool (*holds)(const Value&)>
Value plain(Interpreter&, Arguments&& arguments) {
  auto [value] = bind<1>("the test", {"value"}, 1, arguments);
  return Value::boolean(holds(value));
}

/// A test of the value and one other.
template <bool (*holds)(const Value&, const Value&)>
Value with_other(Interpreter&, Arguments&& arguments) {
  auto [value, other] = bind<2>("the test", {"value", "other"}, 2, arguments);
  return Value::boolean(holds(value, other));
}

template <Comparison op>
Value compared(Interpreter&, Arguments&& arguments) {
  auto [left, right] = bind<2>("the test", {"a", "b"}, 2, arguments, Naming::refused);
  return Value::boolean(compare(op, left, right));
}

bool is_remainder(const Value& value, Integer divisor, Integer remainder) {
  return equal(apply(Operator::modulo, value, Value::integer(divisor)), Value::integer(remainder));
}

bool is_odd(const Value& value) {
  return is_remainder(value, 2, 1);
}
bool is_even(const Value& value) {
  return is_remainder(value, 2, 0);
}
bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_boolean(const Value& value) {
  return value.is(Kind::boolean);
}
bool is_false(const Value& value) {
  return value.is(Kind::boolean) && !value.as_boolean();
}
bool is_true(const Value& value) {
  return value.is(Kind::boolean) && value.as_boolean();
}
bool is_int(const Value& value) {
  return value.is(Kind::integer);
}
bool is_float(const Value& value) {
  return value.is(Kind::real);
}
bool is_string(const Value& value) {
  return value.is_string();
}
bool is_mapping(const Value& value) {
  return value.is(Kind::dict);
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_escaped(const Value& value) {
  return value.is_safe();
}
bool is_lower_case(const Value& value) {
  return has_case(str(value), false);
}
bool is_upper_case(const Value& value) {
  return has_case(str(value), true);
}

bool is_a_sequence(const Value& value) {
  if (value.is(Kind::object)) return value.as_object().has_items();
  return value.is_string() || value.is_sequence() || value.is(Kind::dict) || value.is_undefined();
}

bool is_callable(const Value& value) {
  return value.is_undefined() || (value.is(Kind::object) && value.as_object().callable());
}

bool is_filter(const Value& value) {
  hash_of(value);  // as Python, which looks it up in a dict
  return value.is_string() && find_filter(value.text()) != nullptr;
}

bool is_test(const Value& value) {
  hash_of(value);
  return value.is_string() && find_test(value.text()) != nullptr;
}

bool is_divisible(const Value& value, const Value& other) {
  return equal(apply(Operator::modulo, value, other), Value::integer(0));
}

bool is_same(const Value& value, const Value& other) {
  return value.same_as(other);
}
bool is_in(const Value& value, const Value& sequence) {
  return contains(sequence, value);
}

Value divisible_by(Interpreter&, Arguments&& arguments) {
  auto [value, number] = bind<2>("divisibleby", {"value", "num"}, 2, arguments);
  return Value::boolean(is_divisible(value, number));
}

Value in(Interpreter&, Arguments&& arguments) {
  auto [value, sequence] = bind<2>("in", {"value", "seq"}, 2, arguments);
  return Value::boolean(is_in(value, sequence));
}

constexpr NamedFunction all[] = {{"!=", compared<Comparison::not_equal>},
                                 {"<", compared<Comparison::less>},
                                 {"<=", compared<Comparison::less_equal>},
                                 {"==", compared<Comparison::equal>},
                                 {">", compared<Comparison::greater>},
                                 {">=", compared<Comparison::greater_equal>},
                                 {"boolean", plain<is_boolean>},
                                 {"callable", plain<is_callable>},
                                 {"defined", plain<is_defined>},
                                 {"divisibleby", divisible_by},
                                 {"eq", compared<Comparison::equal>},
                                 {"equalto", compared<Comparison::equal>},
                                 {"escaped", plain<is_escaped>},
                                 {"even", plain<is_even>},
                                 {"false", plain<is_false>},
                                 {"filter", plain<is_filter>},
                                 {"float", plain<is_float>},
                                 {"ge", compared<Comparison::greater_equal>},
                                 {"greaterthan", compared<Comparison::greater>},
                                 {"gt", compared<Comparison::greater>},
                                 {"in", in},
                                 {"integer", plain<is_int>},
                                 {"iterable", plain<is_iterable>},
                                 {"le", compared<Comparison::less_equal>},
                                 {"lessthan", compared<Comparison::less>},
                                 {"lower", plain<is_lower_case>},
                                 {"lt", compared<Comparison::less>},
                                 {"mapping", plain<is_mapping>},
                                 {"ne", compared<Comparison::not_equal>},
                                 {"none", plain<is_none>},
                                 {"number", plain<is_number>},
                                 {"odd", plain<is_odd>},
                                 {"sameas", with_other<is_same>},
                                 {"sequence", plain<is_a_sequence>},
                                 {"string", plain<is_string>},
                                 {"test", plain<is_test>},
                                 {"true", plain<is_true>},
                                 {"undefined", plain<is_undefined>},
                                 {"upper", plain<is_upper_case>}};

}  // namespace

std::span<const NamedFunction> tests() {
  return all;
}

}  // namespace moetier::jinja
