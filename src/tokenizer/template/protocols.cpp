#include <algorithm>

#include "tokenizer/template/operators.h"
#include "tokenizer/template/unicode.h"

namespace moetier::jinja {
namespace {

class TextIterator : public Iterator {
 public:
  TextIterator(Value text, bool backwards)
      : text_(std::move(text)), backwards_(backwards), at_(backwards ? text_.text().size() : 0) {}
  std::string_view type_name() const override { return backwards_ ? "reversed" : "str_iterator"; }

 protected:
  bool advance(Value& out) override {
    const std::string_view text = text_.text();
    if (at_ == (backwards_ ? 0 : text.size())) return false;
    const size_t from = at_;
    backwards_ ? previous_code_point(text, at_) : next_code_point(text, at_);
    out = Value::character(text.substr(std::min(from, at_), backwards_ ? from - at_ : at_ - from));
    return true;
  }

 private:
  Value text_;
  bool backwards_;
  size_t at_;
};

/// Items by position, forwards or backwards.
template <typename At>
class PositionIterator : public Iterator {
 public:
  PositionIterator(At at, size_t count, bool backwards, std::string_view name)
      : at_(std::move(at)), count_(count), backwards_(backwards), name_(name) {}
  std::string_view type_name() const override { return name_; }

 protected:
  bool advance(Value& out) override {
    if (done_ == count_) return false;
    out = at_(backwards_ ? count_ - 1 - done_ : done_);
    ++done_;
    return true;
  }

 private:
  At at_;
  size_t count_;
  bool backwards_;
  std::string_view name_;
  size_t done_ = 0;
};

template <typename At>
std::shared_ptr<Iterator> by_position(At at, size_t count, bool backwards, std::string_view name) {
  return std::make_shared<PositionIterator<At>>(std::move(at), count, backwards, backwards ? "reversed" : name);
}

/// An iterator over what can be addressed by position; null for anything else.
std::shared_ptr<Iterator> iterate_positions(const Value& value, bool backwards) {
  if (value.is_sequence()) {
    return by_position([value](size_t i) { return value.items()[i]; }, value.items().size(), backwards,
                       value.is(Kind::list) ? "list_iterator" : "tuple_iterator");
  }
  if (value.is(Kind::dict)) {
    return by_position([value](size_t i) { return value.dict_data().entries()[i].first; }, value.dict_data().size(),
                       backwards, "dict_keyiterator");
  }
  if (value.is_undefined()) return by_position([](size_t) { return Value(); }, 0, backwards, "generator");
  if (const auto* range = value.object_as<Range>()) {
    return by_position([value, range](size_t i) { return Value::integer(range->at(i)); }, range->count(), backwards,
                       "range_iterator");
  }
  if (auto* view = value.object_as<DictView>()) {
    return by_position([value, view](size_t i) { return view->at(i); }, *view->length(), backwards, "dict_iterator");
  }
  return nullptr;
}

std::shared_ptr<Iterator> try_iterate(const Value& value) {
  if (value.is_string()) return std::make_shared<TextIterator>(value, false);
  if (auto iterator = iterate_positions(value, false)) return iterator;
  return value.is(Kind::object) ? value.as_object().iterate() : nullptr;
}

int64_t clamped(Integer value) {
  constexpr Integer low = INT64_MIN, high = INT64_MAX;
  return static_cast<int64_t>(std::clamp(value, low, high));
}

}  // namespace

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::boolean:
      return value.as_boolean();
    case Kind::integer:
      return value.as_integer() != 0;
    case Kind::real:
      return value.as_real() != 0;
    case Kind::string:
      return !value.text().empty();
    case Kind::list:
    case Kind::tuple:
      return !value.items().empty();
    case Kind::dict:
      return value.dict_data().size() != 0;
    case Kind::object:
      return value.as_object().truth();
    default:
      return false;
  }
}

size_t length(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::string:
      return value.string_data().length;
    case Kind::list:
    case Kind::tuple:
      return value.items().size();
    case Kind::dict:
      return value.dict_data().size();
    default:
      break;
  }
  if (value.is(Kind::object)) {
    if (const auto length = value.as_object().length()) return *length;
  }
  raise(FaultKind::type, "object of type '{}' has no len()", type_name(value));
}

std::shared_ptr<Iterator> iterate(const Value& value) {
  auto iterator = try_iterate(value);
  if (iterator == nullptr) raise(FaultKind::type, "'{}' object is not iterable", type_name(value));
  return iterator;
}

bool is_iterable(const Value& value) {
  return try_iterate(value) != nullptr;
}

