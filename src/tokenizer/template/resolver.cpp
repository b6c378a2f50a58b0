#include "tokenizer/template/resolver.h"

#include <algorithm>
#include <array>

#include "tokenizer/template/filters.h"
#include "tokenizer/template/symbols.h"
#include "tokenizer/template/text.h"

namespace moetier::jinja {
namespace {

/// What the resolver knows of the place it is at.
struct Here {
  Symbols& symbols;
  bool soft = false;       ///< in an if: a filter that does not exist is a fault only when it is reached
  bool top = false;        ///< at the top, ifs aside
  bool in_loop = false;    ///< of this function
  bool below_for = false;  ///< anywhere in a loop's source

  Here inside(Symbols& inner) const { return {inner, false, false, in_loop, below_for}; }
  Here in_function(Symbols& inner) const { return {inner, false, false, false, below_for}; }
};

bool is_python_keyword(std::string_view name) {
  static constexpr std::array<std::string_view, 35> words = {
      "False", "None",     "True",  "and",    "as",   "assert", "async",  "await",    "break",
      "class", "continue", "def",   "del",    "elif", "else",   "except", "finally",  "for",
      "from",  "global",   "if",    "import", "in",   "is",     "lambda", "nonlocal", "not",
      "or",    "pass",     "raise", "return", "try",  "while",  "with",   "yield"};
  return std::find(words.begin(), words.end(), name) != words.end();
}

bool has_scoped_block(const Body& body) {
  return std::any_of(body.begin(), body.end(), [](const std::unique_ptr<Statement>& statement) {
    const Level level;
    spend(1);
    if (statement->kind == StatementKind::block && (statement->scoped || has_scoped_block(statement->block->body))) {
      return true;
    }
    return has_scoped_block(statement->body) || has_scoped_block(statement->otherwise) ||
           has_scoped_block(statement->elifs) ||
           (statement->macro != nullptr && has_scoped_block(statement->macro->body));
  });
}

class Resolver {
 public:
  explicit Resolver(ParsedTemplate& parsed) : parsed_(parsed) {}

  void run() {
    FunctionScope function;
    Symbols symbols(function, nullptr);
    if (find_undeclared(parsed_.body, {"self"}).count("self") != 0)
      parsed_.self_slot = symbols.declare_parameter("self");
    symbols.find_in(parsed_.body);
    parsed_.frame = symbols.frame();
    visit(parsed_.body, {symbols, false, true});
    parsed_.slots = function.size();
    for (const auto& block : parsed_.blocks) visit_block_body(*block);
  }

 private:
  [[noreturn]] static void fail(const std::string& message, int line) { throw Fault(FaultKind::syntax, message, line); }

  void visit_block_body(BlockBody& block) {
    FunctionScope function;
    Symbols symbols(function, nullptr);
    const auto used = find_undeclared(block.body, {"self", "super"});
    if (used.count("self") != 0) block.self_slot = symbols.declare_parameter("self");
    if (used.count("super") != 0) block.super_slot = symbols.declare_parameter("super");
    symbols.find_in(block.body);
    block.frame = symbols.frame();
    visit(block.body, {symbols});
    block.slots = function.size();
  }

  void visit(Body& body, const Here& here) {
    for (auto& statement : body) visit(*statement, here);
  }

  void visit(Statement& statement, const Here& here) {
    const Level level;
    spend(1);
    switch (statement.kind) {
      case StatementKind::output:
        for (auto& expression : statement.expressions) visit(expression.get(), here);
        return;
      case StatementKind::for_loop:
        return visit_for(statement, here);
      case StatementKind::if_block:
        return visit_if(statement, here);
      case StatementKind::macro:
        visit_macro(*statement.macro, here, statement.line);
        statement.place = here.symbols.place(statement.macro->name);
        statement.exports = here.top;
        return;
      case StatementKind::call_block:
        return visit_call_block(statement, here);
      case StatementKind::generation:
        return visit_macro(*statement.macro, here, statement.line);
      case StatementKind::filter_block:
        return visit_filtered(statement, here);
      case StatementKind::set:
        visit(statement.value.get(), here);
        return visit_set_target(statement, here);
      case StatementKind::set_block:
        return visit_set_block(statement, here);
      case StatementKind::with:
        return visit_with(statement, here);
      case StatementKind::block:
        if (statement.scoped) statement.exported = here.symbols.stored_places();
        return;
      case StatementKind::stop:
      case StatementKind::next:
        if (!here.in_loop) {
          fail(statement.kind == StatementKind::stop ? "'break' outside loop" : "'continue' not properly in loop",
               statement.line);
        }
        return;
      default:
        return;
    }
  }

