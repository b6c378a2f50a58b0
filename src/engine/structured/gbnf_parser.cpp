// GBNF text to rules.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "engine/structured/grammar_program.h"
#include "tokenizer/utf8.h"

namespace moetier {
namespace {

using Alternative = GrammarDraft::Alternative;

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class GbnfParser {
 public:
  GbnfParser(std::string_view source, const GrammarLimits& limits,
             const std::function<TokenId(std::string_view)>& find_token)
      : source_(source), limits_(limits), find_token_(find_token) {}

  GrammarDraft parse();

 private:
  struct Position {
    int line = 1, column = 1;
  };

  template <typename... Args>
  [[noreturn]] void error_at(Position at, fmt::format_string<Args...> format, Args&&... args) const {
    usage_error("the grammar has a mistake in line {}, column {}: {}", at.line, at.column,
                fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  [[noreturn]] void error(fmt::format_string<Args...> format, Args&&... args) const {
    error_at(position(at_), format, std::forward<Args>(args)...);
  }
  Position position(size_t at) const;
  bool done() const { return at_ >= source_.size(); }
  char peek() const { return done() ? '\0' : source_[at_]; }
  std::string here() const;

  void skip_space(bool lines);
  uint32_t rule_number(std::string_view name, size_t at);
  std::string_view name();
  bool begins_rule() const;
  void rule();
  std::vector<Alternative> alternatives(const std::string& owner, int depth);
  Alternative sequence(const std::string& owner, int depth);
  void symbol(Alternative& out, size_t& symbol_begin, const std::string& owner, int depth);
  void repetition(Alternative& out, size_t symbol_begin, const std::string& owner);
  void repeat(Alternative& out, size_t symbol_begin, const std::string& owner, uint32_t min, uint32_t max);
  std::pair<uint32_t, uint32_t> counts();
  uint32_t count();
  void literal(Alternative& out);
  void char_class(Alternative& out);
  void token(Alternative& out);
  char32_t character(bool in_class);
  char32_t escape(bool in_class);
  void add(Alternative& out, GrammarItem item);
  GrammarItem chars(CharSet set);
  uint32_t group(const std::string& owner, std::vector<Alternative> alternatives);

  std::string_view source_;
  const GrammarLimits& limits_;
  const std::function<TokenId(std::string_view)>& find_token_;
  size_t at_ = 0;
  size_t items_ = 0;
  GrammarDraft draft_;
  std::map<std::string, uint32_t, std::less<>> numbers_;
  std::map<CharSet, uint32_t> sets_;
};

GbnfParser::Position GbnfParser::position(size_t at) const {
  Position p;
  for (size_t i = 0; i < std::min(at, source_.size()); ++i) {
    if (source_[i] == '\n') {
      ++p.line;
      p.column = 1;
    } else if ((static_cast<uint8_t>(source_[i]) & 0xC0) != 0x80) {
      ++p.column;
    }
  }
  return p;
}

/// What stands at the position, for errors.
std::string GbnfParser::here() const {
  if (done()) return "the end of the text";
  if (peek() == '\n' || peek() == '\r') return "the end of the line";
  const Utf8Char c = utf8_at(source_, at_);
  if (c.kind != Utf8Char::Kind::valid) return fmt::format("the byte 0x{:02x}", static_cast<uint8_t>(peek()));
  return fmt::format("'{}'", source_.substr(at_, c.bytes));
}

void GbnfParser::skip_space(bool lines) {
  while (!done()) {
    const char c = peek();
    if (c == '#') {
      while (!done() && peek() != '\n' && peek() != '\r') ++at_;
    } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
      ++at_;
    } else {
      return;
    }
  }
}

uint32_t GbnfParser::rule_number(std::string_view name, size_t at) {
  const auto [found, fresh] = numbers_.try_emplace(std::string(name), static_cast<uint32_t>(draft_.rules.size()));
  if (fresh) {
    // Where it stands is looked up only for the error that an undefined rule makes.
    draft_.rules.push_back({.name = std::string(name), .alternatives = {}, .at = at});
  }
  return found->second;
}

std::string_view GbnfParser::name() {
  const size_t begin = at_;
  while (!done() && is_name(peek())) ++at_;
  if (at_ == begin) error("a rule's name was expected, not {}", here());
  return source_.substr(begin, at_ - begin);
}

void GbnfParser::add(Alternative& out, GrammarItem item) {
  if (++items_ > limits_.items) error("there are more than {} symbols", limits_.items);
  out.push_back(item);
}

GrammarItem GbnfParser::chars(CharSet set) {
  const auto [found, fresh] = sets_.try_emplace(std::move(set), static_cast<uint32_t>(draft_.sets.size()));
  if (fresh) draft_.sets.push_back(found->first);
  return {.kind = GrammarItem::Kind::chars, .target = found->second};
}

uint32_t GbnfParser::group(const std::string& owner, std::vector<Alternative> alternatives) {
  draft_.rules.push_back({.name = owner, .alternatives = std::move(alternatives), .defined = true});
  return static_cast<uint32_t>(draft_.rules.size()) - 1;
}

char32_t GbnfParser::escape(bool in_class) {
  const size_t begin = at_;
  ++at_;
  const char c = peek();
  if (!done()) ++at_;
  int digits = 0;
  switch (c) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case '\\':
    case '"':
    case '[':
    case ']':
      return static_cast<char32_t>(c);
    case '-':
    case '^':
      if (in_class) return static_cast<char32_t>(c);
      break;
    case 'x':
      digits = 2;
      break;
    case 'u':
      digits = 4;
      break;
    case 'U':
      digits = 8;
      break;
    default:
      break;
  }
  if (digits == 0) {
    at_ = begin;
    error("unknown escape; there are \\n \\r \\t \\\\ \\\" \\[ \\] \\xHH \\uHHHH \\UHHHHHHHH");
  }
  char32_t code = 0;
  for (int i = 0; i < digits; ++i, ++at_) {
    const int value = done() ? -1 : hex_value(peek());
    if (value < 0) error("\\{} takes {} hexadecimal digits, and {} came", c, digits, here());
    code = code * 16 + static_cast<char32_t>(value);
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
    at_ = begin;
    error("U+{:04X} is no character", static_cast<uint32_t>(code));
  }
  return code;
}

char32_t GbnfParser::character(bool in_class) {
  if (peek() == '\\') return escape(in_class);
  const Utf8Char c = utf8_at(source_, at_);
  if (c.kind != Utf8Char::Kind::valid) error("this is not valid UTF-8");
  at_ += c.bytes;
  return c.code;
}

void GbnfParser::literal(Alternative& out) {
  const size_t begin = at_++;
  while (peek() != '"' || done()) {
    if (done()) error_at(position(begin), "the text that begins here has no closing '\"'");
    CharSet set;
    const char32_t code = character(false);
    set.add(code, code);
    add(out, chars(std::move(set)));
  }
  ++at_;
}

void GbnfParser::char_class(Alternative& out) {
  const size_t begin = at_++;
  const bool negated = peek() == '^';
  if (negated) ++at_;
  CharSet set;
  while (peek() != ']' || done()) {
    if (done()) error_at(position(begin), "the class that begins here has no closing ']'");
    const size_t from = at_;
    const char32_t first = character(true);
    char32_t last = first;
    if (peek() == '-' && at_ + 1 < source_.size() && source_[at_ + 1] != ']') {
      ++at_;
      last = character(true);
      if (last < first) error_at(position(from), "the range ends before it begins");
    }
    set.add(first, last);
  }
  ++at_;
  set.normalize();
  add(out, chars(negated ? set.complement() : std::move(set)));
}

void GbnfParser::token(Alternative& out) {
  GrammarItem item{.kind = GrammarItem::Kind::token};
  if (peek() == '!') {
    item.kind = GrammarItem::Kind::other;
    ++at_;
  }
  if (peek() != '<') error("a token, '<text>' or '<[id]>', was expected, not {}", here());
  const size_t begin = at_;
  const size_t end = source_.find('>', begin);
  if (end == std::string_view::npos) error("the token that begins here has no closing '>'");
  const std::string_view inside = source_.substr(begin + 1, end - begin - 1);
  if (inside.size() > 2 && inside.front() == '[' && inside.back() == ']') {
    uint64_t id = 0;
    for (const char c : inside.substr(1, inside.size() - 2)) {
      if (c < '0' || c > '9' || id > INT32_MAX) error("'{}' is no token's number", inside);
      id = id * 10 + static_cast<uint64_t>(c - '0');
    }
    if (id > INT32_MAX) error("'{}' is no token's number", inside);
    item.target = static_cast<uint32_t>(id);
  } else {
    if (!find_token_) error("tokens can only be named by number here: <[id]>");
    const TokenId id = find_token_(source_.substr(begin, end - begin + 1));
    if (id < 0) error("the vocabulary has no token '{}'", source_.substr(begin, end - begin + 1));
    item.target = static_cast<uint32_t>(id);
  }
  at_ = end + 1;
  add(out, item);
}

uint32_t GbnfParser::count() {
  const size_t begin = at_;
  uint64_t value = 0;
  for (; !done() && peek() >= '0' && peek() <= '9'; ++at_) {
    value = value * 10 + static_cast<uint64_t>(peek() - '0');
    if (value > limits_.repetition) error("more than {} repetitions", limits_.repetition);
  }
  if (at_ == begin) error("a number was expected, not {}", here());
  return static_cast<uint32_t>(value);
}

/// {m}, {m,}, {,n}, {m,n}
std::pair<uint32_t, uint32_t> GbnfParser::counts() {
  const size_t begin = at_++;
  skip_space(false);
  const uint32_t min = peek() == ',' ? 0 : count();
  uint32_t max = min;
  skip_space(false);
  if (peek() == ',') {
    ++at_;
    skip_space(false);
    max = peek() == '}' ? kUnbounded : count();
    skip_space(false);
  }
  if (peek() != '}') error("'}}' was expected, not {}", here());
  ++at_;
  if (max < min) error_at(position(begin), "the repetition ends ({}) before it begins ({})", max, min);
  return {min, max};
}

void GbnfParser::repeat(Alternative& out, size_t symbol_begin, const std::string& owner, uint32_t min, uint32_t max) {
  const size_t symbols = out.size() - symbol_begin;
  if (symbols == 0) return;  // an empty text repeated
  if (symbols > 1 || out.back().min != 1 || out.back().max != 1) {
    Alternative body(out.begin() + static_cast<ptrdiff_t>(symbol_begin), out.end());
    out.resize(symbol_begin);
    const uint32_t number = group(owner, {std::move(body)});
    add(out, {.kind = GrammarItem::Kind::call, .target = number});
  }
  out.back().min = min;
  out.back().max = max;
}

void GbnfParser::repetition(Alternative& out, size_t symbol_begin, const std::string& owner) {
  for (;;) {
    uint32_t min = 0;
    uint32_t max = kUnbounded;
    switch (peek()) {
      case '*':
        ++at_;
        break;
      case '+':
        min = 1;
        ++at_;
        break;
      case '?':
        max = 1;
        ++at_;
        break;
      case '{':
        std::tie(min, max) = counts();
        break;
      default:
        return;
    }
    repeat(out, symbol_begin, owner, min, max);
  }
}

void GbnfParser::symbol(Alternative& out, size_t& symbol_begin, const std::string& owner, int depth) {
  symbol_begin = out.size();
  const char c = peek();
  if (c == '"') {
    literal(out);
  } else if (c == '[') {
    char_class(out);
  } else if (c == '.') {
    ++at_;
    add(out, chars(CharSet::all()));
  } else if (c == '<' || c == '!') {
    token(out);
  } else if (c == '(') {
    if (depth >= limits_.nesting) error("groups stand inside one another more than {} deep", limits_.nesting);
    const size_t begin = at_++;
    skip_space(true);
    std::vector<Alternative> inside = alternatives(owner, depth + 1);
    if (peek() != ')') {
      if (done()) error_at(position(begin), "the group that begins here has no closing ')'");
      error("')' was expected, not {}", here());
    }
    ++at_;
    const uint32_t number = group(owner, std::move(inside));
    add(out, {.kind = GrammarItem::Kind::call, .target = number});
  } else {
    const size_t begin = at_;
    const std::string_view called = name();
    add(out, {.kind = GrammarItem::Kind::call, .target = rule_number(called, begin)});
  }
}

/// Whether a name and ::= stand here, first on their line: an alternative before them may be empty.
bool GbnfParser::begins_rule() const {
  size_t at = at_;
  while (at < source_.size() && is_name(source_[at])) ++at;
  if (at == at_) return false;
  while (at < source_.size() && (source_[at] == ' ' || source_[at] == '\t')) ++at;
  if (source_.substr(at, 3) != "::=") return false;
  const size_t before = source_.substr(0, at_).find_last_not_of(" \t");
  return before != std::string_view::npos && (source_[before] == '\n' || source_[before] == '\r');
}

Alternative GbnfParser::sequence(const std::string& owner, int depth) {
  Alternative out;
  while (!done()) {
    const char c = peek();
    if (c != '"' && c != '[' && c != '.' && c != '<' && c != '!' && c != '(' && !is_name(c)) break;
    if (depth == 0 && begins_rule()) break;
    size_t symbol_begin = 0;
    symbol(out, symbol_begin, owner, depth);
    skip_space(depth > 0);
    repetition(out, symbol_begin, owner);
    skip_space(depth > 0);
  }
  return out;
}

std::vector<Alternative> GbnfParser::alternatives(const std::string& owner, int depth) {
  std::vector<Alternative> out;
  for (;;) {
    if (++items_ > limits_.items) error("there are more than {} symbols", limits_.items);  // the alternative's end
    out.push_back(sequence(owner, depth));
    // An alternative may also begin the next line.
    const size_t before = at_;
    skip_space(true);
    if (peek() != '|') {
      if (depth == 0) at_ = before;
      return out;
    }
    ++at_;
    skip_space(true);
  }
}

void GbnfParser::rule() {
  const size_t begin = at_;
  const std::string owner(name());
  const uint32_t number = rule_number(owner, begin);
  if (draft_.rules[number].defined) error_at(position(begin), "the rule '{}' is defined a second time", owner);
  draft_.rules[number].defined = true;
  skip_space(false);
  if (source_.substr(at_, 3) != "::=") error("'::=' was expected behind the rule's name, not {}", here());
  at_ += 3;
  skip_space(true);
  std::vector<Alternative> found = alternatives(owner, 0);
  draft_.rules[number].alternatives = std::move(found);
  if (!done() && peek() != '\n' && peek() != '\r' && !begins_rule()) {
    error("a symbol, '|' or the end of the line was expected, not {}", here());
  }
}

GrammarDraft GbnfParser::parse() {
  if (source_.size() > limits_.source) {
    usage_error("the grammar has {} bytes, and at most {} are taken", source_.size(), limits_.source);
  }
  for (skip_space(true); !done(); skip_space(true)) rule();
  const auto root = numbers_.find("root");
  if (root == numbers_.end() || !draft_.rules[root->second].defined) {
    usage_error("the grammar has no rule 'root', where a text would begin");
  }
  for (const GrammarDraft::Rule& r : draft_.rules) {
    if (!r.defined) error_at(position(r.at), "the rule '{}' is used here and defined nowhere", r.name);
  }
  draft_.root = root->second;
  return std::move(draft_);
}

}  // namespace

GrammarDraft parse_gbnf(std::string_view source, const GrammarLimits& limits,
                        const std::function<TokenId(std::string_view)>& find_token) {
  return GbnfParser(source, limits, find_token).parse();
}

}  // namespace moetier
