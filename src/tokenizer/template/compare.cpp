#include <algorithm>
#include <cmath>
#include <numeric>

#include "tokenizer/template/operators.h"
#include "tokenizer/template/unicode.h"

namespace moetier::jinja {
namespace {

constexpr std::string_view symbols[] = {"==", "!=", "<", "<=", ">", ">="};

/// <0, 0, >0; empty for NaN.
std::optional<int> compare_numbers(const Value& left, const Value& right) {
  if (left.is_integer() && right.is_integer()) {
    const Integer a = left.as_integer(), b = right.as_integer();
    return a < b ? -1 : a > b ? 1 : 0;
  }
  if (left.is_integer()) return compare_exactly(left.as_integer(), right.as_real());
  if (right.is_integer()) {
    const auto reversed = compare_exactly(right.as_integer(), left.as_real());
    return reversed ? std::optional<int>(-*reversed) : std::nullopt;
  }
  const double a = left.as_real(), b = right.as_real();
  if (std::isnan(a) || std::isnan(b)) return std::nullopt;
  return a < b ? -1 : a > b ? 1 : 0;
}

bool holds(Comparison op, int sign) {
  switch (op) {
    case Comparison::less:
      return sign < 0;
    case Comparison::less_equal:
      return sign <= 0;
    case Comparison::greater:
      return sign > 0;
    default:
      return sign >= 0;
  }
}

bool equal_dicts(const DictData& left, const DictData& right) {
  if (left.size() != right.size()) return false;
  for (const auto& [key, value] : left.entries()) {
    spend(1);
    const Value* other = right.find(key);
    if (other == nullptr || !(value.same_as(*other) || equal(value, *other))) return false;
  }
  return true;
}

bool equal_items(const std::vector<Value>& left, const std::vector<Value>& right) {
  if (left.size() != right.size()) return false;
  for (size_t i = 0; i < left.size(); ++i) {
    spend(1);
    if (!left[i].same_as(right[i]) && !equal(left[i], right[i])) return false;
  }
  return true;
}

bool ordered_items(Comparison op, const std::vector<Value>& left, const std::vector<Value>& right) {
  const size_t common = std::min(left.size(), right.size());
  for (size_t i = 0; i < common; ++i) {
    spend(1);
    if (!left[i].same_as(right[i]) && !equal(left[i], right[i])) return ordered(op, left[i], right[i]);
  }
  return holds(op, left.size() < right.size() ? -1 : left.size() > right.size() ? 1 : 0);
}

bool contains_in_view(const DictView& view, const Value& item) {
  const DictData& dict = view.dict().dict_data();
  if (view.part() == DictView::Part::keys) return dict.find(item) != nullptr;
  if (view.part() == DictView::Part::items) {
    if (!item.is(Kind::tuple) || item.items().size() != 2) return false;
    const Value* value = dict.find(item.items()[0]);
    return value != nullptr && equal(*value, item.items()[1]);
  }
  return std::any_of(dict.entries().begin(), dict.entries().end(), [&](const auto& e) {
    spend(1);
    return equal(e.second, item);
  });
}

}  // namespace

std::optional<int> compare_exactly(Integer left, double right) {
  if (std::isnan(right)) return std::nullopt;
  if (right >= 0x1p127) return -1;
  if (right < -0x1p127) return 1;
  const double whole = std::trunc(right);
  const auto integer = static_cast<Integer>(whole);
  if (left != integer) return left < integer ? -1 : 1;
  return right > whole ? -1 : right < whole ? 1 : 0;
}

bool equal(const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) return compare_numbers(left, right) == 0;
  if (left.kind() != right.kind()) return false;
  const Level level;
  spend(1);
  switch (left.kind()) {
    case Kind::string:
      if (left.text().size() != right.text().size()) return false;
      spend_on_text(left.text().size());
      return left.text() == right.text();
    case Kind::list:
    case Kind::tuple:
      return left.address() == right.address() || equal_items(left.items(), right.items());
    case Kind::dict:
      return left.address() == right.address() || equal_dicts(left.dict_data(), right.dict_data());
    case Kind::object:
      return left.as_object().equals(right.as_object());
    default:
      return true;  // None, Undefined
  }
}

bool ordered(Comparison op, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    const auto sign = compare_numbers(left, right);
    return sign && holds(op, *sign);
  }
  if (left.is_undefined()) raise_undefined(left);
  if (right.is_undefined()) raise_undefined(right);
  const Level level;
  spend(1);
  if (left.kind() == right.kind()) {
    if (left.is_string()) spend_on_text(std::min(left.text().size(), right.text().size()));
    // UTF-8 keeps the order of code points
    if (left.is_string()) return holds(op, left.text().compare(right.text()));
    if (left.is_sequence()) return ordered_items(op, left.items(), right.items());
  }
  raise(FaultKind::type, "'{}' not supported between instances of '{}' and '{}'", symbols[static_cast<size_t>(op)],
        type_name(left), type_name(right));
}

bool compare(Comparison op, const Value& left, const Value& right) {
  switch (op) {
    case Comparison::equal:
      return equal(left, right);
    case Comparison::not_equal:
      return !equal(left, right);
    case Comparison::in:
      return contains(right, left);
    case Comparison::not_in:
      return !contains(right, left);
    default:
      return ordered(op, left, right);
  }
}

bool contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::string:
      if (!item.is_string()) {
        raise(FaultKind::type, "'in <string>' requires string as left operand, not {}", type_name(item));
      }
      return find_text(container.text(), item.text()) != std::string_view::npos;
    case Kind::list:
    case Kind::tuple: {
      const auto& items = container.items();
      return std::any_of(items.begin(), items.end(), [&](const Value& v) {
        spend(1);
        return v.same_as(item) || equal(v, item);
      });
    }
    case Kind::dict:
      return container.dict_data().find(item) != nullptr;
    default:
      break;
  }
  if (const auto* view = container.object_as<DictView>()) return contains_in_view(*view, item);
  if (const auto* range = container.object_as<Range>(); range != nullptr && item.is_integer()) {
    return range->contains(item.as_integer());
  }
  if (!is_iterable(container)) raise(FaultKind::type, "argument of type '{}' is not iterable", type_name(container));
  const auto iterator = iterate(container);
  for (Value next; iterator->next(next);) {
    if (next.same_as(item) || equal(next, item)) return true;
  }
  return false;
}

void sort_by_keys(std::vector<Value>& items, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(items.size()), merged(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto goes_before = [&](size_t a, size_t b) {
    spend(1);
    return reverse ? ordered(Comparison::less, keys[b], keys[a]) : ordered(Comparison::less, keys[a], keys[b]);
  };
  // A merge sort: stable, and safe with keys that have no consistent order (NaN).
  for (size_t width = 1; width < order.size(); width *= 2) {
    for (size_t begin = 0; begin < order.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, order.size()), end = std::min(begin + 2 * width, order.size());
      size_t left = begin, right = middle;
      for (size_t at = begin; at < end; ++at) {
        const bool take_right = left == middle || (right < end && goes_before(order[right], order[left]));
        merged[at] = take_right ? order[right++] : order[left++];
      }
    }
    order.swap(merged);
  }
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (const size_t i : order) sorted.push_back(std::move(items[i]));
  items = std::move(sorted);
}

}  // namespace moetier::jinja
