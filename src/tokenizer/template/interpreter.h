// Renders a resolved template.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/template/ast.h"
#include "tokenizer/template/object.h"

namespace moetier::jinja {

/// Variables by name, inside others.
struct Context {
  std::unordered_map<std::string, Value> variables;
  std::shared_ptr<const Context> outer;
  /// Missing if there is no such variable.
  Value find(const std::string& name) const;
};

/// One run of a function of the template (see FunctionScope): its variables, and those of the functions around it.
class Activation : public Tracked, public std::enable_shared_from_this<Activation> {
 public:
  Activation(std::shared_ptr<Activation> outer_activation, std::shared_ptr<const Context> names, int slot_count)
      : outer(std::move(outer_activation)),
        context(std::move(names)),
        slots(static_cast<size_t>(slot_count), Value::missing()),
        claim_(sizeof(Activation) + slots.size() * sizeof(Value)) {}
  void let_go() override { slots.clear(); }

  const std::shared_ptr<Activation> outer;
  const std::shared_ptr<const Context> context;
  std::vector<Value> slots;

 private:
  std::shared_ptr<const void> keep_alive() override { return shared_from_this(); }
  Claim claim_;
};

class Loop;
class Macro;

class Interpreter {
 public:
  Interpreter(const ParsedTemplate& parsed, std::shared_ptr<Context> variables,
              std::chrono::system_clock::time_point now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// The rendered text. A Fault carries the template's line.
  std::string run();

  Value call(const Value& callee, Arguments&& arguments);
  Value call_filter(const Value& name, Arguments&& arguments);
  Value call_test(const Value& name, Arguments&& arguments);
  Value call_macro(const Macro& macro, Arguments&& arguments);
  std::chrono::system_clock::time_point now() const { return now_; }

  /// Renders a recursive loop's body over `iterable`, `depth` loops deep.
  std::string run_recursive(const Statement& loop, const Value& iterable, const std::shared_ptr<Activation>& around,
                            int64_t depth);
  /// Whether the loop's condition holds for the item, in an activation made for the condition; `out` is the target's
  /// value.
  bool condition_holds(const Statement& loop, const Value& item, const std::shared_ptr<Activation>& activation,
                       Value& out);
  std::shared_ptr<Activation> condition_activation(const Statement& loop, const std::shared_ptr<Activation>& around);
  std::string run_block(const BlockBody& block, const std::shared_ptr<const Context>& context);

 private:
  enum class Flow { normal, stop, next };

  /// Makes an activation current while in scope.
  class Inside;
  /// Collects the output while in scope.
  class Capture;

  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow execute_for(const Statement& statement);
  Flow execute_loop(const Statement& statement, const Value& iterable, int64_t depth);
  Flow execute_if(const Statement& statement);
  void execute_macro(const Statement& statement);
  void execute_call_block(const Statement& statement);
  void execute_generation(const Statement& statement);
  /// The body of a filter or set block as text, unless it is left early.
  Flow capture_body(const Statement& statement, Value& text);
  Flow execute_filter_block(const Statement& statement);
  void execute_set(const Statement& statement);
  Flow execute_set_block(const Statement& statement);
  Flow execute_with(const Statement& statement);
  void execute_block(const Statement& statement);
  void export_names(const Statement& statement);

  void enter(const Frame& frame);
  void leave(const Frame& frame);
  void write(std::string_view text);
  /// What jinja2 joins without str(): anything but a string is a fault.
  void write_raw(const Value& value);
  void assign(const Expression& target, const Value& value);
  void unpack(const Expression& target, const Value& value);
  Value& slot(Place place);

  Value evaluate(const Expression& expression);
  Value evaluate_name(const Expression& expression);
  Value evaluate_conditional(const Expression& expression);
  Value evaluate_binary(const Expression& expression);
  Value evaluate_comparison(const Expression& expression);
  Value evaluate_concatenation(const Expression& expression);
  Value evaluate_items(const Expression& expression);
  Value evaluate_dict(const Expression& expression);
  Value evaluate_attribute(const Expression& expression);
  Value evaluate_item(const Expression& expression);
  Value evaluate_slice(const Expression& expression);
  Value evaluate_call(const Expression& expression, const Value* caller);
  Value evaluate_filter(const Expression& expression);
  Value evaluate_test(const Expression& expression);
  void evaluate_arguments(const CallArguments& source, Arguments& arguments);
  void add_double_star(const Value& mapping, Arguments& arguments);

  const ParsedTemplate& parsed_;
  std::shared_ptr<Context> context_;  ///< of the template; names set at the top are added
  std::chrono::system_clock::time_point now_;
  std::shared_ptr<Activation> activation_;
  Capture* output_ = nullptr;
  const Value* block_text_ = nullptr;  ///< what a filter block's first filter is applied to
  int line_ = 0;
};

}  // namespace moetier::jinja
