// Python's operators and built-in protocols on values.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/template/object.h"
#include "tokenizer/template/value.h"

namespace moetier::jinja {

enum class Operator { add, subtract, multiply, divide, floor_divide, modulo, power };
enum class Comparison { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };

Value apply(Operator op, const Value& left, const Value& right);
Value negated(const Value& value);
Value plus(const Value& value);

bool equal(const Value& left, const Value& right);
/// < <= > >=; a `type` fault where Python has no order.
bool ordered(Comparison op, const Value& left, const Value& right);
bool compare(Comparison op, const Value& left, const Value& right);
bool contains(const Value& container, const Value& item);
/// Compares an integer with a real exactly: negative, zero or positive; empty if the real is NaN.
std::optional<int> compare_exactly(Integer left, double right);

bool truth(const Value& value);
/// len(value)
size_t length(const Value& value);
/// iter(value); a `type` fault if it cannot be iterated.
std::shared_ptr<Iterator> iterate(const Value& value);
bool is_iterable(const Value& value);
/// reversed(value)
std::shared_ptr<Iterator> iterate_reversed(const Value& value);
/// list(value)
std::vector<Value> collect(const Value& value);
/// sorted(): stable. `keys` decide, `items` are moved with them.
void sort_by_keys(std::vector<Value>& items, const std::vector<Value>& keys, bool reverse);

/// The value as an index (int or bool); a `type` fault otherwise.
Integer as_index(const Value& value, std::string_view what);
/// An index argument cut to what fits int64, as Python does for slices and str methods.
int64_t clamped_index(const Value& value, std::string_view what);

/// obj[start:stop:step] with missing or None for what is not given.
Value sliced(const Value& object, const Value& start, const Value& stop, const Value& step);
/// A slice's bounds for a length, as Python's slice.indices gives them.
struct SliceBounds {
  int64_t start, stop, step;
  size_t count;
};
SliceBounds slice_bounds(const Value& start, const Value& stop, const Value& step, size_t length);

/// The code points [begin, begin + count) of a string.
std::string_view substring(const Value& string, size_t begin, size_t count);

/// Raises where 128 bits do not hold the result.
Integer checked_add(Integer a, Integer b);
Integer checked_subtract(Integer a, Integer b);
Integer checked_multiply(Integer a, Integer b);
/// Truncates towards zero; faults for NaN, infinities and what does not fit.
Integer integer_from_real(double value);
double real_from_integer(Integer value);

}  // namespace moetier::jinja