std::shared_ptr<Iterator> iterate_reversed(const Value& value) {
  if (auto iterator = iterate_positions(value, true)) return iterator;
  if (value.is_string()) return std::make_shared<TextIterator>(value, true);
  raise(FaultKind::type, "'{}' object is not reversible", type_name(value));
}

std::vector<Value> collect(const Value& value) {
  if (value.is_sequence()) {
    spend(value.items().size());
    return value.items();
  }
  std::vector<Value> items;
  Claim claim;
  const auto iterator = iterate(value);
  for (Value next; iterator->next(next);) {
    claim.grow(sizeof(Value));
    items.push_back(next);
  }
  return items;
}

Integer as_index(const Value& value, std::string_view what) {
  if (!value.is_integer()) raise(FaultKind::type, "{}, not '{}'", what, type_name(value));
  return value.as_integer();
}

int64_t clamped_index(const Value& value, std::string_view what) {
  return clamped(as_index(value, what));
}

SliceBounds slice_bounds(const Value& start, const Value& stop, const Value& step, size_t length) {
  constexpr std::string_view what = "slice indices must be integers or None or have an __index__ method";
  const auto given = [](const Value& v) { return !v.is_missing() && !v.is_none(); };
  const auto size = static_cast<int64_t>(length);
  SliceBounds bounds{};
  bounds.step = given(step) ? std::max(clamped_index(step, what), -INT64_MAX) : 1;
  if (bounds.step == 0) raise(FaultKind::value, "slice step cannot be zero");
  const bool backwards = bounds.step < 0;
  const auto limit = [&](const Value& value, int64_t otherwise) {
    if (!given(value)) return otherwise;
    int64_t index = clamped_index(value, what);
    if (index < 0) index += size;
    return std::clamp(index, backwards ? int64_t{-1} : int64_t{0}, backwards ? size - 1 : size);
  };
  bounds.start = limit(start, backwards ? size - 1 : 0);
  bounds.stop = limit(stop, backwards ? -1 : size);
  if (backwards) {
    bounds.count =
        bounds.start > bounds.stop ? static_cast<size_t>((bounds.start - bounds.stop - 1) / -bounds.step + 1) : 0;
  } else {
    bounds.count =
        bounds.stop > bounds.start ? static_cast<size_t>((bounds.stop - bounds.start - 1) / bounds.step + 1) : 0;
  }
  return bounds;
}

std::string_view substring(const Value& string, size_t begin, size_t count) {
  const StringData& data = string.string_data();
  const std::string_view text = data.text;
  if (data.ascii()) return text.substr(std::min(begin, text.size()), count);
  spend_on_text(8 * text.size());
  const size_t first = byte_of_code_point(text, begin);
  return text.substr(first, byte_of_code_point(text.substr(first), count));
}

namespace {

Value sliced_text(const Value& string, const SliceBounds& bounds) {
  if (bounds.step == 1) {
    return Value::string(std::string(substring(string, static_cast<size_t>(bounds.start), bounds.count)),
                         string.is_safe());
  }
  const std::string_view text = string.text();
  const Claim claim(string.string_data().length * sizeof(std::string_view));
  spend_on_characters(text.size());
  std::vector<std::string_view> characters;
  characters.reserve(string.string_data().length);
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    next_code_point(text, at);
    characters.push_back(text.substr(begin, at - begin));
  }
  std::string out;
  for (size_t i = 0; i < bounds.count; ++i) {
    out += characters[static_cast<size_t>(bounds.start + static_cast<int64_t>(i) * bounds.step)];
  }
  return Value::string(std::move(out), string.is_safe());
}

}  // namespace

Value sliced(const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) raise_undefined(object);
  if (object.is_string()) return sliced_text(object, slice_bounds(start, stop, step, object.string_data().length));
  if (object.is_sequence()) {
    const SliceBounds bounds = slice_bounds(start, stop, step, object.items().size());
    std::vector<Value> items;
    items.reserve(bounds.count);
    for (size_t i = 0; i < bounds.count; ++i) {
      items.push_back(object.items()[static_cast<size_t>(bounds.start + static_cast<int64_t>(i) * bounds.step)]);
    }
    return object.is(Kind::list) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
  }
  if (const auto* range = object.object_as<Range>()) {
    const SliceBounds bounds = slice_bounds(start, stop, step, range->count());
    const auto at = [&](int64_t i) { return range->at(0) + range->step() * i; };
    return Value::object(std::make_shared<Range>(at(bounds.start), at(bounds.stop), range->step() * bounds.step));
  }
  if (object.is(Kind::dict)) raise(FaultKind::type, "unhashable type: 'slice'");
  raise(FaultKind::type, "'{}' object is not subscriptable", type_name(object));
}

}  // namespace moetier::jinja
