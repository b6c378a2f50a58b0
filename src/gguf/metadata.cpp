// GgufFile's getters and overrides.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "gguf/cursor.h"
#include "gguf/impl.h"

namespace moetier {
namespace {

/// "u32", or "array of string".
std::string kind_of(const GgufValue& value) {
  if (const auto* array = std::get_if<std::shared_ptr<const GgufArray>>(&value)) {
    return fmt::format("array of {}", gguf_type_name((*array)->element_type));
  }
  return std::string(gguf_type_name(gguf_type(value)));
}

[[noreturn]] void wrong_kind(const GgufFile& file, std::string_view key, const GgufValue& value,
                             std::string_view wanted) {
  fail("{}: key {} is {} {}, and {} is wanted", file.path(), quote(key),
       gguf_type(value) == GgufType::array ? "an" : "of type", kind_of(value), wanted);
}

[[noreturn]] void missing(const GgufFile& file, std::string_view key) {
  fail("{}: key {} is missing, and the model cannot be loaded without it", file.path(), quote(key));
}

/// Elements of an array, or one scalar, as T; `convert(element, T&)` says whether it could.
template <typename T, typename Convert>
std::optional<std::vector<T>> list_of(const GgufValue& value, Convert convert) {
  std::vector<T> out;
  bool good = true;
  const auto take = [&](const auto& element) {
    T converted{};
    good = good && convert(element, converted);
    out.push_back(converted);
  };
  if (const auto* array = std::get_if<std::shared_ptr<const GgufArray>>(&value)) {
    std::visit(
        [&](const auto& elements) {
          using Element = typename std::decay_t<decltype(elements)>::value_type;
          if constexpr (std::is_arithmetic_v<Element>) {
            out.reserve(elements.size());
            for (const Element element : elements) take(element);
          } else {
            good = elements.empty();
          }
        },
        (*array)->elements);
  } else {
    std::visit(
        [&](const auto& scalar) {
          if constexpr (std::is_arithmetic_v<std::decay_t<decltype(scalar)>>) {
            take(scalar);
          } else {
            good = false;
          }
        },
        value);
  }
  if (!good) return std::nullopt;
  return out;
}

template <typename T>
bool parse_number(std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

/// TYPE and VALUE of an override; false if they do not go together.
bool override_value(std::string_view type, std::string_view text, GgufValue& out) {
  if (type == "str") {
    out = std::string(text);
    return true;
  }
  if (type == "bool") {
    if (text != "true" && text != "false") return false;
    out = text == "true";
    return true;
  }
  if (type == "int") {
    int64_t number = 0;
    if (!parse_number(text, number)) return false;
    out = number;
    return true;
  }
  double number = 0;
  if (type != "float" || !parse_number(text, number) || !std::isfinite(number)) return false;
  out = number;
  return true;
}

}  // namespace

const GgufValue* GgufFile::Impl::own(std::string_view key) const {
  const auto key_of = [&](uint32_t i) -> std::string_view { return metadata[i].first; };
  const auto at = std::ranges::lower_bound(metadata_order, key, {}, key_of);
  return at != metadata_order.end() && key_of(*at) == key ? &metadata[*at].second : nullptr;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  if (const auto found = impl_->overrides.find(key); found != impl_->overrides.end()) return &found->second;
  return impl_->own(key);
}

std::optional<int64_t> GgufFile::own_int(std::string_view key) const {
  const GgufValue* value = impl_->own(key);
  return value == nullptr ? std::nullopt : integer_of(*value);
}

std::optional<int64_t> GgufFile::get_int(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto number = integer_of(*value);
  if (!number) {
    if (const auto* wide = std::get_if<uint64_t>(value))
      fail("{}: key {} is {}, which is too large", path(), quote(key), *wide);
    wrong_kind(*this, key, *value, "an integer");
  }
  return number;
}

std::optional<double> GgufFile::get_float(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  double number = 0;
  if (const auto* single = std::get_if<float>(value)) {
    number = static_cast<double>(*single);
  } else if (const auto* wide = std::get_if<double>(value)) {
    number = *wide;
  } else if (const auto integer = integer_of(*value)) {
    number = static_cast<double>(*integer);
  } else {
    wrong_kind(*this, key, *value, "a number");
  }
  if (!std::isfinite(number)) fail("{}: key {} is {}, and a finite number is wanted", path(), quote(key), number);
  return number;
}

std::optional<bool> GgufFile::get_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool* flag = std::get_if<bool>(value);
  if (flag == nullptr) wrong_kind(*this, key, *value, "a bool");
  return *flag;
}

std::optional<std::string> GgufFile::get_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto* text = std::get_if<std::string>(value);
  if (text == nullptr) wrong_kind(*this, key, *value, "a string");
  return *text;
}

std::optional<std::vector<int64_t>> GgufFile::get_ints(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  auto list = list_of<int64_t>(*value, [](auto element, int64_t& out) {
    using T = decltype(element);
    if constexpr (std::is_same_v<T, bool>) {
      out = element ? 1 : 0;
      return true;
    } else if constexpr (std::is_integral_v<T>) {
      out = static_cast<int64_t>(element);
      return std::in_range<int64_t>(element);
    } else {
      return false;
    }
  });
  if (!list) wrong_kind(*this, key, *value, "integers (of 64 bits at most)");
  return list;
}

std::optional<std::vector<float>> GgufFile::get_floats(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  auto list = list_of<float>(*value, [](auto element, float& out) {
    out = static_cast<float>(element);
    return !std::is_same_v<decltype(element), bool>;
  });
  if (!list) wrong_kind(*this, key, *value, "numbers");
  return list;
}

const std::vector<std::string>* GgufFile::get_strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  const auto* array = std::get_if<std::shared_ptr<const GgufArray>>(value);
  const auto* strings = array == nullptr ? nullptr : std::get_if<std::vector<std::string>>(&(*array)->elements);
  if (strings == nullptr) wrong_kind(*this, key, *value, "an array of strings");
  return strings;
}

int64_t GgufFile::need_int(std::string_view key) const {
  const auto value = get_int(key);
  if (!value) missing(*this, key);
  return *value;
}

double GgufFile::need_float(std::string_view key) const {
  const auto value = get_float(key);
  if (!value) missing(*this, key);
  return *value;
}

std::string GgufFile::need_string(std::string_view key) const {
  auto value = get_string(key);
  if (!value) missing(*this, key);
  return *std::move(value);
}

void GgufFile::override_metadata(std::string_view spec) {
  const size_t equals = spec.find('=');
  const size_t colon = equals == std::string_view::npos ? equals : spec.find(':', equals);
  GgufValue value;
  if (colon == std::string_view::npos || equals == 0 ||
      !override_value(spec.substr(equals + 1, colon - equals - 1), spec.substr(colon + 1), value)) {
    usage_error("metadata override {} is not KEY=TYPE:VALUE with TYPE int, float, bool or str and a VALUE of that type",
                quote(spec));
  }
  const std::string_view key = spec.substr(0, equals);
  if (find(key) == nullptr) {
    log::warn("{} has no key {}; the override counts only if the model asks for that key", path(), quote(key));
  }
  impl_->overrides.insert_or_assign(std::string(key), std::move(value));
}

}  // namespace moetier
