#include "server/api/answer_grammar.h"

#include <fmt/format.h>

namespace moetier::server {
namespace {

/// Renames the rule `root`; it is only ever referred to by us.
std::string rename_root(std::string gbnf, const std::string& name) {
  size_t at = gbnf.find("root ::=");
  while (at != std::string::npos && at > 0 && gbnf[at - 1] != '\n') at = gbnf.find("root ::=", at + 1);
  if (at != std::string::npos) gbnf.replace(at, 4, name);
  return gbnf;
}

/// Text without `mark`, as a repetition: no character of it, or its beginnings that go on otherwise. (A beginning that
/// is followed at once by another is left out, which is no text that anyone misses.)
std::string text_without(const std::string& mark) {
  const auto shown = [](char c) {
    return c == '\\' || c == ']' || c == '^' ? fmt::format("\\{}", c) : std::string(1, c);
  };
  std::string tail = fmt::format("[^{}{}]", shown(mark.back()), shown(mark.front()));
  for (size_t i = mark.size() - 2; i >= 1; --i) {
    tail = fmt::format("([^{}{}] | \"{}\" {})", shown(mark[i]), shown(mark[0]), mark[i], tail);
  }
  return fmt::format("([^{}] | \"{}\"+ {})*", shown(mark[0]), mark[0], tail);
}

}  // namespace

std::string answer_grammar(ChatFormat format, const std::string& document, ThoughtBefore thought) {
  const std::string inner = rename_root(document, "answer-document");
  if (format == ChatFormat::harmony) {
    const std::string analysis = text_without("<|end|>");
    return fmt::format(
        "root ::= (\"<|channel|>analysis<|message|>\" {} \"<|end|><|start|>assistant\")? "
        "\"<|channel|>final\" (\" \"? \"<|constrain|>json\")? \"<|message|>\" answer-document\n{}",
        analysis, inner);
  }
  if (thought != ThoughtBefore::none) {
    const auto [begin, end] = thought_marks(format);
    const std::string rest = fmt::format("{} \"{}\" [ \\n]*", text_without(std::string(end)), end);
    if (thought == ThoughtBefore::opened) return fmt::format("root ::= {} answer-document\n{}", rest, inner);
    return fmt::format("root ::= (\"{}\" {})? answer-document\n{}", begin, rest, inner);
  }
  return fmt::format("root ::= answer-document\n{}", inner);
}

std::string either_grammar(const std::string& first, const std::string& second) {
  return fmt::format("root ::= first-root | second-root\n{}\n{}\n", rename_root(first, "first-root"),
                     rename_root(second, "second-root"));
}

}  // namespace moetier::server
