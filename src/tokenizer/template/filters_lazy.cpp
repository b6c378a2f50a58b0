// Filters that give generators: like Python's, they compute when they are walked, and can be walked once.
#include <algorithm>
#include <optional>

#include "tokenizer/template/arguments.h"
#include "tokenizer/template/filters.h"
#include "tokenizer/template/interpreter.h"
#include "tokenizer/template/operators.h"
#include "tokenizer/template/text.h"

namespace moetier::jinja {
namespace {

/// A generator that first does its preparation when it is first walked.
class Generator : public Iterator {
 protected:
  explicit Generator(Value source) : source_(std::move(source)) {}
  /// False: there is nothing to walk.
  virtual bool prepare() { return true; }
  virtual bool produce(Value& out) = 0;

  bool advance(Value& out) final {
    if (!started_) {
      started_ = true;
      if (prepare()) iterator_ = jinja::iterate(source_);
    }
    if (iterator_ == nullptr) return false;
    if (produce(out)) return true;
    iterator_ = nullptr;
    return false;
  }
  bool next_of_source(Value& out) { return iterator_->next(out); }
  const Value& source() const { return source_; }

 private:
  Value source_;
  bool started_ = false;
  std::shared_ptr<Iterator> iterator_;
};

/// The value that a lazy filter is applied to, taken off the arguments.
Value take_source(Arguments& arguments, std::string_view filter) {
  if (arguments.positional.empty())
    raise(FaultKind::type, "{}() missing 1 required positional argument: 'value'", filter);
  Value source = std::move(arguments.positional.front());
  arguments.positional.erase(arguments.positional.begin());
  return source;
}

/// The arguments of one call for `item`: those behind the name, with the item first.
Arguments arguments_for(const Arguments& arguments, const Value& item, size_t skip) {
  Arguments call;
  call.positional.push_back(item);
  call.positional.insert(call.positional.end(), arguments.positional.begin() + static_cast<ptrdiff_t>(skip),
                         arguments.positional.end());
  call.named = arguments.named;
  return call;
}

class MapGenerator : public Generator {
 public:
  MapGenerator(Interpreter& interpreter, Value source, Arguments&& arguments)
      : Generator(std::move(source)), interpreter_(interpreter), arguments_(std::move(arguments)) {}

 protected:
  bool prepare() override {
    if (!jinja::truth(source())) return false;
    Value attribute = Value::missing(), otherwise = Value::missing();
    if (arguments_.positional.empty()) {
      for (const auto& [name, value] : arguments_.named) {
        if (name == "attribute") attribute = value;
        if (name == "default") otherwise = value;
      }
      if (attribute.is_missing()) raise(FaultKind::argument, "map requires a filter argument");
      for (const auto& [name, value] : arguments_.named) {
        if (name != "attribute" && name != "default") {
          raise(FaultKind::argument, "Unexpected keyword argument {}", repr_of_text(name));
        }
      }
      get_.emplace(attribute, otherwise);
    }
    return true;
  }

  bool produce(Value& out) override {
    Value item;
    if (!next_of_source(item)) return false;
    out = get_ ? (*get_)(item)
               : interpreter_.call_filter(arguments_.positional.front(), arguments_for(arguments_, item, 1));
    return true;
  }

 private:
  Interpreter& interpreter_;
  Arguments arguments_;
  std::optional<AttributeGetter> get_;
};

class SelectGenerator : public Generator {
 public:
  SelectGenerator(Interpreter& interpreter, Value source, Arguments&& arguments, bool wanted, bool by_attribute)
      : Generator(std::move(source)),
        interpreter_(interpreter),
        arguments_(std::move(arguments)),
        wanted_(wanted),
        by_attribute_(by_attribute) {}

 protected:
  bool prepare() override {
    if (!jinja::truth(source())) return false;
    if (by_attribute_) {
      if (arguments_.positional.empty()) raise(FaultKind::argument, "Missing parameter for attribute name");
      get_.emplace(arguments_.positional.front());
    }
    return true;
  }

  bool produce(Value& out) override {
    const size_t name_at = by_attribute_ ? 1 : 0;
    for (Value item; next_of_source(item);) {
      const Value tested = get_ ? (*get_)(item) : item;
      const bool holds = arguments_.positional.size() <= name_at
                             ? jinja::truth(tested)
                             : jinja::truth(interpreter_.call_test(arguments_.positional[name_at],
                                                                   arguments_for(arguments_, tested, name_at + 1)));
      if (holds == wanted_) {
        out = item;
        return true;
      }
    }
    return false;
  }

 private:
  Interpreter& interpreter_;
  Arguments arguments_;
  bool wanted_, by_attribute_;
  std::optional<AttributeGetter> get_;
};

class UniqueGenerator : public Generator, public Tracked {
 public:
  UniqueGenerator(Value source, const Value& attribute, bool case_sensitive)
      : Generator(std::move(source)), get_(attribute), case_sensitive_(case_sensitive) {}
  void let_go() override { seen_.clear(); }

 protected:
  bool produce(Value& out) override {
    for (Value item; next_of_source(item);) {
      const Value key = case_sensitive_ ? get_(item) : ignoring_case(get_(item));
      if (seen_.find(key) != nullptr) continue;
      seen_.set(key, Value::none());
      out = item;
      return true;
    }
    return false;
  }

 private:
  std::shared_ptr<const void> keep_alive() override { return shared_from_this(); }

  AttributeGetter get_;
  bool case_sensitive_;
  DictData seen_;
};

class BatchGenerator : public Generator, public Tracked {
 public:
  BatchGenerator(Value source, Value count, Value fill)
      : Generator(std::move(source)), count_(std::move(count)), fill_(std::move(fill)) {}
  void let_go() override { batch_.clear(); }

