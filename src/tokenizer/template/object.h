// Values that are neither data nor text: iterators, functions, namespaces and the like.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/template/value.h"

namespace moetier::jinja {

class Interpreter;
class Iterator;

/// What a call is given.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// Everything else with behaviour. The defaults are those of a plain Python object.
class Object : public Heap, public std::enable_shared_from_this<Object> {
 public:
  virtual std::string_view type_name() const = 0;
  /// The module that jinja2's messages name before the type; empty for Python's own types.
  virtual std::string_view module_name() const { return {}; }
  virtual std::string repr() const;
  virtual bool truth() const { return true; }
  /// The attribute, or missing.
  virtual Value attribute(std::string_view /*name*/) { return Value::missing(); }
  /// obj[key]; missing if it cannot be had.
  virtual Value item(const Value& /*key*/) { return Value::missing(); }
  virtual bool has_items() const { return false; }  ///< defines __getitem__
  virtual std::optional<size_t> length() { return std::nullopt; }
  /// Null if it cannot be iterated.
  virtual std::shared_ptr<Iterator> iterate() { return nullptr; }
  virtual bool callable() const { return false; }
  virtual Value call(Interpreter&, Arguments&&);
  virtual bool equals(const Object& other) const { return this == &other; }
  virtual uint64_t hash() const { return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(this)); }
};

/// A Python iterator: it can be walked once.
class Iterator : public Object {
 public:
  std::string_view type_name() const override { return "generator"; }
  std::shared_ptr<Iterator> iterate() override;
  /// False at the end.
  bool next(Value& out);

 protected:
  virtual bool advance(Value& out) = 0;
};

/// Objects that templates can change, and through which values could come to hold themselves. The interpreter makes
/// them let go of everything when a rendering ends, since shared pointers free no cycles.
class Tracked {
 public:
  Tracked();
  virtual ~Tracked();
  Tracked(const Tracked&) = delete;
  Tracked& operator=(const Tracked&) = delete;
  virtual void let_go() = 0;

  /// While in scope, new Tracked objects of this thread are listed; at the end all that still live let go.
  class Scope {
   public:
    Scope();
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Tracked* outer_;
  };

 private:
  virtual std::shared_ptr<const void> keep_alive() = 0;
  Tracked* previous_ = nullptr;
  Tracked* next_ = nullptr;
};

/// range(start, stop, step)
class Range : public Object {
 public:
  Range(Integer start, Integer stop, Integer step);
  std::string_view type_name() const override { return "range"; }
  std::string repr() const override;
  bool truth() const override { return count_ != 0; }
  Value attribute(std::string_view name) override;
  Value item(const Value& key) override;
  bool has_items() const override { return true; }
  std::optional<size_t> length() override { return count_; }
  std::shared_ptr<Iterator> iterate() override;
  bool equals(const Object& other) const override;
  uint64_t hash() const override;
  Integer at(size_t index) const { return start_ + step_ * static_cast<Integer>(index); }
  Integer step() const { return step_; }
  size_t count() const { return count_; }
  bool contains(Integer value) const;

 private:
  Integer start_, stop_, step_;
  size_t count_;
};

/// dict.keys(), values() and items()
class DictView : public Object {
 public:
  enum class Part { keys, values, items };
  DictView(Value dict, Part part) : dict_(std::move(dict)), part_(part) {}
  std::string_view type_name() const override;
  std::string repr() const override;
  bool truth() const override { return dict_.dict_data().size() != 0; }
  Value attribute(std::string_view name) override;
  std::optional<size_t> length() override { return dict_.dict_data().size(); }
  std::shared_ptr<Iterator> iterate() override;
  bool equals(const Object& other) const override;
  uint64_t hash() const override;
  Value at(size_t index) const;
  Part part() const { return part_; }
  const Value& dict() const { return dict_; }

 private:
  Value dict_;
  Part part_;
};

using NativeFunction = Value (*)(Interpreter&, Arguments&&);
using NativeMethod = Value (*)(Interpreter&, const Value& self, Arguments&&);

/// A global function, or a type called as one.
class Function : public Object {
 public:
  Function(std::string name, NativeFunction function, bool is_type = false)
      : name_(std::move(name)), function_(function), is_type_(is_type) {}
  std::string_view type_name() const override { return is_type_ ? "type" : "function"; }
  std::string repr() const override;
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments&& arguments) override;

 private:
  std::string name_;
  NativeFunction function_;
  bool is_type_;
};

/// A method with the value it was taken from.
class BoundMethod : public Object {
 public:
  BoundMethod(Value self, std::string_view name, NativeMethod method)
      : self_(std::move(self)), name_(name), method_(method) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  std::string repr() const override;
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments&& arguments) override;
  bool equals(const Object& other) const override;

 private:
  Value self_;
  std::string_view name_;
  NativeMethod method_;
};

/// namespace(): the one place where a template may set attributes.
class Namespace : public Object, public Tracked {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  std::string_view module_name() const override { return "jinja2.utils"; }
  std::string repr() const override;
  Value attribute(std::string_view name) override;
  void set(std::string_view name, Value value);
  DictData& attributes() { return attributes_; }
  void let_go() override { attributes_.clear(); }

 private:
  std::shared_ptr<const void> keep_alive() override { return shared_from_this(); }
  DictData attributes_;
  mutable bool printing_ = false;
};

}  // namespace moetier::jinja