  void visit_if(Statement& statement, const Here& here) {
    Here soft = here;
    soft.soft = true;
    visit(statement.value.get(), soft);
    visit(statement.body, soft);
    for (auto& elif : statement.elifs) {
      visit(elif->value.get(), soft);
      visit(elif->body, soft);
    }
    visit(statement.otherwise, soft);
  }

  void visit_for(Statement& statement, const Here& here) {
    FunctionScope own_function{here.symbols.function().depth + 1, {}};
    FunctionScope test_function{here.symbols.function().depth + 1, {}};
    FunctionScope& function = statement.recursive ? own_function : here.symbols.function();

    Symbols loop(function, &here.symbols), otherwise(function, &here.symbols), test(test_function, &here.symbols);
    const bool uses_loop = statement.recursive || find_undeclared(statement.body, {"loop"}).count("loop") != 0 ||
                           has_scoped_block(statement.body) || has_scoped_block(statement.otherwise);
    if (uses_loop) statement.place = {0, loop.declare_parameter("loop")};
    loop.declare_target(*statement.target);
    loop.find_in(statement.body);
    otherwise.find_in(statement.otherwise);
    statement.frame = loop.frame();
    statement.else_frame = otherwise.frame();

    visit(statement.value.get(), here);
    Here in_body = here.inside(loop);
    in_body.in_loop = in_body.below_for = true;
    visit_target(*statement.target, in_body);
    if (statement.condition != nullptr) {
      test.declare_target(*statement.target);
      test.find_in(statement.condition.get());
      statement.test_frame = test.frame();
      test_function.slot(0, "");  // so that the size is never zero
      condition(statement, here.in_function(test));
      statement.test_function_slots = test_function.size();
    }
    visit(statement.body, in_body);
    Here in_else = here.inside(otherwise);
    in_else.in_loop = here.in_loop && !statement.recursive;
    in_else.below_for = true;
    visit(statement.otherwise, in_else);
    if (statement.recursive) statement.function_slots = own_function.size();
  }

  /// The loop's condition runs in a function of its own, which has its own copy of the target.
  void condition(Statement& statement, const Here& here) {
    statement.condition_target = copy_of_target(*statement.target);
    visit_target(*statement.condition_target, here);
    visit(statement.condition.get(), here);
  }

  static ExpressionPtr copy_of_target(const Expression& target) {
    auto copy = std::make_unique<Expression>(target.kind, target.line);
    copy->name = target.name;
    for (const auto& part : target.parts) copy->parts.push_back(copy_of_target(*part));
    return copy;
  }

  void visit_macro(MacroBody& macro, const Here& here, int line) {
    FunctionScope function{here.symbols.function().depth + 1, {}};
    Symbols symbols(function, &here.symbols);
    for (const std::string& parameter : macro.parameters) {
      macro.parameter_slots.push_back(symbols.declare_parameter(parameter));
    }
    const auto has_parameter = [&](std::string_view name) {
      return std::find(macro.parameters.begin(), macro.parameters.end(), name) != macro.parameters.end();
    };
    macro.has_caller_parameter = has_parameter("caller");
    const auto used = find_undeclared(macro.body, {"caller", "kwargs", "varargs"});
    if (used.count("caller") != 0) {
      if (macro.has_caller_parameter) {
        const auto at = std::find(macro.parameters.begin(), macro.parameters.end(), "caller");
        if (macro.parameters.end() - at > static_cast<ptrdiff_t>(macro.defaults.size())) {
          fail(
              "When defining macros or call blocks the special \"caller\" argument must be omitted or be given a "
              "default.",
              line);
        }
      } else {
        macro.caller_slot = symbols.declare_parameter("caller");
      }
    }
    macro.accesses_caller = used.count("caller") != 0;
    if (used.count("kwargs") != 0 && !has_parameter("kwargs")) macro.kwargs_slot = symbols.declare_parameter("kwargs");
    if (used.count("varargs") != 0 && !has_parameter("varargs"))
      macro.varargs_slot = symbols.declare_parameter("varargs");
    for (const auto& value : macro.defaults) symbols.find_in(value.get());
    symbols.find_in(macro.body);
    macro.frame = symbols.frame();
    const Here inside = here.in_function(symbols);
    for (auto& value : macro.defaults) visit(value.get(), inside);
    visit(macro.body, inside);
    macro.slots = function.size();
  }

