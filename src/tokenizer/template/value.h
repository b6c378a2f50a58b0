// The values of the template language: Python's, as far as templates meet them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tokenizer/template/budget.h"
#include "tokenizer/template/fault.h"

namespace moetier::jinja {

/// Python's integers have no bound; these have 128 bits, and what does not fit is an `overflow` fault.
__extension__ typedef __int128 Integer;

/// Those from `list` on hold other values.
enum class Kind : uint8_t { missing, undefined, none, boolean, integer, real, string, list, tuple, dict, object };

class StringData;
class SequenceData;
class DictData;
class UndefinedData;
class Object;

/// Base of everything on the heap. Shared and, seen from templates, immutable (but for a few Objects).
class Heap {
 public:
  Heap() = default;
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  virtual ~Heap() = default;
};

/// One value. Copies share what is on the heap. `missing` is no value: a variable that was never set, an argument not
/// given.
class Value {
 public:
  Value() = default;
  Value(const Value&) = default;
  Value(Value&&) noexcept = default;
  Value& operator=(Value other) noexcept {
    swap(other);
    return *this;
  }
  /// Frees a container after this one instead of inside it, however deep they nest.
  ~Value() {
    if (kind_ >= Kind::list && heap_.use_count() == 1) free_later();
  }
  static Value missing() { return Value(Kind::missing); }
  static Value none() { return {}; }
  static Value boolean(bool value);
  static Value integer(Integer value);
  static Value real(double value);
  /// Text must be valid UTF-8. `safe` text is jinja2's Markup: already escaped for HTML.
  static Value string(std::string text, bool safe = false);
  /// A string of one character; those of ASCII are shared.
  static Value character(std::string_view text);
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  /// A tuple whose items also have names (what groupby yields).
  static Value named_tuple(std::vector<Value> items, std::vector<std::string> names);
  static Value dict(std::shared_ptr<DictData> data);
  static Value object(std::shared_ptr<Object> object);
  /// Using the value raises `message`; printing it gives nothing.
  static Value undefined(std::string message, FaultKind kind = FaultKind::undefined);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_missing() const { return kind_ == Kind::missing; }
  bool is_none() const { return kind_ == Kind::none; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_string() const { return kind_ == Kind::string; }
  bool is_sequence() const { return kind_ == Kind::list || kind_ == Kind::tuple; }
  /// bool counts as an integer, as in Python.
  bool is_integer() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  bool is_number() const { return is_integer() || kind_ == Kind::real; }

  // Each of these may only be asked of its own kind.
  bool as_boolean() const { return integer_ != 0; }
  Integer as_integer() const { return integer_; }  ///< boolean too
  double as_real() const { return real_; }
  std::string_view text() const;
  const StringData& string_data() const;
  bool is_safe() const;  ///< false unless a safe string
  const std::vector<Value>& items() const;
  const SequenceData& sequence() const;
  const DictData& dict_data() const;
  const std::shared_ptr<Object> shared_object() const;
  Object& as_object() const;
  const UndefinedData& undefined_data() const;

  /// The object as a T; null if it is none.
  template <typename T>
  T* object_as() const {
    return kind_ == Kind::object ? dynamic_cast<T*>(heap_.get()) : nullptr;
  }
  /// Python's `is`, as far as values have an identity here.
  bool same_as(const Value& other) const;
  const void* address() const { return heap_.get(); }

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  Value(Kind kind, std::shared_ptr<Heap> heap) : kind_(kind), heap_(std::move(heap)) {}

  void swap(Value& other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(integer_, other.integer_);
    heap_.swap(other.heap_);
  }
  void free_later() noexcept;

  Kind kind_ = Kind::none;
  union {
    Integer integer_ = 0;
    double real_;
  };
  std::shared_ptr<Heap> heap_;
};

class StringData : public Heap {
 public:
  StringData(std::string text, bool safe);
  const std::string text;
  const bool safe;
  const size_t length;  ///< code points
  bool ascii() const { return length == text.size(); }

 private:
  Claim claim_;
};

class SequenceData : public Heap {
 public:
  SequenceData(std::vector<Value> items, std::vector<std::string> names);
  std::vector<Value> items;
  const std::vector<std::string> names;  ///< of a named tuple

 private:
  Claim claim_;
};

/// Keys in the order they came; a key is found as Python finds it (1, 1.0 and True are one key).
class DictData : public Heap {
 public:
  /// Null if the key is not there. An unhashable key is a `type` fault.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, Value value);
  size_t size() const { return entries_.size(); }
  const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  /// Frees all entries.
  void clear();

 private:
  size_t position(const Value& key, uint64_t hash) const;

  std::vector<std::pair<Value, Value>> entries_;
  std::unordered_multimap<uint64_t, size_t> index_;
  Claim claim_;
};

class UndefinedData : public Heap {
 public:
  UndefinedData(std::string text, FaultKind fault_kind) : message(std::move(text)), kind(fault_kind) {}
  const std::string message;
  const FaultKind kind;
};

/// Raises what using this undefined value raises.
[[noreturn]] void raise_undefined(const Value& value);

/// type(x).__name__
std::string_view type_name(const Value& value);
/// How jinja2 names the owner of a missing attribute: "dict object", "None".
std::string type_description(const Value& value);

/// Python's hash, in that equal keys have equal hashes.
uint64_t hash_of(const Value& value);

}  // namespace moetier::jinja
