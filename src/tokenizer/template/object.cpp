#include "tokenizer/template/object.h"

#include "tokenizer/template/methods.h"
#include "tokenizer/template/operators.h"
#include "tokenizer/template/text.h"

namespace moetier::jinja {
namespace {

thread_local Tracked* tracked = nullptr;  // the list of the innermost Scope, newest first

}  // namespace

std::string Object::repr() const {
  const std::string_view module = module_name();
  return fmt::format("<{}{}{} object>", module, module.empty() ? "" : ".", type_name());
}

Value Object::call(Interpreter&, Arguments&&) {
  raise(FaultKind::type, "'{}' object is not callable", type_name());
}

std::shared_ptr<Iterator> Iterator::iterate() {
  return std::static_pointer_cast<Iterator>(shared_from_this());
}

bool Iterator::next(Value& out) {
  const Level level;
  spend(1);
  return advance(out);
}

Tracked::Tracked() : next_(tracked) {
  if (next_ != nullptr) next_->previous_ = this;
  tracked = this;
}

Tracked::~Tracked() {
  if (tracked == this) tracked = next_;
  if (previous_ != nullptr) previous_->next_ = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
}

Tracked::Scope::Scope() : outer_(tracked) {
  tracked = nullptr;
}

Tracked::Scope::~Scope() {
  // Letting go may free other objects of the list, and this one once nobody holds it.
  while (tracked != nullptr) {
    Tracked* object = tracked;
    const auto alive = object->keep_alive();
    tracked = object->next_;
    if (tracked != nullptr) tracked->previous_ = nullptr;
    object->next_ = nullptr;
    object->let_go();
  }
  tracked = outer_;
}

Range::Range(Integer start, Integer stop, Integer step) : start_(start), stop_(stop), step_(step), count_(0) {
  if (step == 0) raise(FaultKind::value, "range() arg 3 must not be zero");
  const Integer distance = step > 0 ? checked_subtract(stop, start) : checked_subtract(start, stop);
  if (distance <= 0) return;
  const Integer stride = step > 0 ? step : checked_subtract(0, step);
  const Integer count = (distance - 1) / stride + 1;
  if (count > Limits::range) {
    raise(FaultKind::overflow, "Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", Limits::range);
  }
  count_ = static_cast<size_t>(count);
}

std::string Range::repr() const {
  if (step_ == 1) return fmt::format("range({}, {})", integer_text(start_), integer_text(stop_));
  return fmt::format("range({}, {}, {})", integer_text(start_), integer_text(stop_), integer_text(step_));
}

Value Range::attribute(std::string_view name) {
  if (name == "start") return Value::integer(start_);
  if (name == "stop") return Value::integer(stop_);
  if (name == "step") return Value::integer(step_);
  return method_of(Value::object(shared_from_this()), name);
}

Value Range::item(const Value& key) {
  if (!key.is_integer()) return Value::missing();
  Integer index = key.as_integer();
  if (index < 0) index += static_cast<Integer>(count_);
  if (index < 0 || index >= static_cast<Integer>(count_)) return Value::missing();
  return Value::integer(at(static_cast<size_t>(index)));
}

std::shared_ptr<Iterator> Range::iterate() {
  return jinja::iterate(Value::object(shared_from_this()));
}

bool Range::contains(Integer value) const {
  if (count_ == 0) return false;
  const Integer first = start_, last = at(count_ - 1);
  if (value < std::min(first, last) || value > std::max(first, last)) return false;
  return (value - start_) % step_ == 0;
}

bool Range::equals(const Object& other) const {
  const auto* range = dynamic_cast<const Range*>(&other);
  if (range == nullptr || range->count_ != count_) return false;
  return count_ == 0 || (start_ == range->start_ && (count_ == 1 || step_ == range->step_));
}

uint64_t Range::hash() const {
  if (count_ == 0) return 1;
  return static_cast<uint64_t>(start_) * 31 + count_ + (count_ == 1 ? 0 : static_cast<uint64_t>(step_) * 7);
}

std::string_view DictView::type_name() const {
  switch (part_) {
    case Part::keys:
      return "dict_keys";
    case Part::values:
      return "dict_values";
    case Part::items:
      return "dict_items";
  }
  return {};
}

std::string DictView::repr() const {
  std::vector<Value> items;
  for (size_t i = 0; i < dict_.dict_data().size(); ++i) items.push_back(at(i));
  return fmt::format("{}({})", type_name(), jinja::repr(Value::list(std::move(items))));
}

Value DictView::attribute(std::string_view name) {
  return name == "mapping" ? dict_ : Value::missing();
}

std::shared_ptr<Iterator> DictView::iterate() {
  return jinja::iterate(Value::object(shared_from_this()));
}

bool DictView::equals(const Object& other) const {
  if (this == &other) return true;
  const auto* view = dynamic_cast<const DictView*>(&other);
  if (view == nullptr || part_ == Part::values || view->part_ == Part::values) return false;
  if (dict_.dict_data().size() != view->dict_.dict_data().size()) return false;
  for (size_t i = 0; i < dict_.dict_data().size(); ++i) {
    if (!contains(Value::object(std::const_pointer_cast<Object>(view->shared_from_this())), at(i))) return false;
  }
  return true;
}

uint64_t DictView::hash() const {
  if (part_ != Part::values) raise(FaultKind::type, "unhashable type: '{}'", type_name());
  return Object::hash();
}

Value DictView::at(size_t index) const {
  const auto& [key, value] = dict_.dict_data().entries()[index];
  switch (part_) {
    case Part::keys:
      return key;
    case Part::values:
      return value;
    case Part::items:
      return Value::tuple({key, value});
  }
  return {};
}

std::string Function::repr() const {
  return fmt::format("<{} {}>", is_type_ ? "class" : "function", name_);
}

Value Function::call(Interpreter& interpreter, Arguments&& arguments) {
  return function_(interpreter, std::move(arguments));
}

std::string BoundMethod::repr() const {
  return fmt::format("<built-in method {} of {} object>", name_, jinja::type_name(self_));
}

Value BoundMethod::call(Interpreter& interpreter, Arguments&& arguments) {
  return method_(interpreter, self_, std::move(arguments));
}

bool BoundMethod::equals(const Object& other) const {
  const auto* method = dynamic_cast<const BoundMethod*>(&other);
  return method != nullptr && method->name_ == name_ && method->self_.same_as(self_);
}

std::string Namespace::repr() const {
  if (printing_) return "<Namespace {...}>";
  printing_ = true;
  std::string out = "<Namespace {";
  try {
    bool first = true;
    for (const auto& [key, value] : attributes_.entries()) {
      if (!first) out += ", ";
      first = false;
      append_repr(out, key);
      out += ": ";
      append_repr(out, value);
    }
  } catch (...) {
    printing_ = false;
    throw;
  }
  printing_ = false;
  return out + "}>";
}

Value Namespace::attribute(std::string_view name) {
  const Value* value = attributes_.find(name);
  return value != nullptr ? *value : Value::missing();
}

void Namespace::set(std::string_view name, Value value) {
  attributes_.set(Value::string(std::string(name)), std::move(value));
}

}  // namespace moetier::jinja