  void visit_call_block(Statement& statement, const Here& here) {
    visit_macro(*statement.macro, here, statement.line);
    for (const auto& [name, value] : statement.value->arguments->named) {
      if (name == "caller") fail("keyword argument repeated: caller", statement.line);
    }
    visit(statement.value.get(), here);
  }

  /// The body and the filter of a filter block, or of a set block.
  void visit_filtered(Statement& statement, const Here& here) {
    Symbols symbols(here.symbols.function(), &here.symbols);
    symbols.find_in(statement.body);
    symbols.find_in(statement.value.get());
    statement.frame = symbols.frame();
    const Here inside = here.inside(symbols);
    visit(statement.body, inside);
    visit(statement.value.get(), inside);
  }

  void visit_set_block(Statement& statement, const Here& here) {
    visit_filtered(statement, here);
    visit_set_target(statement, here);
  }

  void visit_with(Statement& statement, const Here& here) {
    Symbols symbols(here.symbols.function(), &here.symbols);
    for (const auto& target : statement.targets) symbols.declare_target(*target);
    symbols.find_in(statement.body);
    statement.frame = symbols.frame();
    const Here inside = here.inside(symbols);
    for (auto& value : statement.expressions) visit(value.get(), here);
    for (auto& target : statement.targets) visit_names(*target, inside);
    visit(statement.body, inside);
  }

  void visit_set_target(Statement& statement, const Here& here) {
    visit_target(*statement.target, here);
    if (here.top) export_names(*statement.target, statement);
  }

  static void export_names(const Expression& target, Statement& statement) {
    if (target.kind == ExpressionKind::name) statement.exported.emplace_back(target.name, target.place);
    for (const auto& part : target.parts) export_names(*part, statement);
  }

  void visit_target(Expression& target, const Here& here) {
    if (target.kind == ExpressionKind::name && target.name == "loop" && here.below_for) {
      fail("Can't assign to special loop variable in for-loop target", target.line);
    }
    if (target.kind == ExpressionKind::name || target.kind == ExpressionKind::namespace_target) {
      target.place = here.symbols.place(target.name);
    }
    for (auto& part : target.parts) visit_target(*part, here);
  }

  void visit_names(Expression& target, const Here& here) {
    if (target.kind == ExpressionKind::name) target.place = here.symbols.place(target.name);
    for (auto& part : target.parts) visit_names(*part, here);
  }

  void visit(Expression* expression, const Here& here) {
    if (expression == nullptr) return;
    const Level level;
    spend(1);
    switch (expression->kind) {
      case ExpressionKind::name:
        expression->place = here.symbols.place(expression->name);
        return;
      case ExpressionKind::conditional: {
        Here soft = here;
        soft.soft = true;
        for (auto& part : expression->parts) visit(part.get(), soft);
        return;
      }
      case ExpressionKind::filter:
        if (!here.soft && find_filter(expression->name) == nullptr) {
          fail(fmt::format("No filter named {}.", repr_of_text(expression->name)), expression->line);
        }
        break;
      case ExpressionKind::test:
        if (!here.soft && find_test(expression->name) == nullptr) {
          fail(fmt::format("No test named {}.", repr_of_text(expression->name)), expression->line);
        }
        break;
      default:
        break;
    }
    for (auto& part : expression->parts) visit(part.get(), here);
    if (expression->arguments != nullptr) visit_arguments(*expression, here);
  }

  void visit_arguments(Expression& expression, const Here& here) {
    CallArguments& arguments = *expression.arguments;
    for (auto& argument : arguments.positional) visit(argument.get(), here);
    bool has_keyword = false;
    for (auto& [name, argument] : arguments.named) {
      visit(argument.get(), here);
      has_keyword = has_keyword || is_python_keyword(name);
    }
    for (size_t i = 0; i < arguments.named.size() && !has_keyword; ++i) {
      for (size_t j = 0; j < i; ++j) {
        spend(1);
        if (arguments.named[i].first == arguments.named[j].first) {
          fail(fmt::format("keyword argument repeated: {}", arguments.named[i].first), expression.line);
        }
      }
    }
    visit(arguments.star.get(), here);
    visit(arguments.double_star.get(), here);
  }

  ParsedTemplate& parsed_;
};

}  // namespace

void resolve(ParsedTemplate& parsed) {
  Resolver(parsed).run();
}

}  // namespace moetier::jinja
