#include "tokenizer/template/parser.h"

#include <algorithm>
#include <unordered_set>

#include "tokenizer/template/parser_base.h"
#include "tokenizer/template/text.h"
#include "tokenizer/template/unicode.h"

namespace moetier::jinja {
namespace {

using EndTags = std::initializer_list<std::string_view>;
using StatementPtr = std::unique_ptr<Statement>;

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  std::unique_ptr<ParsedTemplate> run() {
    parsed_->body = parse_until({});
    return std::move(parsed_);
  }

 private:
  /// Statements up to a block tag of `end_tags`, which is left current; the whole template without any.
  Body parse_until(EndTags end_tags) {
    const Nested nested(*this);
    Body body;
    while (!current().is(TokenKind::end)) {
      const Token& token = current();
      const int line = token.line;
      if (token.is(TokenKind::data)) {
        auto text = std::make_unique<Statement>(StatementKind::text, line);
        text->text = take().text;
        body.push_back(std::move(text));
      } else if (token.is(TokenKind::variable_begin)) {
        take();
        auto output = std::make_unique<Statement>(StatementKind::output, line);
        output->expressions.push_back(parse_tuple());
        expect(TokenKind::variable_end);
        body.push_back(std::move(output));
      } else {
        expect(TokenKind::block_begin);
        if (std::any_of(end_tags.begin(), end_tags.end(), [&](auto tag) { return current().is_name(tag); }))
          return body;
        waiting_for_.push_back(end_tags);
        body.push_back(parse_statement());
        waiting_for_.pop_back();
        expect(TokenKind::block_end);
      }
    }
    return body;
  }

  /// The body of a block, behind its head; the end tag's name is left current.
  Body parse_body(EndTags end_tags) {
    skip_op(":");
    expect(TokenKind::block_end);
    Body body = parse_until(end_tags);
    if (current().is(TokenKind::end)) unexpected_end(end_tags);
    return body;
  }

  Body parse_whole_body(std::string_view end_tag) {
    Body body = parse_body({end_tag});
    take();
    return body;
  }

  static std::string listed(EndTags tags) {
    std::string out;
    for (const std::string_view tag : tags) {
      if (!out.empty()) out += " or ";
      out += fmt::format("'{}'", tag);
    }
    return out;
  }

  std::string innermost() const {
    if (open_.empty()) return {};
    return fmt::format(" The innermost block that needs to be closed is '{}'.", open_.back());
  }

  [[noreturn]] void unexpected_end(EndTags tags) const {
    fail(fmt::format("Unexpected end of template. Jinja was looking for the following tags: {}.{}", listed(tags),
                     innermost()));
  }

  [[noreturn]] void unknown_tag(const Token& token) const {
    std::string message = fmt::format("Encountered unknown tag {}.", repr_of_text(token.text));
    if (!waiting_for_.empty() && waiting_for_.back().size() != 0) {
      const bool expected = std::any_of(waiting_for_.begin(), waiting_for_.end(), [&](EndTags tags) {
        return std::find(tags.begin(), tags.end(), token.text) != tags.end();
      });
      message += expected
                     ? " You probably made a nesting mistake. Jinja is expecting this tag, but currently looking for "
                     : " Jinja was looking for the following tags: ";
      message += listed(waiting_for_.back()) + ".";
    }
    fail(message + innermost(), token.line);
  }

  StatementPtr parse_statement() {
    if (!current().is(TokenKind::name)) fail("tag name expected");
    const Token token = current();
    const std::string& tag = token.text;
    if (tag == "break" || tag == "continue") {
      take();
      return std::make_unique<Statement>(tag == "break" ? StatementKind::stop : StatementKind::next, token.line);
    }
    StatementPtr (Parser::*parse)(int) = parser_of(tag);
    if (parse == nullptr) unknown_tag(token);
    take();
    open_.push_back(tag);
    StatementPtr statement = (this->*parse)(token.line);
    open_.pop_back();
    return statement;
  }

