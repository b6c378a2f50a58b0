// What constrained sampling costs per token: bench_constraint VOCABULARY.gguf...
// Follows documents token by token as each vocabulary writes them, with a fresh constraint, and times mask() with
// accept().
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/stopwatch.h"
#include "engine/grammar.h"
#include "engine/json_schema.h"

namespace {

using namespace moetier;

struct Work {
  const char* name;
  std::string gbnf;
  std::string document;
};

std::string person() {
  std::string text =
      R"({"name": "Ada Lovelace", "age": 36, "address": {"street": "12 St. James's Square", "city": "London"}, "tags": [)";
  for (int i = 0; i < 20; ++i)
    text += std::string(i > 0 ? ", " : "") + R"("mathematics and poetry )" + std::to_string(i) + "\"";
  return text +
         R"(], "note": "She wrote the first program, for a machine that was never built, and saw that it could do more than sums."})";
}

std::vector<Work> works() {
  const auto schema = [](const char* text) { return json_schema_grammar(nlohmann::ordered_json::parse(text)); };
  return {
      {"json object", json_object_grammar(), person()},
      {"schema",
       schema(
           R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
         "address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}, "required": ["street", "city"]},
         "tags": {"type": "array", "items": {"type": "string"}}, "note": {"type": "string"}}, "required": ["name", "age", "address", "tags", "note"]})"),
       person()},
      {"bounded strings",
       schema(
           R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 100}, "age": {"type": "integer"},
         "address": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 500}},
         "tags": {"type": "array", "items": {"type": "string", "minLength": 3, "maxLength": 60}, "maxItems": 30}, "note": {"type": "string", "maxLength": 2000}}})"),
       person()},
  };
}

struct Times {
  std::vector<double> ms;
  double at(double share) {
    std::sort(ms.begin(), ms.end());
    return ms[std::min(ms.size() - 1, static_cast<size_t>(share * static_cast<double>(ms.size())))];
  }
  double mean() const {
    double sum = 0;
    for (const double t : ms) sum += t;
    return sum / static_cast<double>(ms.size());
  }
};

Times follow(TokenConstraint& constraint, const std::vector<TokenId>& ids, std::vector<float>& logits) {
  Times times;
  for (const TokenId id : ids) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    Stopwatch watch;
    constraint.mask(logits);
    constraint.accept(id);
    times.ms.push_back(watch.lap() * 1e3);
  }
  return times;
}

void measure(const char* path) {
  const GgufFile file = GgufFile::open(path);
  const auto tokenizer = Tokenizer::load(file);
  Stopwatch watch;
  const auto vocabulary = GrammarVocabulary::make(*tokenizer);
  fmt::print("{}: {} tokens, trie in {:.0f} ms\n", path, tokenizer->vocab_size(), watch.lap() * 1e3);
  for (const Work& work : works()) {
    watch.lap();
    const auto grammar = Grammar::compile(work.gbnf);
    const double compile = watch.lap() * 1e3;
    std::vector<TokenId> ids = tokenizer->encode(work.document, {.add_special = false, .parse_special = false});
    // Some vocabularies put a space before the text, which JSON does not begin with.
    const auto fresh = make_grammar_constraint(grammar, vocabulary);
    std::vector<float> logits(static_cast<size_t>(tokenizer->vocab_size()));
    if (!ids.empty() && tokenizer->piece(ids[0]).starts_with(' '))
      ids[0] = tokenizer->find("{\"") >= 0 ? tokenizer->find("{\"") : ids[0];
    Times times = follow(*fresh, ids, logits);
    fmt::print("  {:16} compiled in {:.2f} ms; {} tokens: median {:.3f} ms, mean {:.3f}, 95 % {:.3f}, most {:.2f}\n",
               work.name, compile, ids.size(), times.at(0.5), times.mean(), times.at(0.95), times.at(1));
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) measure(argv[i]);
  return argc > 1 ? 0 : 2;
}
