#include "tokenizer/template/value.h"

#include <array>
#include <cmath>
#include <functional>

#include "tokenizer/template/object.h"
#include "tokenizer/template/operators.h"
#include "tokenizer/template/unicode.h"

namespace moetier::jinja {
namespace {

constexpr size_t index_from = 8;  // smaller dicts are searched one by one

thread_local std::vector<std::shared_ptr<Heap>>* freeing = nullptr;

}  // namespace

Value Value::boolean(bool value) {
  Value v(Kind::boolean);
  v.integer_ = value ? 1 : 0;
  return v;
}

Value Value::integer(Integer value) {
  Value v(Kind::integer);
  v.integer_ = value;
  return v;
}

Value Value::real(double value) {
  Value v(Kind::real);
  v.real_ = value;
  return v;
}

Value Value::string(std::string text, bool safe) {
  check_text_size(text.size());
  return {Kind::string, std::make_shared<StringData>(std::move(text), safe)};
}

Value Value::character(std::string_view text) {
  static const std::array<Value, 128> ascii = [] {
    const Budget uncounted(Limits{}, false);
    std::array<Value, 128> values;
    for (size_t i = 0; i < values.size(); ++i) values[i] = string(std::string(1, static_cast<char>(i)));
    return values;
  }();
  const auto code = static_cast<unsigned char>(text.front());
  return code < ascii.size() ? ascii[code] : string(std::string(text));
}

Value Value::list(std::vector<Value> items) {
  return {Kind::list, std::make_shared<SequenceData>(std::move(items), std::vector<std::string>{})};
}

Value Value::tuple(std::vector<Value> items) {
  return named_tuple(std::move(items), {});
}

Value Value::named_tuple(std::vector<Value> items, std::vector<std::string> names) {
  return {Kind::tuple, std::make_shared<SequenceData>(std::move(items), std::move(names))};
}

Value Value::dict(std::shared_ptr<DictData> data) {
  return {Kind::dict, std::move(data)};
}

Value Value::object(std::shared_ptr<Object> object) {
  return {Kind::object, std::move(object)};
}

Value Value::undefined(std::string message, FaultKind kind) {
  return {Kind::undefined, std::make_shared<UndefinedData>(std::move(message), kind)};
}

std::string_view Value::text() const {
  return string_data().text;
}
const StringData& Value::string_data() const {
  return static_cast<const StringData&>(*heap_);
}
bool Value::is_safe() const {
  return kind_ == Kind::string && string_data().safe;
}
const std::vector<Value>& Value::items() const {
  return sequence().items;
}
const SequenceData& Value::sequence() const {
  return static_cast<const SequenceData&>(*heap_);
}
const DictData& Value::dict_data() const {
  return static_cast<const DictData&>(*heap_);
}
const std::shared_ptr<Object> Value::shared_object() const {
  return std::static_pointer_cast<Object>(heap_);
}
Object& Value::as_object() const {
  return static_cast<Object&>(*heap_);
}
const UndefinedData& Value::undefined_data() const {
  return static_cast<const UndefinedData&>(*heap_);
}

bool Value::same_as(const Value& other) const {
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::missing:
    case Kind::none:
      return true;
    case Kind::boolean:
    case Kind::integer:
      return integer_ == other.integer_;
    case Kind::real:
      return real_ == other.real_;
    case Kind::string:  // CPython has one object for each string of no or one (Latin-1) character
      return heap_ == other.heap_ || (string_data().length < 2 && text() == other.text());
    case Kind::tuple:
      return heap_ == other.heap_ || (items().empty() && other.items().empty());
    default:
      return heap_ == other.heap_;
  }
}

void Value::free_later() noexcept {
  if (freeing != nullptr) {
    freeing->push_back(std::move(heap_));
    return;
  }
  std::vector<std::shared_ptr<Heap>> queue;
  freeing = &queue;
  heap_.reset();
  while (!queue.empty()) {
    const std::shared_ptr<Heap> last = std::move(queue.back());
    queue.pop_back();
  }
  freeing = nullptr;
}