  static auto parser_of(std::string_view tag) -> StatementPtr (Parser::*)(int) {
    static constexpr std::pair<std::string_view, StatementPtr (Parser::*)(int)> parsers[] = {
        {"for", &Parser::parse_for},
        {"if", &Parser::parse_if},
        {"set", &Parser::parse_set},
        {"macro", &Parser::parse_macro},
        {"call", &Parser::parse_call_block},
        {"filter", &Parser::parse_filter_block},
        {"with", &Parser::parse_with},
        {"block", &Parser::parse_block},
        {"print", &Parser::parse_print},
        {"generation", &Parser::parse_generation},
        {"include", &Parser::parse_include},
        {"import", &Parser::parse_import},
        {"from", &Parser::parse_from},
        {"extends", &Parser::parse_extends},
        {"autoescape", &Parser::parse_autoescape}};
    for (const auto& [name, parser] : parsers) {
      if (name == tag) return parser;
    }
    return nullptr;
  }

  StatementPtr parse_for(int line) {
    auto loop = std::make_unique<Statement>(StatementKind::for_loop, line);
    loop->target = parse_target(false);
    expect_name("in");
    loop->value = parse_tuple(false);
    if (skip_name("if")) loop->condition = parse_expression();
    loop->recursive = skip_name("recursive");
    loop->body = parse_body({"endfor", "else"});
    if (take().text == "else") loop->otherwise = parse_whole_body("endfor");
    return loop;
  }

  StatementPtr parse_if(int line) {
    auto first = std::make_unique<Statement>(StatementKind::if_block, line);
    Statement* branch = first.get();
    while (true) {
      branch->value = parse_tuple(false);
      branch->body = parse_body({"elif", "else", "endif"});
      const Token& end = take();
      if (end.text == "elif") {
        first->elifs.push_back(std::make_unique<Statement>(StatementKind::if_block, current().line));
        branch = first->elifs.back().get();
        continue;
      }
      if (end.text == "else") first->otherwise = parse_whole_body("endif");
      return first;
    }
  }

  StatementPtr parse_set(int line) {
    ExpressionPtr target = parse_target(true);
    if (skip_op("=")) {
      auto set = std::make_unique<Statement>(StatementKind::set, line);
      set->target = std::move(target);
      set->value = parse_tuple();
      return set;
    }
    auto set = std::make_unique<Statement>(StatementKind::set_block, line);
    set->target = std::move(target);
    set->value = parse_filters(nullptr, false);
    set->body = parse_whole_body("endset");
    return set;
  }

  void parse_signature(MacroBody& macro) {
    expect_op("(");
    while (!current().is_op(")")) {
      if (!macro.parameters.empty()) expect_op(",");
      std::string name = parse_target_name();
      if (std::find(macro.parameters.begin(), macro.parameters.end(), name) != macro.parameters.end()) {
        fail(fmt::format("duplicate argument '{}' in function definition", name));
      }
      macro.parameters.push_back(std::move(name));
      if (skip_op("=")) {
        macro.defaults.push_back(parse_expression());
      } else if (!macro.defaults.empty()) {
        fail("non-default argument follows default argument");
      }
    }
    expect_op(")");
  }

  StatementPtr parse_macro(int line) {
    auto statement = std::make_unique<Statement>(StatementKind::macro, line);
    statement->macro = std::make_unique<MacroBody>();
    statement->macro->name = parse_target_name();
    parse_signature(*statement->macro);
    statement->macro->body = parse_whole_body("endmacro");
    return statement;
  }

  StatementPtr parse_call_block(int line) {
    auto statement = std::make_unique<Statement>(StatementKind::call_block, line);
    statement->macro = std::make_unique<MacroBody>();
    if (current().is_op("(")) parse_signature(*statement->macro);
    statement->value = parse_expression();
    if (statement->value->kind != ExpressionKind::call) fail("expected call", line);
    statement->macro->body = parse_whole_body("endcall");
    return statement;
  }

