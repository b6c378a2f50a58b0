#include "tokenizer/template/interpreter.h"

#include "tokenizer/template/callables.h"
#include "tokenizer/template/filters.h"
#include "tokenizer/template/interpreter_scopes.h"
#include "tokenizer/template/operators.h"
#include "tokenizer/template/text.h"

namespace moetier::jinja {

Value Context::find(const std::string& name) const {
  for (const Context* context = this; context != nullptr; context = context->outer.get()) {
    const auto found = context->variables.find(name);
    if (found != context->variables.end()) return found->second;
  }
  return Value::missing();
}

Interpreter::Interpreter(const ParsedTemplate& parsed, std::shared_ptr<Context> variables,
                         std::chrono::system_clock::time_point now)
    : parsed_(parsed), now_(now) {
  context_ = std::make_shared<Context>();  // names set at the top stand before those given
  context_->outer = std::move(variables);
}

Interpreter::~Interpreter() {
  context_->variables.clear();
}  // macros at the top hold the context that holds them

std::string Interpreter::run() {
  try {
    const Inside inside(*this, std::make_shared<Activation>(nullptr, context_, parsed_.slots));
    const Capture capture(*this);
    if (parsed_.self_slot >= 0) {
      slot({0, parsed_.self_slot}) = Value::object(std::make_shared<SelfReference>(parsed_, context_));
    }
    enter(parsed_.frame);
    execute(parsed_.body);
    return capture.text();
  } catch (Fault& fault) {
    if (fault.line() == 0) fault.set_line(line_);
    throw;
  }
}

Value& Interpreter::slot(Place place) {
  Activation* activation = activation_.get();
  for (int i = 0; i < place.hops; ++i) activation = activation->outer.get();
  return activation->slots[static_cast<size_t>(place.slot)];
}

void Interpreter::enter(const Frame& frame) {
  for (const FrameLoad& load : frame.loads) {
    Value value = Value::missing();
    if (load.from == FrameLoad::From::context) value = activation_->context->find(load.name);
    if (load.from == FrameLoad::From::place) value = slot(load.place);
    slot({0, load.slot}) = std::move(value);
  }
}

void Interpreter::leave(const Frame& frame) {
  for (const FrameLoad& load : frame.loads) slot({0, load.slot}) = Value::missing();
  for (const int parameter : frame.parameters) slot({0, parameter}) = Value::missing();
}

void Interpreter::write(std::string_view text) {
  output_->write(text);
}

void Interpreter::write_raw(const Value& value) {
  if (!value.is_string()) {
    raise(FaultKind::type, "sequence item 0: expected str instance, {} found", type_name(value));
  }
  write(value.text());
}

void Interpreter::assign(const Expression& target, const Value& value) {
  switch (target.kind) {
    case ExpressionKind::name:
      slot(target.place) = value;
      return;
    case ExpressionKind::namespace_target: {
      auto* space = slot(target.place).object_as<Namespace>();
      if (space == nullptr) raise(FaultKind::runtime, "cannot assign attribute on non-namespace object");
      space->set(target.attribute, value);
      return;
    }
    default:
      unpack(target, value);
  }
}

void Interpreter::unpack(const Expression& target, const Value& value) {
  const Level level;
  const size_t wanted = target.parts.size();
  if (!is_iterable(value)) raise(FaultKind::type, "cannot unpack non-iterable {} object", type_name(value));
  const auto iterator = iterate(value);
  std::vector<Value> items;
  for (Value item; items.size() <= wanted && iterator->next(item);) items.push_back(item);
  if (items.size() > wanted) raise(FaultKind::value, "too many values to unpack (expected {})", wanted);
  if (items.size() < wanted) {
    raise(FaultKind::value, "not enough values to unpack (expected {}, got {})", wanted, items.size());
  }
  for (size_t i = 0; i < wanted; ++i) assign(*target.parts[i], items[i]);
}

Interpreter::Flow Interpreter::execute(const Body& body) {
  for (const auto& statement : body) {
    const Flow flow = execute(*statement);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  const Level level;
  spend(1);
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::text:
      write(statement.text);
      break;
    case StatementKind::output:
      for (const auto& expression : statement.expressions) {
        const Value value = evaluate(*expression);
        write(value.is_string() ? value.text() : std::string_view(str(value)));
      }
      break;
    case StatementKind::for_loop:
      return execute_for(statement);
    case StatementKind::if_block:
      return execute_if(statement);
    case StatementKind::macro:
      execute_macro(statement);
      break;
    case StatementKind::call_block:
      execute_call_block(statement);
      break;
    case StatementKind::generation:
      execute_generation(statement);
      break;
    case StatementKind::filter_block:
      return execute_filter_block(statement);
    case StatementKind::set:
      execute_set(statement);
      break;
    case StatementKind::set_block:
      return execute_set_block(statement);
    case StatementKind::with:
      return execute_with(statement);
    case StatementKind::block:
      execute_block(statement);
      break;
    case StatementKind::stop:
      return Flow::stop;
    case StatementKind::next:
      return Flow::next;
    case StatementKind::refused:
      raise(FaultKind::unsupported, "'{}' is not supported in a chat template: there are no other templates",
            statement.text);
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_for(const Statement& statement) {
  const Value iterable = evaluate(*statement.value);
  line_ = statement.line;
  if (!statement.recursive) return execute_loop(statement, iterable, 0);
  write(run_recursive(statement, iterable, activation_, 0));
  return Flow::normal;
}

std::string Interpreter::run_recursive(const Statement& loop, const Value& iterable,
                                       const std::shared_ptr<Activation>& around, int64_t depth) {
  const Inside inside(*this, std::make_shared<Activation>(around, around->context, loop.function_slots));
  const Capture capture(*this);
  execute_loop(loop, iterable, depth);
  return capture.text();
}

Interpreter::Flow Interpreter::execute_loop(const Statement& statement, const Value& iterable, int64_t depth) {
  const std::shared_ptr<Activation>& around = statement.recursive ? activation_->outer : activation_;
  Value source = iterable;
  if (statement.condition != nullptr) {
    source = Value::object(std::make_shared<ConditionIterator>(*this, statement, iterable, around));
  }
  std::shared_ptr<Iterator> iterator;
  if (statement.place.slot >= 0) {
    iterator = std::make_shared<Loop>(source, statement, statement.recursive ? around : nullptr, depth);
  } else {
    iterator = iterate(source);
  }
  bool completed = false;  // as in jinja2, an iteration that is left early does not count
  for (Value item; iterator->next(item);) {
    assign(*statement.target, item);
    if (statement.place.slot >= 0) slot(statement.place) = Value::object(iterator);
    enter(statement.frame);
    const Flow flow = execute(statement.body);
    if (flow == Flow::stop) break;
    completed = completed || flow == Flow::normal;
  }
  leave(statement.frame);
  if (statement.otherwise.empty() || completed) return Flow::normal;
  enter(statement.else_frame);
  const Flow flow = execute(statement.otherwise);
  leave(statement.else_frame);
  return flow;
}

std::shared_ptr<Activation> Interpreter::condition_activation(const Statement& loop,
                                                              const std::shared_ptr<Activation>& around) {
  auto own = std::make_shared<Activation>(around, around->context, loop.test_function_slots);
  const Inside inside(*this, own);
  enter(loop.test_frame);
  return own;
}

bool Interpreter::condition_holds(const Statement& loop, const Value& item,
                                  const std::shared_ptr<Activation>& activation, Value& out) {
  const Inside inside(*this, activation);
  assign(*loop.condition_target, item);
  if (!truth(evaluate(*loop.condition))) return false;
  out = evaluate(*loop.condition_target);
  return true;
}

Interpreter::Flow Interpreter::execute_if(const Statement& statement) {
  if (truth(evaluate(*statement.value))) return execute(statement.body);
  for (const auto& elif : statement.elifs) {
    line_ = elif->line;
    if (truth(evaluate(*elif->value))) return execute(elif->body);
  }
  return execute(statement.otherwise);
}

void Interpreter::export_names(const Statement& statement) {
  for (const auto& [name, place] : statement.exported) context_->variables[name] = slot(place);
}

void Interpreter::execute_macro(const Statement& statement) {
  const Value macro = Value::object(std::make_shared<Macro>(*statement.macro, activation_));
  slot(statement.place) = macro;
  if (statement.exports) context_->variables[statement.macro->name] = macro;
}

void Interpreter::execute_call_block(const Statement& statement) {
  const Value caller = Value::object(std::make_shared<Macro>(*statement.macro, activation_));
  write_raw(evaluate_call(*statement.value, &caller));
}

void Interpreter::execute_generation(const Statement& statement) {
  const Macro body(*statement.macro, activation_);
  write_raw(call_macro(body, {}));
}

Interpreter::Flow Interpreter::capture_body(const Statement& statement, Value& text) {
  enter(statement.frame);
  const Capture capture(*this);
  const Flow flow = execute(statement.body);
  if (flow == Flow::normal) text = Value::string(capture.text());
  return flow;
}

Interpreter::Flow Interpreter::execute_filter_block(const Statement& statement) {
  Value text;
  const Flow flow = capture_body(statement, text);
  if (flow != Flow::normal) return flow;
  const BlockText block_text(block_text_, &text);
  write_raw(evaluate(*statement.value));
  leave(statement.frame);
  return Flow::normal;
}

void Interpreter::execute_set(const Statement& statement) {
  const Value value = evaluate(*statement.value);
  line_ = statement.line;
  assign(*statement.target, value);
  export_names(statement);
}

Interpreter::Flow Interpreter::execute_set_block(const Statement& statement) {
  Value text;
  const Flow flow = capture_body(statement, text);
  if (flow != Flow::normal) return flow;
  if (statement.value != nullptr) {
    const BlockText block_text(block_text_, &text);
    text = evaluate(*statement.value);
  }
  assign(*statement.target, text);
  export_names(statement);
  leave(statement.frame);
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_with(const Statement& statement) {
  enter(statement.frame);
  for (size_t i = 0; i < statement.targets.size(); ++i) {
    assign(*statement.targets[i], evaluate(*statement.expressions[i]));
  }
  const Flow flow = execute(statement.body);
  leave(statement.frame);
  return flow;
}

void Interpreter::execute_block(const Statement& statement) {
  if (statement.required) {
    raise(FaultKind::runtime, "Required block {} not found", repr_of_text(statement.block->name));
  }
  std::shared_ptr<const Context> context = activation_->context;
  if (statement.scoped) {
    auto derived = std::make_shared<Context>();
    for (const auto& [name, place] : statement.exported) {
      const Value& value = slot(place);
      if (!value.is_missing()) derived->variables[name] = value;
    }
    derived->outer = context;
    context = derived;
  }
  write(run_block(*statement.block, context));
}

std::string Interpreter::run_block(const BlockBody& block, const std::shared_ptr<const Context>& context) {
  const Level level;
  const Inside inside(*this, std::make_shared<Activation>(nullptr, context, block.slots));
  const Capture capture(*this);
  if (block.self_slot >= 0) {
    slot({0, block.self_slot}) = Value::object(std::make_shared<SelfReference>(parsed_, context));
  }
  if (block.super_slot >= 0) slot({0, block.super_slot}) = no_parent_block(block.name);
  enter(block.frame);
  execute(block.body);
  return capture.text();
}

Value Interpreter::call_macro(const Macro& macro, Arguments&& arguments) {
  const MacroBody& body = macro.body;
  const size_t count = body.parameters.size(), given = arguments.positional.size();
  const Inside inside(*this, std::make_shared<Activation>(macro.around, macro.around->context, body.slots));
  const Capture capture(*this);
  auto& slots = activation_->slots;
  const auto take = [&](std::string_view name) {
    for (auto it = arguments.named.begin(); it != arguments.named.end(); ++it) {
      if (it->first != name) continue;
      Value value = std::move(it->second);
      arguments.named.erase(it);
      return value;
    }
    return Value::missing();
  };
  for (size_t i = 0; i < count; ++i) {
    slots[static_cast<size_t>(body.parameter_slots[i])] =
        i < given ? arguments.positional[i] : take(body.parameters[i]);
  }
  if (body.caller_slot >= 0) {
    Value caller = take("caller");
    if (caller.is_missing() || caller.is_none()) caller = Value::undefined("No caller defined");
    slots[static_cast<size_t>(body.caller_slot)] = std::move(caller);
  }
  if (body.kwargs_slot >= 0) {
    auto rest = std::make_shared<DictData>();
    for (auto& [name, value] : arguments.named) rest->set(Value::string(name), std::move(value));
    slots[static_cast<size_t>(body.kwargs_slot)] = Value::dict(std::move(rest));
  } else if (!arguments.named.empty()) {
    raise(FaultKind::type, "macro {} takes no keyword argument {}",
          body.name.empty() ? "None" : repr_of_text(body.name), repr_of_text(arguments.named.front().first));
  }
  if (body.varargs_slot >= 0) {
    const auto rest = arguments.positional.begin() + static_cast<ptrdiff_t>(std::min(given, count));
    slots[static_cast<size_t>(body.varargs_slot)] = Value::tuple({rest, arguments.positional.end()});
  } else if (given > count) {
    raise(FaultKind::type, "macro {} takes not more than {} argument(s)",
          body.name.empty() ? "None" : repr_of_text(body.name), count);
  }
  enter(body.frame);
  for (size_t i = 0; i < count; ++i) {
    Value& parameter = slots[static_cast<size_t>(body.parameter_slots[i])];
    if (!parameter.is_missing()) continue;
    const size_t first_default = count - body.defaults.size();
    parameter = i < first_default
                    ? Value::undefined(fmt::format("parameter {} was not provided", repr_of_text(body.parameters[i])))
                    : evaluate(*body.defaults[i - first_default]);
  }
  execute(body.body);
  return Value::string(capture.text());
}

}  // namespace moetier::jinja