StringData::StringData(std::string t, bool s)
    : text(std::move(t)), safe(s), length(count_code_points(text)), claim_(sizeof(StringData) + text.size()) {
  spend_on_text(text.size());
}

SequenceData::SequenceData(std::vector<Value> i, std::vector<std::string> n)
    : items(std::move(i)), names(std::move(n)), claim_(sizeof(SequenceData) + items.size() * sizeof(Value)) {
  spend(items.size() + 1);
}

void DictData::clear() {
  index_.clear();
  entries_.clear();
}

size_t DictData::position(const Value& key, uint64_t hash) const {
  if (entries_.size() <= index_from) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (equal(entries_[i].first, key)) return i;
    }
    return entries_.size();
  }
  const auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    spend(1);  // many keys of one hash are an attack
    if (equal(entries_[it->second].first, key)) return it->second;
  }
  return entries_.size();
}

const Value* DictData::find(const Value& key) const {
  const size_t at = position(key, hash_of(key));
  return at == entries_.size() ? nullptr : &entries_[at].second;
}

const Value* DictData::find(std::string_view key) const {
  if (key.size() > 256) spend_on_text(key.size() * index_from);
  if (entries_.size() <= index_from) {
    for (const auto& [k, value] : entries_) {
      if (k.is_string() && k.text() == key) return &value;
    }
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(std::hash<std::string_view>{}(key));
  for (auto it = begin; it != end; ++it) {
    spend(1);
    const auto& [k, value] = entries_[it->second];
    if (k.is_string() && k.text() == key) return &value;
  }
  return nullptr;
}

void DictData::set(const Value& key, Value value) {
  const uint64_t hash = hash_of(key);
  const size_t at = position(key, hash);
  if (at < entries_.size()) {
    entries_[at].second = std::move(value);
    return;
  }
  claim_.grow(2 * sizeof(Value) + 64);
  entries_.emplace_back(key, std::move(value));
  if (entries_.size() == index_from + 1) {
    for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(hash_of(entries_[i].first), i);
  } else if (entries_.size() > index_from) {
    index_.emplace(hash, at);
  }
}

void raise_undefined(const Value& value) {
  const UndefinedData& data = value.undefined_data();
  throw Fault(data.kind, data.message);
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::missing:
      return "MissingType";
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::string:
      return value.is_safe() ? "Markup" : "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return value.sequence().names.empty() ? "tuple" : "_GroupTuple";
    case Kind::dict:
      return "dict";
    case Kind::object:
      return value.as_object().type_name();
  }
  return "object";
}

std::string type_description(const Value& value) {
  if (value.is_none()) return "None";
  std::string module;
  if (value.is_safe()) module = "markupsafe";
  if (value.is(Kind::tuple) && !value.sequence().names.empty()) module = "jinja2.filters";
  if (value.is(Kind::object)) module = value.as_object().module_name();
  if (!module.empty()) module += '.';
  return fmt::format("{}{} object", module, type_name(value));
}

uint64_t hash_of(const Value& value) {
  const Level level;
  spend(1);
  const auto of_integer = [](Integer i) {
    return std::hash<int64_t>{}(static_cast<int64_t>(i)) * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(i >> 64);
  };
  switch (value.kind()) {
    case Kind::none:
      return 0x6E6F6E65;
    case Kind::undefined:
      return 0x756E6465;
    case Kind::boolean:
    case Kind::integer:
      return of_integer(value.as_integer());
    case Kind::real: {
      const double real = value.as_real();
      if (std::abs(real) < 1e37 && std::trunc(real) == real) return of_integer(static_cast<Integer>(real));
      return std::hash<double>{}(real);
    }
    case Kind::string:
      spend_on_text(value.text().size());
      return std::hash<std::string_view>{}(value.text());
    case Kind::tuple: {
      uint64_t hash = 0x7475706C;
      for (const Value& item : value.items()) hash = (hash ^ hash_of(item)) * 0x100000001B3u + 1;
      return hash;
    }
    case Kind::object:
      return value.as_object().hash();
    default:
      raise(FaultKind::type, "unhashable type: '{}'", type_name(value));
  }
}

}  // namespace moetier::jinja
