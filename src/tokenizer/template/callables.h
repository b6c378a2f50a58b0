// Objects that belong to a template's own constructs: macros, loops, blocks.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/template/interpreter.h"

namespace moetier::jinja {

class Macro : public Object {
 public:
  Macro(const MacroBody& macro_body, std::shared_ptr<Activation> activation)
      : body(macro_body), around(std::move(activation)) {}
  std::string_view type_name() const override { return "Macro"; }
  std::string_view module_name() const override { return "jinja2.runtime"; }
  std::string repr() const override;
  Value attribute(std::string_view name) override;
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments&& arguments) override;

  const MacroBody& body;
  const std::shared_ptr<Activation> around;
};

/// The variable `loop`.
class Loop : public Iterator, public Tracked {
 public:
  /// `around`: where a recursive loop was entered; null for others.
  Loop(Value iterable, const Statement& statement, std::shared_ptr<Activation> around, int64_t depth);
  std::string_view type_name() const override { return "LoopContext"; }
  std::string_view module_name() const override { return "jinja2.runtime"; }
  std::string repr() const override;
  bool truth() const override;
  Value attribute(std::string_view name) override;
  std::optional<size_t> length() override { return count(); }
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments&& arguments) override;
  void let_go() override;
  /// loop.changed(...)
  bool changed(Value values);
  int64_t index0() const { return index0_; }

 protected:
  bool advance(Value& out) override;

 private:
  std::shared_ptr<const void> keep_alive() override { return Object::shared_from_this(); }
  /// The next item without taking it; missing at the end.
  const Value& peek();
  size_t count() const;

  const Statement& statement_;
  std::shared_ptr<Activation> around_;
  int64_t depth0_;
  int64_t index0_ = -1;
  Value iterable_;
  // looking ahead changes these, and repr and truth look ahead
  mutable std::shared_ptr<Iterator> iterator_;
  mutable std::optional<size_t> length_;
  Value before_ = Value::missing(), current_ = Value::missing(), after_ = Value::missing(),
        last_changed_ = Value::missing();
};

/// for ... if: the items for which the condition holds.
class ConditionIterator : public Iterator {
 public:
  ConditionIterator(Interpreter& interpreter, const Statement& statement, Value iterable,
                    std::shared_ptr<Activation> around)
      : interpreter_(interpreter), statement_(statement), iterable_(std::move(iterable)), around_(std::move(around)) {}

 protected:
  bool advance(Value& out) override;

 private:
  Interpreter& interpreter_;
  const Statement& statement_;
  Value iterable_;
  std::shared_ptr<Activation> around_, own_;
  std::shared_ptr<Iterator> iterator_;
};

/// self.name of a block, called to render it again.
class BlockReference : public Object {
 public:
  BlockReference(const BlockBody& block, std::shared_ptr<const Context> context)
      : block_(block), context_(std::move(context)) {}
  std::string_view type_name() const override { return "BlockReference"; }
  std::string_view module_name() const override { return "jinja2.runtime"; }
  Value attribute(std::string_view name) override;
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments&& arguments) override;

 private:
  const BlockBody& block_;
  std::shared_ptr<const Context> context_;
};

/// The variable `self`.
class SelfReference : public Object {
 public:
  SelfReference(const ParsedTemplate& parsed, std::shared_ptr<const Context> context)
      : parsed_(parsed), context_(std::move(context)) {}
  std::string_view type_name() const override { return "TemplateReference"; }
  std::string_view module_name() const override { return "jinja2.runtime"; }
  std::string repr() const override { return "<TemplateReference None>"; }
  bool has_items() const override { return true; }
  Value item(const Value& key) override;

 private:
  const ParsedTemplate& parsed_;
  std::shared_ptr<const Context> context_;
};

/// What using super() in a block without a parent raises.
Value no_parent_block(std::string_view name);

}  // namespace moetier::jinja
