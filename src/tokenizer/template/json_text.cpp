#include "tokenizer/template/json_text.h"

#include <cmath>

#include "tokenizer/template/operators.h"
#include "tokenizer/template/string_functions.h"
#include "tokenizer/template/text.h"
#include "tokenizer/template/unicode.h"

namespace moetier::jinja {
namespace {

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value) {
    const Level level;
    spend(1);
    switch (value.kind()) {
      case Kind::none:
        out_ += "null";
        return;
      case Kind::boolean:
        out_ += value.as_boolean() ? "true" : "false";
        return;
      case Kind::integer:
        out_ += integer_text(value.as_integer());
        return;
      case Kind::real:
        out_ += real(value.as_real());
        return;
      case Kind::string:
        text(value.text());
        return;
      case Kind::list:
      case Kind::tuple:
        list(value.items());
        return;
      case Kind::dict:
        dict(value.dict_data());
        return;
      default:
        raise(FaultKind::type, "Object of type {} is not JSON serializable", type_name(value));
    }
  }
  std::string take() { return std::move(out_); }

 private:
  static std::string real(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return real_text(value);
  }

  void escape(uint32_t unit) {
    spend(1);
    out_ += fmt::format("\\u{:04x}", unit);
  }

  void text(std::string_view text) {
    spend_on_characters(text.size());
    check_text_size(out_.size() + text.size());
    out_ += '"';
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const char32_t code = next_code_point(text, at);
      switch (code) {
        case '"':
          out_ += "\\\"";
          continue;
        case '\\':
          out_ += "\\\\";
          continue;
        case '\n':
          out_ += "\\n";
          continue;
        case '\r':
          out_ += "\\r";
          continue;
        case '\t':
          out_ += "\\t";
          continue;
        case '\b':
          out_ += "\\b";
          continue;
        case '\f':
          out_ += "\\f";
          continue;
        default:
          break;
      }
      if (code < 0x20 || (style_.ascii && code > 0x7E && code < 0x10000)) {
        escape(static_cast<uint32_t>(code));
      } else if (style_.ascii && code >= 0x10000) {
        escape(0xD800 + (static_cast<uint32_t>(code - 0x10000) >> 10));
        escape(0xDC00 + (static_cast<uint32_t>(code - 0x10000) & 0x3FF));
      } else {
        out_ += text.substr(begin, at - begin);
      }
    }
    out_ += '"';
  }

  void new_line() {
    if (!style_.lines) return;
    out_ += '\n';
    out_ += repeated_text(style_.indent, depth_);
    check_text_size(out_.size());
  }

  template <typename Items, typename Write>
  void block(char open, char close, const Items& items, Write write_item) {
    out_ += open;
    if (items.empty()) {
      out_ += close;
      return;
    }
    ++depth_;
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += style_.item_separator;
      first = false;
      new_line();
      write_item(item);
      check_text_size(out_.size());
    }
    --depth_;
    new_line();
    out_ += close;
  }

  void list(const std::vector<Value>& items) {
    block('[', ']', items, [&](const Value& item) { write(item); });
  }

  void dict(const DictData& dict) {
    if (!style_.sorted) return entries(dict.entries());
    std::vector<Value> keys, order;
    for (size_t i = 0; i < dict.size(); ++i) {
      keys.push_back(dict.entries()[i].first);
      order.push_back(Value::integer(static_cast<Integer>(i)));
    }
    sort_by_keys(order, keys, false);
    std::vector<std::pair<Value, Value>> sorted;
    sorted.reserve(order.size());
    for (const Value& i : order) sorted.push_back(dict.entries()[static_cast<size_t>(i.as_integer())]);
    entries(sorted);
  }

  void entries(const std::vector<std::pair<Value, Value>>& entries) {
    block('{', '}', entries, [&](const std::pair<Value, Value>& entry) {
      text(key_text(entry.first));
      out_ += style_.key_separator;
      write(entry.second);
    });
  }

  static std::string key_text(const Value& key) {
    switch (key.kind()) {
      case Kind::string:
        return std::string(key.text());
      case Kind::none:
        return "null";
      case Kind::boolean:
        return key.as_boolean() ? "true" : "false";
      case Kind::integer:
        return integer_text(key.as_integer());
      case Kind::real:
        return real(key.as_real());
      default:
        raise(FaultKind::type, "keys must be str, int, float, bool or None, not {}", type_name(key));
    }
  }

  const JsonStyle& style_;
  std::string out_;
  size_t depth_ = 0;
};

}  // namespace

std::string json_text(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value);
  return writer.take();
}

}  // namespace moetier::jinja
