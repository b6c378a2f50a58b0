#include <cmath>

#include "tokenizer/template/arguments.h"
#include "tokenizer/template/filters.h"
#include "tokenizer/template/number_text.h"
#include "tokenizer/template/operators.h"
#include "tokenizer/template/python_format.h"
#include "tokenizer/template/text.h"

namespace moetier::jinja {
namespace {

double to_real(const Value& number) {
  return number.is(Kind::real) ? number.as_real() : real_from_integer(number.as_integer());
}

/// float(value); empty where Python raises TypeError or ValueError.
std::optional<double> as_real(const Value& value) {
  if (value.is_undefined()) raise_undefined(value);
  if (value.is_string()) return parse_real(value.text());
  if (value.is_number()) return to_real(value);
  return std::nullopt;
}

/// int(value, base); empty where Python raises TypeError or ValueError.
std::optional<Integer> as_integer(const Value& value, const Value& base) {
  if (value.is_undefined()) raise_undefined(value);
  if (value.is_string()) {
    if (!base.is_missing() && !base.is_integer()) return std::nullopt;
    return parse_integer(value.text(), base.is_missing() ? 10 : base.as_integer());
  }
  if (value.is_integer()) return value.as_integer();
  if (value.is(Kind::real) && !std::isnan(value.as_real())) return integer_from_real(value.as_real());
  return std::nullopt;
}

Value absolute(Interpreter&, Arguments&& arguments) {
  auto [value] = bind<1>("abs", {"x"}, 1, arguments, Naming::refused);
  if (value.is(Kind::real)) return Value::real(std::abs(value.as_real()));
  if (!value.is_integer()) raise(FaultKind::type, "bad operand type for abs(): '{}'", type_name(value));
  return value.as_integer() < 0 ? negated(value) : plus(value);
}

Value to_integer(Interpreter&, Arguments&& arguments) {
  auto [value, otherwise, base] = bind<3>("int", {"value", "default", "base"}, 1, arguments);
  if (const auto integer = as_integer(value, base)) return Value::integer(*integer);
  const auto real = as_real(value);
  if (real && !std::isnan(*real)) return Value::integer(integer_from_real(*real));
  return given_or(otherwise, Value::integer(0));
}

Value to_float(Interpreter&, Arguments&& arguments) {
  auto [value, otherwise] = bind<2>("float", {"value", "default"}, 1, arguments);
  if (const auto real = as_real(value)) return Value::real(*real);
  return given_or(otherwise, Value::real(0));
}

Value rounded_integer(Integer value, Integer digits) {
  if (digits >= 0) return Value::integer(value);
  if (digits < -38) return Value::integer(0);
  Integer unit = 1;
  for (Integer i = 0; i < -digits; ++i) unit = checked_multiply(unit, 10);
  Integer rest = value % unit;
  if (rest < 0) rest += unit;
  Integer low = checked_subtract(value, rest);
  const bool up = rest > unit - rest || (rest == unit - rest && (low / unit) % 2 != 0);
  return Value::integer(up ? checked_add(low, unit) : low);
}

Value rounded_commonly(const Value& value, const Value& precision) {
  if (value.is_undefined()) raise(FaultKind::type, "type Undefined doesn't define __round__ method");
  if (!value.is_number()) raise(FaultKind::type, "type {} doesn't define __round__ method", type_name(value));
  if (precision.is_none()) {
    if (value.is_integer()) return plus(value);
    return Value::integer(integer_from_real(rounded(value.as_real(), 0)));
  }
  const Integer digits =
      precision.is_missing() ? 0 : as_index(precision, "the precision cannot be interpreted as an integer");
  if (value.is_integer()) return rounded_integer(value.as_integer(), digits);
  const double result = rounded(value.as_real(), digits);
  if (std::isinf(result) && std::isfinite(value.as_real())) {
    raise(FaultKind::overflow, "rounded value too large to represent");
  }
  return Value::real(result);
}

Value round(Interpreter&, Arguments&& arguments) {
  auto [value, precision, method] = bind<3>("round", {"value", "precision", "method"}, 1, arguments);
  const std::string how = method.is_missing() ? "common" : str(method);
  if (how == "common") return rounded_commonly(value, precision);
  if (how != "ceil" && how != "floor") raise(FaultKind::argument, "method must be common, ceil or floor");
  const Value unit = apply(Operator::power, Value::integer(10), given_or(precision, Value::integer(0)));
  Value scaled = apply(Operator::multiply, value, unit);
  if (!scaled.is_number()) raise(FaultKind::type, "must be real number, not {}", type_name(scaled));
  if (scaled.is(Kind::real)) {
    const double real = scaled.as_real();
    scaled = Value::integer(integer_from_real(how == "ceil" ? std::ceil(real) : std::floor(real)));
  }
  return apply(Operator::divide, scaled, unit);
}

Value file_size(Interpreter&, Arguments&& arguments) {
  auto [value, binary] = bind<2>("filesizeformat", {"value", "binary"}, 1, arguments);
  const auto bytes = as_real(value);
  if (!bytes) raise(FaultKind::value, "could not convert {} to float", repr(value));
  const bool in_binary = !binary.is_missing() && truth(binary);
  const double base = in_binary ? 1024 : 1000;
  if (*bytes == 1) return Value::string("1 Byte");
  if (*bytes < base) return Value::string(integer_text(integer_from_real(*bytes)) + " Bytes");
  const std::string_view letters = in_binary ? "KMGTPEZY" : "kMGTPEZY";
  double unit = base;
  size_t prefix = 0;
  for (; prefix < letters.size(); ++prefix) {
    unit *= base;
    if (*bytes < unit) break;
  }
  prefix = std::min(prefix, letters.size() - 1);
  return Value::string(fmt::format("{} {}{}", real_formatted(base * *bytes / unit, 'f', 1, false), letters[prefix],
                                   in_binary ? "iB" : "B"));
}

constexpr NamedFunction filters[] = {
    {"abs", absolute}, {"filesizeformat", file_size}, {"float", to_float}, {"int", to_integer}, {"round", round}};

}  // namespace

std::span<const NamedFunction> number_filters() {
  return filters;
}

}  // namespace moetier::jinja