 protected:
  bool produce(Value& out) override {
    for (Value item; next_of_source(item);) {
      const bool full = equal(Value::integer(static_cast<Integer>(batch_.size())), count_);
      if (full) out = Value::list(std::move(batch_));
      if (full) batch_.clear();
      claim_.grow(sizeof(Value));
      batch_.push_back(item);
      if (full) return true;
    }
    if (batch_.empty()) return false;
    const Value size = Value::integer(static_cast<Integer>(batch_.size()));
    if (!fill_.is_missing() && !fill_.is_none() && ordered(Comparison::less, size, count_)) {
      const Integer missing = as_index(count_, "can't multiply sequence by non-int") - size.as_integer();
      if (missing > Limits::range) raise(FaultKind::limit, "batch cannot fill up {} items", integer_text(missing));
      batch_.insert(batch_.end(), static_cast<size_t>(missing), fill_);
    }
    out = Value::list(std::move(batch_));
    batch_.clear();
    return true;
  }

 private:
  std::shared_ptr<const void> keep_alive() override { return shared_from_this(); }

  Value count_, fill_;
  std::vector<Value> batch_;
  Claim claim_;
};

class SliceGenerator : public Iterator {
 public:
  SliceGenerator(Value source, Value slices, Value fill)
      : source_(std::move(source)), slices_(std::move(slices)), fill_(std::move(fill)) {}

 protected:
  bool advance(Value& out) override {
    if (number_ == 0) {
      items_ = Value::list(collect(source_));
      const Integer count = as_index(slices_, "the number of slices must be an integer");
      if (count == 0) raise(FaultKind::zero_division, "integer division or modulo by zero");
      count_ = count < 0 ? 0 : static_cast<size_t>(std::min<Integer>(count, INT32_MAX));
    }
    if (number_ >= count_) return false;
    const size_t size = items_.items().size(), each = size / count_, longer = size % count_;
    const size_t begin = number_ * each + std::min(number_, longer);
    const size_t end = begin + each + (number_ < longer ? 1 : 0);
    const auto at = [&](size_t i) { return items_.items().begin() + static_cast<ptrdiff_t>(i); };
    std::vector<Value> slice(at(begin), at(end));
    if (!fill_.is_missing() && !fill_.is_none() && number_ >= longer) slice.push_back(fill_);
    out = Value::list(std::move(slice));
    ++number_;
    return true;
  }

 private:
  Value source_, slices_, fill_, items_;
  size_t count_ = 0, number_ = 0;
};

class ItemsGenerator : public Generator {
 public:
  explicit ItemsGenerator(Value source) : Generator(std::move(source)) {}

 protected:
  bool prepare() override {
    if (source().is_undefined()) return false;
    if (!source().is(Kind::dict)) raise(FaultKind::type, "Can only get item pairs from a mapping.");
    return true;
  }
  bool produce(Value& out) override {
    Value key;
    if (!next_of_source(key)) return false;
    out = Value::tuple({key, *source().dict_data().find(key)});
    return true;
  }
};

Value map(Interpreter& interpreter, Arguments&& arguments) {
  Value source = take_source(arguments, "map");
  return Value::object(std::make_shared<MapGenerator>(interpreter, std::move(source), std::move(arguments)));
}

template <bool wanted, bool by_attribute>
Value select(Interpreter& interpreter, Arguments&& arguments) {
  Value source = take_source(arguments, "select");
  return Value::object(
      std::make_shared<SelectGenerator>(interpreter, std::move(source), std::move(arguments), wanted, by_attribute));
}

Value unique(Interpreter&, Arguments&& arguments) {
  auto [value, case_sensitive, attribute] = bind<3>("unique", {"value", "case_sensitive", "attribute"}, 1, arguments);
  return Value::object(
      std::make_shared<UniqueGenerator>(value, attribute, !case_sensitive.is_missing() && truth(case_sensitive)));
}

Value batch(Interpreter&, Arguments&& arguments) {
  auto [value, count, fill] = bind<3>("batch", {"value", "linecount", "fill_with"}, 2, arguments);
  return Value::object(std::make_shared<BatchGenerator>(value, count, fill));
}

Value slice(Interpreter&, Arguments&& arguments) {
  auto [value, count, fill] = bind<3>("slice", {"value", "slices", "fill_with"}, 2, arguments);
  return Value::object(std::make_shared<SliceGenerator>(value, count, fill));
}

Value items(Interpreter&, Arguments&& arguments) {
  auto [value] = bind<1>("items", {"value"}, 1, arguments);
  return Value::object(std::make_shared<ItemsGenerator>(value));
}

Value reverse(Interpreter&, Arguments&& arguments) {
  auto [value] = bind<1>("reverse", {"value"}, 1, arguments);
  if (value.is_string()) return sliced(value, Value::none(), Value::none(), Value::integer(-1));
  try {
    return Value::object(iterate_reversed(value));
  } catch (const Fault& fault) {
    if (fault.kind() != FaultKind::type) throw;
  }
  if (!is_iterable(value)) raise(FaultKind::argument, "argument must be iterable");
  std::vector<Value> reversed = collect(value);
  std::reverse(reversed.begin(), reversed.end());
  return Value::list(std::move(reversed));
}

constexpr NamedFunction filters[] = {{"batch", batch},
                                     {"items", items},
                                     {"map", map},
                                     {"reject", select<false, false>},
                                     {"rejectattr", select<false, true>},
                                     {"reverse", reverse},
                                     {"select", select<true, false>},
                                     {"selectattr", select<true, true>},
                                     {"slice", slice},
                                     {"unique", unique}};

}  // namespace

std::span<const NamedFunction> lazy_filters() {
  return filters;
}

}  // namespace moetier::jinja
