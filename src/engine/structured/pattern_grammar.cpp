#include "engine/structured/pattern_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "engine/structured/gbnf_text.h"
#include "engine/structured/grammar_program.h"
#include "tokenizer/utf8.h"

namespace moetier {
namespace {

constexpr int kMostNesting = 60;
constexpr size_t kMostPattern = 4096;
constexpr uint32_t kMostRepetition = 100'000;

/// A regular expression: characters, a sequence or a choice, repeated.
struct Node {
  enum class Kind { chars, sequence, choice, begin, end };
  Kind kind = Kind::sequence;
  CharSet set;
  std::vector<Node> parts;
  uint32_t min = 1, max = 1;
};

uint32_t add_counts(uint32_t a, uint32_t b) {
  return a == kUnbounded || b == kUnbounded || a + uint64_t{b} >= kUnbounded ? kUnbounded : a + b;
}
uint32_t times(uint32_t a, uint32_t b) {
  if (a == 0 || b == 0) return 0;
  return a == kUnbounded || b == kUnbounded || uint64_t{a} * b >= kUnbounded ? kUnbounded : a * b;
}

/// Lengths of what a node matches.
LengthBounds lengths(const Node& n) {
  LengthBounds one{1, 1};
  if (n.kind == Node::Kind::sequence || n.kind == Node::Kind::begin || n.kind == Node::Kind::end) one = {0, 0};
  bool first = true;
  for (const Node& p : n.parts) {
    const LengthBounds l = lengths(p);
    if (n.kind == Node::Kind::sequence) {
      one = {add_counts(one.min, l.min), add_counts(one.max, l.max)};
    } else {
      one = first ? l : LengthBounds{std::min(one.min, l.min), std::max(one.max, l.max)};
    }
    first = false;
  }
  return {times(one.min, n.min), times(one.max, n.max)};
}

class PatternParser {
 public:
  explicit PatternParser(std::string_view pattern) : pattern_(pattern) {}

  Node parse() {
    if (pattern_.size() > kMostPattern) error("has more than {} bytes", kMostPattern);
    Node all = choice(0);
    if (!done()) error("has a ')' too many");
    return all;
  }

