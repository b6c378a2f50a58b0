#include "tokenizer/template/filters.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "tokenizer/template/access.h"
#include "tokenizer/template/number_text.h"
#include "tokenizer/template/string_functions.h"
#include "tokenizer/template/unicode.h"

namespace moetier::jinja {
namespace {

using Table = std::unordered_map<std::string_view, NativeFunction>;

NativeFunction find_in(const Table& table, std::string_view name) {
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace

NativeFunction find_filter(std::string_view name) {
  static const Table table = [] {
    Table all;
    for (const auto part : {text_filters(), html_filters(), number_filters(), sequence_filters(), lazy_filters()}) {
      for (const auto& [key, function] : part) all.emplace(key, function);
    }
    return all;
  }();
  return find_in(table, name);
}

NativeFunction find_test(std::string_view name) {
  static const Table table = [] {
    Table all;
    for (const auto& [key, function] : tests()) all.emplace(key, function);
    return all;
  }();
  return find_in(table, name);
}

AttributeGetter::AttributeGetter(const Value& attribute, Value otherwise) : otherwise_(std::move(otherwise)) {
  if (attribute.is_missing() || attribute.is_none()) return;
  if (!attribute.is_string()) {
    parts_.push_back(attribute);
    return;
  }
  for (const std::string_view part : split(attribute.text(), ".", -1)) {
    bool digits = !part.empty();
    for (size_t at = 0; digits && at < part.size();) digits = is_digit(next_code_point(part, at));
    const auto number = digits ? parse_integer(part, 10) : std::nullopt;
    parts_.push_back(number ? Value::integer(*number) : Value::string(std::string(part)));
  }
}

Value AttributeGetter::operator()(const Value& item) const {
  Value value = item;
  for (const Value& part : parts_) {
    value = get_item(value, part);
    if (value.is_undefined() && !otherwise_.is_missing() && !otherwise_.is_none()) value = otherwise_;
  }
  return value;
}

Value ignoring_case(const Value& value) {
  if (!value.is_string()) return value;
  spend_on_characters(value.text().size());
  return Value::string(to_lower(value.text()));
}

}  // namespace moetier::jinja
