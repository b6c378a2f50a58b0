// What the parser makes of a template, and what the resolver adds: where each variable lives.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/template/operators.h"
#include "tokenizer/template/value.h"

namespace moetier::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<std::unique_ptr<Statement>>;

/// A variable: a slot of the function it is read in, or of one around it.
struct Place {
  int hops = -1;  ///< functions outwards; -1: not resolved
  int slot = -1;
};

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star;         ///< *values
  ExpressionPtr double_star;  ///< **values
};

struct Expression {
  enum class Kind {
    constant,
    name,
    namespace_target,  ///< name.attribute on the left of set
    tuple,             ///< parts; of a target too
    list,
    dict,         ///< parts: key, value, key, value, ...
    conditional,  ///< parts: test, then, otherwise (may be null)
    binary,
    both,    ///< and
    either,  ///< or
    negation,
    minus,
    plus,
    concatenation,
    comparison,  ///< parts and the comparisons between them
    attribute,
    item,    ///< parts: object, key
    slice,   ///< parts: object, start, stop, step (each may be null)
    call,    ///< parts: callee
    filter,  ///< parts: value (null in a filter block)
    test
  };
  Expression(Kind k, int l) : kind(k), line(l) {}

  Kind kind;
  int line;
  int height = 1;         ///< of the tree below
  std::string name;       ///< a name, attribute, filter or test
  std::string attribute;  ///< of a namespace target
  Value value;            ///< a constant
  Operator op{};
  std::vector<Comparison> comparisons;
  std::vector<ExpressionPtr> parts;
  std::unique_ptr<CallArguments> arguments;
  Place place;  ///< of a name
};
using ExpressionKind = Expression::Kind;

/// What a frame (a scope of the source) does on entry with one of its variables.
struct FrameLoad {
  enum class From { context, place, nothing };
  int slot = -1;
  From from = From::nothing;
  std::string name;
  Place place;
};

/// Runs when the frame is entered; its slots are emptied when it is left.
struct Frame {
  std::vector<FrameLoad> loads;
  std::vector<int> parameters;  ///< slots that something else fills
};

/// A macro, or the body of a call block or generation block.
struct MacroBody {
  std::string name;  ///< empty: anonymous
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  ///< of the last parameters
  Body body;
  Frame frame;
  std::vector<int> parameter_slots;
  int slots = 0;                                              ///< of the function
  int caller_slot = -1, kwargs_slot = -1, varargs_slot = -1;  ///< -1: not used in the body
  bool has_caller_parameter = false, accesses_caller = false;
};

struct BlockBody;

struct Statement {
  enum class Kind {
    text,
    output,  ///< expressions
    for_loop,
    if_block,
    macro,
    call_block,  ///< the call in `value`, the body in `macro`
    generation,  ///< Hugging Face's mark of what the model wrote: the body in `macro`
    filter_block,
    set,
    set_block,
    with,
    block,
    stop,    ///< break
    next,    ///< continue
    refused  ///< include, import, extends: a fault if it is ever reached
  };
  Statement(Kind k, int l) : kind(k), line(l) {}

  Kind kind;
  int line;
  std::string text;
  std::vector<ExpressionPtr> expressions;  ///< output; values of with
  std::vector<ExpressionPtr> targets;      ///< with
  ExpressionPtr target;                    ///< for, set
  ExpressionPtr value;                     ///< for: what is iterated; if: the test; set; call; filter
  ExpressionPtr condition;                 ///< for ... if
  ExpressionPtr condition_target;          ///< the target once more, for the condition's own variables
  Body body, otherwise;
  std::vector<std::unique_ptr<Statement>> elifs;  ///< if_block
  bool recursive = false;
  Frame frame, else_frame, test_frame;
  std::unique_ptr<MacroBody> macro;
  Place place;  ///< of the macro's name, the caller, or a loop's `loop` (slot -1: not used)
  int function_slots = 0, test_function_slots = 0;  ///< of the functions of a recursive loop and of a loop's test
  bool exports = false;                             ///< set or macro at the top: blocks see it too
  std::vector<std::pair<std::string, Place>> exported;
  BlockBody* block = nullptr;
  bool scoped = false, required = false;
};
using StatementKind = Statement::Kind;

/// {% block %}: rendered where it stands, in a scope of its own.
struct BlockBody {
  std::string name;
  int line = 0;
  Body body;
  Frame frame;
  int slots = 0;
  int self_slot = -1, super_slot = -1;
};

struct ParsedTemplate {
  Body body;
  std::vector<std::unique_ptr<BlockBody>> blocks;
  Frame frame;
  int slots = 0;
  int self_slot = -1;
};

}  // namespace moetier::jinja
