#include <algorithm>
#include <cmath>
#include <limits>

#include "tokenizer/template/operators.h"
#include "tokenizer/template/python_format.h"
#include "tokenizer/template/string_functions.h"
#include "tokenizer/template/text.h"

namespace moetier::jinja {
namespace {

constexpr std::string_view symbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

[[noreturn]] void too_big() {
  raise(FaultKind::overflow, "an integer does not fit 128 bits, the most this interpreter computes with");
}

[[noreturn]] void unsupported(Operator op, const Value& left, const Value& right) {
  raise(FaultKind::type, "unsupported operand type(s) for {}: '{}' and '{}'", symbols[static_cast<size_t>(op)],
        type_name(left), type_name(right));
}

double to_real(const Value& value) {
  return value.is(Kind::real) ? value.as_real() : real_from_integer(value.as_integer());
}

Integer floor_quotient(Integer a, Integer b) {
  if (b == -1) return checked_subtract(0, a);
  Integer quotient = a / b;
  if (a % b != 0 && (a < 0) != (b < 0)) --quotient;
  return quotient;
}

Value power_of_reals(double base, double exponent) {
  if (base == 0 && exponent < 0) raise(FaultKind::zero_division, "0.0 cannot be raised to a negative power");
  if (base < 0 && std::isfinite(base) && std::isfinite(exponent) && std::trunc(exponent) != exponent) {
    raise(FaultKind::unsupported, "a negative number to a fractional power is complex, which is not supported");
  }
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent)) {
    raise(FaultKind::overflow, "(34, 'Numerical result out of range')");
  }
  return Value::real(result);
}

Value power_of_integers(Integer base, Integer exponent) {
  if (exponent < 0) return power_of_reals(real_from_integer(base), real_from_integer(exponent));
  if (base == 0 || base == 1) return Value::integer(exponent == 0 ? 1 : base);
  if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
  Integer result = 1;
  for (Integer i = 0; i < exponent; ++i) result = checked_multiply(result, base);  // overflows after 126 rounds at most
  return Value::integer(result);
}

Value integer_operation(Operator op, Integer a, Integer b) {
  switch (op) {
    case Operator::add:
      return Value::integer(checked_add(a, b));
    case Operator::subtract:
      return Value::integer(checked_subtract(a, b));
    case Operator::multiply:
      return Value::integer(checked_multiply(a, b));
    case Operator::power:
      return power_of_integers(a, b);
    default:
      break;
  }
  if (b == 0) {
    raise(FaultKind::zero_division, "{}",
          op == Operator::divide   ? "division by zero"
          : op == Operator::modulo ? "integer modulo by zero"
                                   : "integer division or modulo by zero");
  }
  if (op == Operator::divide) {
    return Value::real(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
  }
  const Integer quotient = floor_quotient(a, b);
  return Value::integer(op == Operator::floor_divide ? quotient : a - quotient * b);
}

/// Python's divmod of floats: the remainder has the sign of the divisor.
void divide_reals(double a, double b, double& quotient, double& remainder) {
  remainder = std::fmod(a, b);
  double div = (a - remainder) / b;
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) {
      remainder += b;
      div -= 1;
    }
  } else {
    remainder = std::copysign(0.0, b);
  }
  if (div != 0) {
    quotient = std::floor(div);
    if (div - quotient > 0.5) quotient += 1;
  } else {
    quotient = std::copysign(0.0, a / b);
  }
}

Value real_operation(Operator op, double a, double b) {
  switch (op) {
    case Operator::add:
      return Value::real(a + b);
    case Operator::subtract:
      return Value::real(a - b);
    case Operator::multiply:
      return Value::real(a * b);
    case Operator::power:
      return power_of_reals(a, b);
    default:
      break;
  }
  if (b == 0) {
    raise(FaultKind::zero_division, "{}",
          op == Operator::divide         ? "float division by zero"
          : op == Operator::floor_divide ? "float floor division by zero"
                                         : "float modulo");
  }
  if (op == Operator::divide) return Value::real(a / b);
  double quotient = 0, remainder = 0;
  divide_reals(a, b, quotient, remainder);
  return Value::real(op == Operator::floor_divide ? quotient : remainder);
}

Value joined_text(const Value& left, const Value& right) {
  if (left.is_safe() || right.is_safe()) {  // Markup escapes what is added to it
    const Value a = escaped(left), b = escaped(right);
    return Value::string(std::string(a.text()) + std::string(b.text()), true);
  }
  check_text_size(left.text().size() + right.text().size());
  std::string out;
  out.reserve(left.text().size() + right.text().size());
  out += left.text();
  out += right.text();
  return Value::string(std::move(out));
}