  template <typename... Args>
  [[noreturn]] void error(fmt::format_string<Args...> format, Args&&... args) const {
    usage_error("the pattern '{}' {}", pattern_.substr(0, 200), fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  bool done() const { return at_ >= pattern_.size(); }
  char peek() const { return done() ? '\0' : pattern_[at_]; }
  bool skip(std::string_view text) {
    if (pattern_.substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }

  Node choice(int depth);
  Node sequence(int depth);
  Node atom(int depth);
  Node group(int depth);
  void quantify(Node& node);
  uint32_t number();
  char32_t literal();
  char32_t hex(int digits);
  CharSet escape(bool in_class);
  char32_t escaped_character(char c);
  CharSet char_class();

  std::string_view pattern_;
  size_t at_ = 0;
};

CharSet set_of(std::initializer_list<CharSet::Range> ranges) {
  CharSet set;
  for (const auto& r : ranges) set.add(r.first, r.last);
  set.normalize();
  return set;
}

Node PatternParser::choice(int depth) {
  if (depth > kMostNesting) error("has groups more than {} deep", kMostNesting);
  Node all{.kind = Node::Kind::choice, .set = {}, .parts = {}};
  do {
    all.parts.push_back(sequence(depth));
  } while (skip("|"));
  if (all.parts.size() == 1) return std::move(all.parts[0]);
  return all;
}

Node PatternParser::sequence(int depth) {
  Node out;
  while (!done() && peek() != '|' && peek() != ')') {
    Node part = atom(depth);
    quantify(part);
    out.parts.push_back(std::move(part));
  }
  return out;
}

Node PatternParser::atom(int depth) {
  const char c = peek();
  Node out{.kind = Node::Kind::chars, .set = {}, .parts = {}};
  switch (c) {
    case '(':
      ++at_;
      return group(depth);
    case '^':
    case '$':
      ++at_;
      out.kind = c == '^' ? Node::Kind::begin : Node::Kind::end;
      return out;
    case '.':
      ++at_;
      out.set = set_of({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).complement();
      return out;
    case '[':
      ++at_;
      out.set = char_class();
      return out;
    case '\\':
      ++at_;
      out.set = escape(false);
      return out;
    case '*':
    case '+':
    case '?':
      error("repeats nothing at byte {}", at_);
    default: {
      const char32_t code = literal();
      out.set = set_of({{code, code}});
      return out;
    }
  }
}

Node PatternParser::group(int depth) {
  if (skip("?=") || skip("?!") || skip("?<=") || skip("?<!")) error("looks ahead or behind, which a grammar cannot");
  if (skip("?<") || skip("?P<")) {
    const size_t end = pattern_.find('>', at_);
    if (end == std::string_view::npos) error("has a group name without '>'");
    at_ = end + 1;
  } else if (!skip("?:") && peek() == '?') {
    error("has a group that begins with '(?', which is not understood");
  }
  Node out = choice(depth + 1);
  if (!skip(")")) error("has a '(' that is not closed");
  return out.min == 1 && out.max == 1 && out.kind != Node::Kind::chars
             ? out
             : Node{.kind = Node::Kind::sequence, .set = {}, .parts = {std::move(out)}};
}

uint32_t PatternParser::number() {
  uint32_t value = 0;
  const size_t begin = at_;
  for (; !done() && peek() >= '0' && peek() <= '9'; ++at_) {
    value = value * 10 + static_cast<uint32_t>(peek() - '0');
    if (value > kMostRepetition) error("repeats more than {} times", kMostRepetition);
  }
  if (at_ == begin) error("has a '{{' that begins no repetition");
  return value;
}

void PatternParser::quantify(Node& node) {
  uint32_t min = 0;
  uint32_t max = kUnbounded;
  if (skip("+")) {
    min = 1;
  } else if (skip("?")) {
    max = 1;
  } else if (skip("{")) {
    min = max = number();
    if (skip(",")) max = peek() == '}' ? kUnbounded : number();
    if (!skip("}")) error("has a '{{' that is not closed");
    if (max < min) error("has a repetition that ends before it begins");
  } else if (!skip("*")) {
    return;
  }
  skip("?");  // lazy: the same texts
  if (node.kind == Node::Kind::begin || node.kind == Node::Kind::end) error("repeats an anchor");
  node.min = min;
  node.max = max;
  if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{') error("repeats a repetition");
}

char32_t PatternParser::literal() {
  const Utf8Char c = utf8_at(pattern_, at_);
  if (c.kind != Utf8Char::Kind::valid) error("is not valid UTF-8");
  at_ += c.bytes;
  return c.code;
}

char32_t PatternParser::hex(int digits) {
  char32_t code = 0;
  for (int i = 0; i < digits; ++i, ++at_) {
    const char c = peek();
    const bool digit = c >= '0' && c <= '9';
    const char lower = static_cast<char>(c | 0x20);
    if (!digit && !(lower >= 'a' && lower <= 'f')) error("has an escape with too few hexadecimal digits");
    code = code * 16 + static_cast<char32_t>(digit ? c - '0' : lower - 'a' + 10);
  }
  return code;
}

/// Behind a backslash that stands for one character.
char32_t PatternParser::escaped_character(char c) {
  switch (c) {
    case 't':
      return '\t';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case '0':
      if (peek() >= '0' && peek() <= '9') error("has an octal escape");
      return 0;
    case 'x':
      return hex(2);
    case 'c': {
      const char letter = peek();
      if (!((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'))) error("has a '\\c' without letter");
      ++at_;
      return static_cast<char32_t>(letter & 31);
    }
    case 'u': {
      char32_t code = 0;
      if (skip("{")) {
        int digits = 0;
        for (; digits < 7 && !done() && peek() != '}'; ++digits) code = code * 16 + hex(1);
        if (digits == 0 || digits == 7 || !skip("}")) error("has a '\\u{{' without 1 to 6 digits and '}}'");
      } else {
        code = hex(4);
        if (code >= 0xD800 && code < 0xDC00 && skip("\\u"))
          code = 0x10000 + ((code - 0xD800) << 10) + (hex(4) - 0xDC00);
      }
      if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) error("names a character that does not exist");
      return code;
    }
    default:
      break;
  }
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) {
    error("uses '\\{}', which is not understood", c);
  }
  --at_;
  return literal();
}

CharSet PatternParser::escape(bool in_class) {
  if (done()) error("ends with a backslash");
  const char c = pattern_[at_++];
  const CharSet digits = set_of({{'0', '9'}});
  const CharSet words = set_of({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  const CharSet spaces = set_of({{'\t', '\r'},
                                 {' ', ' '},
                                 {0xA0, 0xA0},
                                 {0x1680, 0x1680},
                                 {0x2000, 0x200A},
                                 {0x2028, 0x2029},
                                 {0x202F, 0x202F},
                                 {0x205F, 0x205F},
                                 {0x3000, 0x3000},
                                 {0xFEFF, 0xFEFF}});
  switch (c) {
    case 'd':
      return digits;
    case 'D':
      return digits.complement();
    case 'w':
      return words;
    case 'W':
      return words.complement();
    case 's':
      return spaces;
    case 'S':
      return spaces.complement();
    case 'b':
      if (in_class) return set_of({{'\b', '\b'}});
      error("uses '\\b', a border of words, which a grammar cannot follow");
    default: {
      const char32_t code = escaped_character(c);
      return set_of({{code, code}});
    }
  }
}

CharSet PatternParser::char_class() {
  const bool negated = skip("^");
  CharSet all;
  while (!skip("]")) {
    if (done()) error("has a '[' that is not closed");
    const auto item = [&] {
      if (skip("\\")) return escape(true);
      const char32_t code = literal();
      return set_of({{code, code}});
    };
    const CharSet first = item();
    const auto single = [](const CharSet& s) {
      return s.ranges().size() == 1 && s.ranges()[0].first == s.ranges()[0].last;
    };
    if (single(first) && peek() == '-' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']') {
      ++at_;
      const CharSet last = item();
      if (!single(last) || last.ranges()[0].first < first.ranges()[0].first)
        error("has a range that ends before it begins");
      all.add(first.ranges()[0].first, last.ranges()[0].first);
    } else {
      for (const auto& r : first.ranges()) all.add(r.first, r.last);
    }
  }
  all.normalize();
  return negated ? all.complement() : all;
}

/// Writes a node as GBNF for the inside of a string.
class PatternWriter {
 public:
  PatternWriter(const PatternParser& parser, const StringForm& form) : parser_(parser), form_(form) {}

  /// One character of the set; those that JSON escapes are written so.
  std::string chars(const CharSet& all) const {
    const CharSet set = form_.never == 0 ? all : without(all, form_.never);
    if (set.empty() && !all.empty()) parser_.error("needs a character that strings cannot have here");
    if (!form_.escapes) return gbnf::char_class(set);
    CharSet plain;
    std::vector<std::string> ways;
    for (const CharSet::Range& r : set.ranges()) {
      char32_t from = r.first;
      for (char32_t code = r.first; code <= std::min<char32_t>(r.last, 0x7F); ++code) {
        const std::string escaped = escape(code);
        if (escaped.empty()) continue;
        if (code > from) plain.add(from, code - 1);
        from = code + 1;
        ways.push_back(escaped);
      }
      if (from <= r.last) plain.add(from, r.last);
    }
    plain.normalize();
    if (!plain.empty() || ways.empty()) ways.insert(ways.begin(), gbnf::char_class(plain));
    if (ways.size() == 1) return ways[0];
    return fmt::format("({})", fmt::join(ways, " | "));
  }

  std::vector<std::string> written(const std::vector<Node>& nodes) const {
    std::vector<std::string> out;
    for (const Node& n : nodes) out.push_back(write(n));
    return out;
  }

  std::string write(const Node& n) const {
    std::string out;
    switch (n.kind) {
      case Node::Kind::chars:
        out = chars(n.set);
        break;
      case Node::Kind::sequence:
        out = fmt::format("{}", fmt::join(written(n.parts), " "));
        if (n.min != 1 || n.max != 1 || n.parts.empty()) out = fmt::format("({})", out);
        break;
      case Node::Kind::choice:
        out = fmt::format("({})", fmt::join(written(n.parts), " | "));
        break;
      default:
        return "";
    }
    return out + gbnf::repetition(n.min, n.max);
  }

 private:
  static CharSet without(const CharSet& set, char32_t code) {
    CharSet out;
    for (const CharSet::Range& r : set.ranges()) {
      if (code < r.first || code > r.last) {
        out.add(r.first, r.last);
        continue;
      }
      if (r.first < code) out.add(r.first, code - 1);
      if (code < r.last) out.add(code + 1, r.last);
    }
    out.normalize();
    return out;
  }

  static std::string escape(char32_t code) {
    switch (code) {
      case '"':
        return R"("\\\"")";
      case '\\':
        return R"("\\\\")";
      case '\n':
        return R"("\\n")";
      case '\r':
        return R"("\\r")";
      case '\t':
        return R"("\\t")";
      case '\b':
        return R"("\\b")";
      case '\f':
        return R"("\\f")";
      default:
        return code < 0x20 || code == 0x7F ? fmt::format(R"("\\u{:04x}")", static_cast<uint32_t>(code)) : "";
    }
  }

  const PatternParser& parser_;
  const StringForm& form_;
};

bool has_anchor(const Node& n) {
  return n.kind == Node::Kind::begin || n.kind == Node::Kind::end ||
         std::any_of(n.parts.begin(), n.parts.end(), has_anchor);
}

/// One alternative of the whole pattern, with what may stand around it.
std::string whole(const PatternParser& parser, const PatternWriter& writer, Node n, const LengthBounds& bounds,
                  const std::string& any_char) {
  if (n.kind != Node::Kind::sequence || n.min != 1 || n.max != 1) {
    n = Node{.kind = Node::Kind::sequence, .set = {}, .parts = {std::move(n)}};
  }
  bool free_begin = true;
  bool free_end = true;
  while (!n.parts.empty() && n.parts.front().kind == Node::Kind::begin) {
    n.parts.erase(n.parts.begin());
    free_begin = false;
  }
  while (!n.parts.empty() && n.parts.back().kind == Node::Kind::end) {
    n.parts.pop_back();
    free_end = false;
  }
  // ^(a|b)$ and the like: anchors may also stand around the alternatives of a group that is all there is.
  if (has_anchor(n)) parser.error("has '^' or '$' in the middle, which a grammar cannot follow");
  if (!free_begin && !free_end && n.parts.size() == 1 && n.parts[0].kind == Node::Kind::chars) {
    Node& only = n.parts[0];
    only.min = std::max(only.min, bounds.min);
    only.max = std::min(only.max, bounds.max);
    if (only.min > only.max) parser.error("and minLength or maxLength contradict each other");
    return writer.write(n);
  }
  const LengthBounds own = lengths(n);
  const uint32_t least = own.min;
  const uint32_t most = free_begin || free_end ? kUnbounded : own.max;
  if (least < bounds.min || most > bounds.max) {
    parser.error("does not keep minLength or maxLength by itself; put the lengths into the pattern");
  }
  std::string out = writer.write(n);
  if (free_begin) out = any_char + "* " + out;
  if (free_end) out += " " + any_char + "*";
  return out;
}

}  // namespace

std::string pattern_grammar(std::string_view pattern, const LengthBounds& bounds, const std::string& any_char,
                            const StringForm& form) {
  PatternParser parser(pattern);
  const PatternWriter writer(parser, form);
  Node all = parser.parse();
  std::vector<std::string> ways;
  if (all.kind == Node::Kind::choice) {
    for (Node& way : all.parts) ways.push_back(whole(parser, writer, std::move(way), bounds, any_char));
  } else {
    ways.push_back(whole(parser, writer, std::move(all), bounds, any_char));
  }
  return fmt::format("{} ({}) {}", form.quote, fmt::join(ways, " | "), form.quote);
}

}  // namespace moetier
