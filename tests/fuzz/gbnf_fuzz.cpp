// Compiles any text as a grammar and follows it with a small vocabulary: only Errors may come out, soon and in little
// memory, and what the mask allows must be accepted.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/fake_tokenizer.h"
#include "engine/grammar.h"

namespace {

const moetier::testing_support::FakeTokenizer& tokenizer() {
  static const auto made = [] {
    moetier::testing_support::FakeTokenizer t;
    for (int byte = 0; byte < 256; ++byte) t.add(std::string(1, static_cast<char>(byte)));
    for (const char* text : {"ab", "\": \"", "},", "aaaa", "\xC3\xA9", "\xF0\x9F", "00", "  "}) t.add(text);
    t.add_end("</s>");
    return t;
  }();
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto vocabulary = moetier::GrammarVocabulary::make(tokenizer());
  moetier::GrammarLimits limits;
  limits.work = 200'000;
  limits.alternatives = 2'000;
  limits.stack = 200;
  limits.cache = 1 << 20;
  if (size == 0) return 0;
  uint64_t choice = data[0];
  try {
    const auto grammar = moetier::Grammar::compile({reinterpret_cast<const char*>(data) + 1, size - 1}, limits);
    const auto constraint = moetier::make_grammar_constraint(grammar, vocabulary);
    std::vector<float> logits(static_cast<size_t>(tokenizer().vocab_size()));
    for (int n = 0; n < 12 && !constraint->finished(); ++n) {
      std::fill(logits.begin(), logits.end(), 0.0f);
      constraint->mask(logits);
      std::vector<moetier::TokenId> open;
      for (size_t i = 0; i < logits.size(); ++i) {
        if (logits[i] == 0.0f) open.push_back(static_cast<moetier::TokenId>(i));
      }
      if (open.empty()) return 0;  // a stack too deep
      choice = choice * 6364136223846793005u + 1442695040888963407u;
      const moetier::TokenId token = open[(choice >> 33) % open.size()];
      try {
        constraint->accept(token);
      } catch (const moetier::Error& e) {
        if (std::string(e.what()).find("too ambiguous") == std::string::npos) std::abort();
        return 0;
      }
    }
  } catch (const moetier::Error&) {
    // a refusal
  }
  return 0;
}