Value added(const Value& left, const Value& right) {
  if (left.is_string()) {
    if (right.is_string()) return joined_text(left, right);
    raise(FaultKind::type, "can only concatenate str (not \"{}\") to str", type_name(right));
  }
  if (left.is_sequence()) {
    if (right.kind() != left.kind()) {
      const std::string_view name = type_name(left);
      raise(FaultKind::type, "can only concatenate {} (not \"{}\") to {}", name, type_name(right), name);
    }
    std::vector<Value> items = left.items();
    items.insert(items.end(), right.items().begin(), right.items().end());
    return left.is(Kind::list) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
  }
  unsupported(Operator::add, left, right);
}

Value repeated(const Value& value, Integer count) {
  const size_t size = value.is_string() ? value.text().size() : value.items().size();
  if (count < 0 || size == 0) count = 0;
  if (count > Integer{1} << 40) raise(FaultKind::limit, "repeating a value so often would be too long");
  const auto times = static_cast<size_t>(count);
  if (value.is_string()) return Value::string(repeated_text(value.text(), times), value.is_safe());
  constexpr size_t longest = 1 << 22;
  if (times > longest / std::max<size_t>(size, 1)) {
    raise(FaultKind::limit, "a list repeated {} times would have more than {} items", times, longest);
  }
  std::vector<Value> items;
  items.reserve(size * times);
  for (size_t i = 0; i < times; ++i) items.insert(items.end(), value.items().begin(), value.items().end());
  return value.is(Kind::list) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

Value multiplied(const Value& left, const Value& right) {
  const bool left_repeats = left.is_string() || left.is_sequence();
  const bool right_repeats = right.is_string() || right.is_sequence();
  if (left_repeats && right.is_integer()) return repeated(left, right.as_integer());
  if (right_repeats && left.is_integer()) return repeated(right, left.as_integer());
  if (left_repeats || right_repeats) {
    raise(FaultKind::type, "can't multiply sequence by non-int of type '{}'", type_name(left_repeats ? right : left));
  }
  unsupported(Operator::multiply, left, right);
}

}  // namespace

Integer checked_add(Integer a, Integer b) {
  Integer result = 0;
  if (__builtin_add_overflow(a, b, &result)) too_big();
  return result;
}

Integer checked_subtract(Integer a, Integer b) {
  Integer result = 0;
  if (__builtin_sub_overflow(a, b, &result)) too_big();
  return result;
}

Integer checked_multiply(Integer a, Integer b) {
  Integer result = 0;
  if (__builtin_mul_overflow(a, b, &result)) too_big();
  return result;
}

Integer integer_from_real(double value) {
  if (std::isnan(value)) raise(FaultKind::value, "cannot convert float NaN to integer");
  if (std::isinf(value)) raise(FaultKind::overflow, "cannot convert float infinity to integer");
  if (std::abs(value) >= 0x1p127) too_big();
  return static_cast<Integer>(value);
}

double real_from_integer(Integer value) {
  return static_cast<double>(value);
}

Value apply(Operator op, const Value& left, const Value& right) {
  if (left.is_integer() && right.is_integer()) return integer_operation(op, left.as_integer(), right.as_integer());
  if (left.is_number() && right.is_number()) return real_operation(op, to_real(left), to_real(right));
  if (op == Operator::modulo && left.is_string()) return percent_formatted(left, right);
  if (left.is_undefined()) raise_undefined(left);
  if (right.is_undefined()) raise_undefined(right);
  if (op == Operator::add) return added(left, right);
  if (op == Operator::multiply) return multiplied(left, right);
  unsupported(op, left, right);
}

Value negated(const Value& value) {
  if (value.is_integer()) return Value::integer(checked_subtract(0, value.as_integer()));
  if (value.is(Kind::real)) return Value::real(-value.as_real());
  if (value.is_undefined()) raise_undefined(value);
  raise(FaultKind::type, "bad operand type for unary -: '{}'", type_name(value));
}

Value plus(const Value& value) {
  if (value.is_integer()) return Value::integer(value.as_integer());
  if (value.is(Kind::real)) return value;
  if (value.is_undefined()) raise_undefined(value);
  raise(FaultKind::type, "bad operand type for unary +: '{}'", type_name(value));
}

}  // namespace moetier::jinja