  StatementPtr parse_generation(int line) {
    auto statement = std::make_unique<Statement>(StatementKind::generation, line);
    statement->macro = std::make_unique<MacroBody>();
    statement->macro->body = parse_whole_body("endgeneration");
    return statement;
  }

  StatementPtr parse_filter_block(int line) {
    auto statement = std::make_unique<Statement>(StatementKind::filter_block, line);
    statement->value = parse_filters(nullptr, true);
    statement->body = parse_whole_body("endfilter");
    return statement;
  }

  StatementPtr parse_with(int line) {
    auto statement = std::make_unique<Statement>(StatementKind::with, line);
    while (!current().is(TokenKind::block_end)) {
      if (!statement->targets.empty()) expect_op(",");
      statement->targets.push_back(parse_target(false));
      expect_op("=");
      statement->expressions.push_back(parse_expression());
    }
    statement->body = parse_whole_body("endwith");
    return statement;
  }

  StatementPtr parse_block(int line) {
    auto statement = std::make_unique<Statement>(StatementKind::block, line);
    auto block = std::make_unique<BlockBody>();
    block->line = line;
    block->name = expect(TokenKind::name).text;
    statement->scoped = skip_name("scoped");
    statement->required = skip_name("required");
    if (current().is_op("-")) {
      fail(
          "Block names in Jinja have to be valid Python identifiers and may not contain hyphens, use an underscore "
          "instead.");
    }
    block->body = parse_whole_body("endblock");
    const auto is_blank = [](const StatementPtr& part) {
      return part->kind == StatementKind::text && strip(part->text).empty();
    };
    if (statement->required && !std::all_of(block->body.begin(), block->body.end(), is_blank)) {
      fail("Required blocks can only contain comments or whitespace");
    }
    skip_name(block->name);
    if (!block_names_.insert(block->name).second) {
      fail(fmt::format("block {} defined twice", repr_of_text(block->name)), line);
    }
    statement->block = block.get();
    parsed_->blocks.push_back(std::move(block));
    return statement;
  }

  StatementPtr parse_print(int line) {
    auto statement = std::make_unique<Statement>(StatementKind::output, line);
    while (!current().is(TokenKind::block_end)) {
      if (!statement->expressions.empty()) expect_op(",");
      statement->expressions.push_back(parse_expression());
    }
    return statement;
  }

  static StatementPtr refused(int line, std::string tag) {
    auto statement = std::make_unique<Statement>(StatementKind::refused, line);
    statement->text = std::move(tag);
    return statement;
  }

  void skip_context() {
    if ((current().is_name("with") || current().is_name("without")) && look().is_name("context")) {
      take();
      take();
    }
  }

  StatementPtr parse_include(int line) {
    parse_expression();
    if (current().is_name("ignore") && look().is_name("missing")) {
      take();
      take();
    }
    skip_context();
    return refused(line, "include");
  }

  StatementPtr parse_import(int line) {
    parse_expression();
    expect_name("as");
    parse_target_name();
    skip_context();
    return refused(line, "import");
  }

  StatementPtr parse_from(int line) {
    parse_expression();
    expect_name("import");
    while (!current().is(TokenKind::block_end)) {
      parse_target_name();
      if (skip_name("as")) parse_target_name();
      skip_context();
      if (!skip_op(",")) break;
    }
    return refused(line, "from");
  }

  StatementPtr parse_extends(int line) {
    parse_expression();
    return refused(line, "extends");
  }

  StatementPtr parse_autoescape(int line) {
    fail("autoescape is not supported in a chat template, which makes no HTML", line);
  }

  std::unique_ptr<ParsedTemplate> parsed_ = std::make_unique<ParsedTemplate>();
  std::vector<EndTags> waiting_for_;
  std::vector<std::string> open_;
  std::unordered_set<std::string> block_names_;
};

}  // namespace

std::unique_ptr<ParsedTemplate> parse_template(std::string_view source) {
  return Parser(tokenize(source)).run();
}

}  // namespace moetier::jinja
