#include "tokenizer/template/callables.h"

#include "tokenizer/template/arguments.h"
#include "tokenizer/template/operators.h"
#include "tokenizer/template/text.h"

namespace moetier::jinja {

std::string Macro::repr() const {
  return body.name.empty() ? "<Macro anonymous>" : fmt::format("<Macro {}>", repr_of_text(body.name));
}

Value Macro::attribute(std::string_view name) {
  if (name == "name") return body.name.empty() ? Value::none() : Value::string(body.name);
  if (name == "arguments") {
    std::vector<Value> names;
    for (const std::string& parameter : body.parameters) names.push_back(Value::string(parameter));
    return Value::tuple(std::move(names));
  }
  if (name == "catch_kwargs") return Value::boolean(body.kwargs_slot >= 0);
  if (name == "catch_varargs") return Value::boolean(body.varargs_slot >= 0);
  if (name == "caller") return Value::boolean(body.accesses_caller);
  if (name == "explicit_caller") return Value::boolean(body.has_caller_parameter);
  return Value::missing();
}

Value Macro::call(Interpreter& interpreter, Arguments&& arguments) {
  return interpreter.call_macro(*this, std::move(arguments));
}

namespace {

/// loop.cycle or loop.changed with its loop.
class LoopMethod : public Object {
 public:
  LoopMethod(std::shared_ptr<Loop> loop, bool cycles) : loop_(std::move(loop)), cycles_(cycles) {}
  std::string_view type_name() const override { return "method"; }
  bool callable() const override { return true; }

  Value call(Interpreter&, Arguments&& arguments) override {
    if (!arguments.named.empty()) raise(FaultKind::type, "loop.cycle and loop.changed take no keyword arguments");
    if (!cycles_) return Value::boolean(loop_->changed(Value::tuple(std::move(arguments.positional))));
    const auto count = static_cast<int64_t>(arguments.positional.size());
    if (count == 0) raise(FaultKind::type, "no items for cycling given");
    return arguments.positional[static_cast<size_t>(std::max<int64_t>(loop_->index0(), 0) % count)];
  }

 private:
  std::shared_ptr<Loop> loop_;
  bool cycles_;
};

}  // namespace

Loop::Loop(Value iterable, const Statement& statement, std::shared_ptr<Activation> around, int64_t depth)
    : statement_(statement), around_(std::move(around)), depth0_(depth), iterable_(std::move(iterable)) {
  iterator_ = jinja::iterate(iterable_);
}

std::string Loop::repr() const {
  return fmt::format("<LoopContext {}/{}>", index0_ + 1, count());
}

bool Loop::truth() const {
  return count() != 0;
}

void Loop::let_go() {
  iterator_ = nullptr;
  around_ = nullptr;
  iterable_ = before_ = current_ = after_ = last_changed_ = Value::missing();
}

const Value& Loop::peek() {
  if (after_.is_missing()) {
    Value next;
    if (iterator_->next(next)) after_ = next;
  }
  return after_;
}

size_t Loop::count() const {
  if (length_) return *length_;
  std::optional<size_t> known;
  if (iterable_.is(Kind::object)) {
    known = iterable_.as_object().length();
  } else {
    known = jinja::length(iterable_);
  }
  if (!known) {  // a generator: what is left of it is kept
    std::vector<Value> rest = collect(Value::object(iterator_));
    known = rest.size() + static_cast<size_t>(index0_ + 1) + (after_.is_missing() ? 0 : 1);
    iterator_ = jinja::iterate(Value::list(std::move(rest)));
  }
  length_ = known;
  return *known;
}

Value Loop::attribute(std::string_view name) {
  const auto number = [](int64_t n) { return Value::integer(n); };
  const auto total = [&] { return static_cast<int64_t>(count()); };
  if (name == "index") return number(index0_ + 1);
  if (name == "index0") return number(index0_);
  if (name == "first") return Value::boolean(index0_ == 0);
  if (name == "last") return Value::boolean(peek().is_missing());
  if (name == "length") return number(total());
  if (name == "revindex") return number(total() - index0_);
  if (name == "revindex0") return number(total() - index0_ - 1);
  if (name == "depth") return number(depth0_ + 1);
  if (name == "depth0") return number(depth0_);
  if (name == "previtem") return index0_ == 0 ? Value::undefined("there is no previous item") : before_;
  if (name == "nextitem") return peek().is_missing() ? Value::undefined("there is no next item") : after_;
  if (name == "cycle" || name == "changed") {
    auto self = std::static_pointer_cast<Loop>(Object::shared_from_this());
    return Value::object(std::make_shared<LoopMethod>(std::move(self), name == "cycle"));
  }
  return Value::missing();
}

bool Loop::changed(Value values) {
  if (!last_changed_.is_missing() && equal(last_changed_, values)) return false;
  last_changed_ = std::move(values);
  return true;
}

bool Loop::advance(Value& out) {
  if (after_.is_missing()) {
    if (!iterator_->next(out)) return false;
  } else {
    out = after_;
    after_ = Value::missing();
  }
  ++index0_;
  before_ = current_;
  current_ = out;
  return true;
}

Value Loop::call(Interpreter& interpreter, Arguments&& arguments) {
  auto [iterable] = bind<1>("loop", {"iterable"}, 1, arguments);
  if (around_ == nullptr) {
    raise(FaultKind::type, "The loop must have the 'recursive' marker to be called recursively.");
  }
  return Value::string(interpreter.run_recursive(statement_, iterable, around_, depth0_ + 1));
}

bool ConditionIterator::advance(Value& out) {
  if (own_ == nullptr) {
    own_ = interpreter_.condition_activation(statement_, around_);
    iterator_ = jinja::iterate(iterable_);
  }
  for (Value item; iterator_->next(item);) {
    if (interpreter_.condition_holds(statement_, item, own_, out)) return true;
  }
  return false;
}

Value BlockReference::attribute(std::string_view name) {
  if (name == "name") return Value::string(block_.name);
  return name == "super" ? no_parent_block(block_.name) : Value::missing();
}

Value BlockReference::call(Interpreter& interpreter, Arguments&& arguments) {
  bind_nothing("the block", arguments);
  return Value::string(interpreter.run_block(block_, context_));
}

Value SelfReference::item(const Value& key) {
  if (!key.is_string()) return Value::missing();
  for (const auto& block : parsed_.blocks) {
    if (block->name == key.text()) return Value::object(std::make_shared<BlockReference>(*block, context_));
  }
  return Value::missing();
}

Value no_parent_block(std::string_view name) {
  return Value::undefined(fmt::format("there is no parent block called {}.", repr_of_text(name)));
}

}  // namespace moetier::jinja
