#include <array>

#include "tokenizer/template/arguments.h"
#include "tokenizer/template/filters.h"
#include "tokenizer/template/number_text.h"
#include "tokenizer/template/operators.h"
#include "tokenizer/template/string_functions.h"
#include "tokenizer/template/text.h"
#include "tokenizer/template/unicode.h"

namespace moetier::jinja {
namespace {

Value escape(Interpreter&, Arguments&& arguments) {
  auto [value] = bind<1>("escape", {"s"}, 1, arguments, Naming::refused);
  return escaped(value);
}

Value force_escape(Interpreter&, Arguments&& arguments) {
  auto [value] = bind<1>("forceescape", {"value"}, 1, arguments);
  return Value::string(escaped_text(str(value)), true);
}

Value safe(Interpreter&, Arguments&& arguments) {
  auto [value] = bind<1>("safe", {"value"}, 1, arguments);
  return value.is_safe() ? value : Value::string(str(value), true);
}

/// Without what stands between `begin` and the next `end`.
std::string without(std::string_view text, std::string_view begin, std::string_view end) {
  spend_on_characters(text.size());
  std::string out;
  size_t at = 0;
  while (true) {
    const size_t open = text.find(begin, at);
    const size_t close = open == std::string_view::npos ? open : text.find(end, open + begin.size());
    if (close == std::string_view::npos) return out.append(text.substr(at));
    out += text.substr(at, open - at);
    at = close + end.size();
  }
}

/// The character of "#39" or "lt"; empty if it is not known.
std::string entity(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, char32_t>, 14> named = {{{"lt", '<'},
                                                                                   {"gt", '>'},
                                                                                   {"amp", '&'},
                                                                                   {"quot", '"'},
                                                                                   {"apos", '\''},
                                                                                   {"nbsp", 0xA0},
                                                                                   {"copy", 0xA9},
                                                                                   {"laquo", 0xAB},
                                                                                   {"raquo", 0xBB},
                                                                                   {"hellip", 0x2026},
                                                                                   {"mdash", 0x2014},
                                                                                   {"ndash", 0x2013},
                                                                                   {"euro", 0x20AC},
                                                                                   {"trade", 0x2122}}};
  std::string out;
  for (const auto& [known, code] : named) {
    if (known == name) append_utf8(out, code);
  }
  if (name.size() < 2 || name.front() != '#') return out;
  const bool hexadecimal = name[1] == 'x' || name[1] == 'X';
  const std::string_view digits = name.substr(hexadecimal ? 2 : 1);
  const std::string_view allowed = hexadecimal ? "0123456789abcdefABCDEF" : "0123456789";
  if (digits.empty() || digits.size() > 8 || digits.find_first_not_of(allowed) != std::string_view::npos) return out;
  const Integer code = parse_integer(digits, hexadecimal ? 16 : 10).value_or(0);
  const bool valid = code > 0 && code < 0x110000 && !(code >= 0xD800 && code < 0xE000);
  append_utf8(out, valid ? static_cast<char32_t>(code) : char32_t{0xFFFD});
  return out;
}

std::string unescaped(std::string_view text) {
  spend_on_characters(text.size());
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t mark = text.find('&', at);
    out += text.substr(at, mark - at);
    if (mark == std::string_view::npos) break;
    spend(1);
    const size_t end = text.substr(0, mark + 12).find(';', mark);
    const std::string character = end == std::string_view::npos ? "" : entity(text.substr(mark + 1, end - mark - 1));
    out += character.empty() ? "&" : character;
    at = character.empty() ? mark + 1 : end + 1;
  }
  return out;
}

Value strip_tags(Interpreter&, Arguments&& arguments) {
  auto [value] = bind<1>("striptags", {"value"}, 1, arguments);
  const std::string text = without(without(str(value), "<!--", "-->"), "<", ">");
  std::string out;
  for (const std::string_view word : split(text, std::nullopt, -1)) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  return Value::string(unescaped(out));
}

std::string quoted_for_url(std::string_view text, bool in_query) {
  constexpr std::string_view hexadecimal = "0123456789ABCDEF";
  spend_on_characters(text.size());
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
                       byte == '_' || byte == '.' || byte == '-' || byte == '~' || (!in_query && byte == '/');
    if (plain) {
      out += c;
    } else if (in_query && byte == ' ') {
      out += '+';
    } else {
      out += '%';
      out += hexadecimal[byte >> 4];
      out += hexadecimal[byte & 15];
    }
  }
  return out;
}

Value url_encode(Interpreter&, Arguments&& arguments) {
  auto [value] = bind<1>("urlencode", {"value"}, 1, arguments);
  if (value.is_string() || !is_iterable(value)) return Value::string(quoted_for_url(str(value), false));
  const Value pairs =
      value.is(Kind::dict) ? Value::object(std::make_shared<DictView>(value, DictView::Part::items)) : value;
  std::string out;
  const auto iterator = iterate(pairs);
  for (Value pair; iterator->next(pair);) {
    const std::vector<Value> both = collect(pair);
    if (both.size() != 2) raise(FaultKind::value, "urlencode needs pairs of a key and a value");
    if (!out.empty()) out += '&';
    check_text_size(out.size());
    out += quoted_for_url(str(both[0]), true) + "=" + quoted_for_url(str(both[1]), true);
  }
  return Value::string(std::move(out));
}

Value xml_attributes(Interpreter&, Arguments&& arguments) {
  auto [value, auto_space] = bind<2>("xmlattr", {"d", "autospace"}, 1, arguments);
  if (value.is_undefined()) raise_undefined(value);
  if (!value.is(Kind::dict)) raise(FaultKind::attribute, "'{}' object has no attribute 'items'", type_name(value));
  std::string out;
  for (const auto& [key, item] : value.dict_data().entries()) {
    if (item.is_none() || item.is_undefined()) continue;
    if (!key.is_string()) raise(FaultKind::type, "expected string or bytes-like object, got '{}'", type_name(key));
    if (key.text().find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos) {
      raise(FaultKind::value, "Invalid character in attribute name: {}", repr(key));
    }
    if (!out.empty()) out += ' ';
    out += std::string(escaped(key).text()) + "=\"" + std::string(escaped(item).text()) + "\"";
    check_text_size(out.size());
  }
  if (!out.empty() && (auto_space.is_missing() || truth(auto_space))) out.insert(0, 1, ' ');
  return Value::string(std::move(out));
}

Value refuse_urlize(Interpreter&, Arguments&&) {
  raise(FaultKind::unsupported, "the filter urlize is not supported in a chat template, which makes no HTML");
}

constexpr NamedFunction filters[] = {{"e", escape},
                                     {"escape", escape},
                                     {"forceescape", force_escape},
                                     {"safe", safe},
                                     {"striptags", strip_tags},
                                     {"urlencode", url_encode},
                                     {"urlize", refuse_urlize},
                                     {"xmlattr", xml_attributes}};

}  // namespace

std::span<const NamedFunction> html_filters() {
  return filters;
}

}  // namespace moetier::jinja
