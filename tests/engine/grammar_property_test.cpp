// Random grammars: the recognizer against a plain matcher, and masks against the recognizer.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "engine/fake_tokenizer.h"
#include "engine/grammar.h"
#include "engine/random.h"
#include "support/error_of.h"
#include "tokenizer/utf8.h"

namespace moetier {
namespace {

using testing_support::error_of;
using testing_support::FakeTokenizer;

/// A grammar as a tree, which can be written as GBNF and matched by trying everything.
struct Symbol {
  int rule = -1;  // or one of `texts`
  std::vector<std::string> texts;
  bool negated = false;
  uint32_t min = 1, max = 1;  // max 99: unbounded
};
using Sequence = std::vector<Symbol>;
using Rules = std::vector<std::vector<Sequence>>;

const std::vector<std::string>& alphabet() {
  static const std::vector<std::string> letters = {"a", "b", "\xC3\xA9", "\xC3\xA8", "\xF0\x9F\x98\x80"};
  return letters;
}

class GrammarCase {
 public:
  explicit GrammarCase(uint64_t seed) : random_(seed) {
    const size_t rules = 1 + pick(4);
    rules_.resize(rules);
    for (size_t r = 0; r < rules; ++r) {
      const size_t alternatives = 1 + pick(3);
      for (size_t a = 0; a < alternatives; ++a) rules_[r].push_back(sequence(r));
    }
  }

  std::string gbnf() const {
    std::string out;
    for (size_t r = 0; r < rules_.size(); ++r) {
      out += r == 0 ? "root ::= " : "r" + std::to_string(r) + " ::= ";
      for (size_t a = 0; a < rules_[r].size(); ++a) {
        if (a > 0) out += " | ";
        for (const Symbol& s : rules_[r][a]) out += written(s) + " ";
      }
      out += "\n";
    }
    return out;
  }

  bool matches(const std::string& text) {
    memo_.clear();
    return ends(0, text, 0).contains(text.size());
  }

  /// A text that the grammar derives, unless it grows too long; then part of one.
  std::string sample() {
    std::string out;
    derive(0, out, 0);
    return out;
  }
  std::string random_text() {
    std::string out;
    for (size_t n = pick(8); n > 0; --n) out += alphabet()[pick(alphabet().size())];
    return out;
  }
  size_t pick(size_t n) { return random_.next() % n; }

 private:
  Sequence sequence(size_t rule) {
    Sequence out;
    const size_t symbols = pick(4);
    for (size_t i = 0; i < symbols; ++i) {
      Symbol s;
      // A rule calls later ones anywhere; earlier ones (and itself) only behind a character, so never first.
      if (pick(3) == 0 && rule + 1 < rules_.size()) {
        s.rule = static_cast<int>(rule + 1 + pick(rules_.size() - rule - 1));
      } else if (pick(4) == 0 && !out.empty() && out[0].rule < 0 && out[0].min > 0) {
        s.rule = static_cast<int>(pick(rules_.size()));
      } else {
        s.negated = pick(5) == 0;
        for (size_t n = 1 + pick(2); n > 0; --n) s.texts.push_back(alphabet()[pick(alphabet().size())]);
      }
      if (pick(3) == 0) {
        const uint32_t bounds[][2] = {{0, 1}, {0, 99}, {1, 99}, {2, 3}, {0, 2}, {2, 99}, {1, 4}};
        const auto& b = bounds[pick(7)];
        s.min = b[0];
        s.max = b[1];
      }
      out.push_back(s);
    }
    return out;
  }

  static std::string written(const Symbol& s) {
    std::string out;
    if (s.rule >= 0) {
      out = s.rule == 0 ? "root" : "r" + std::to_string(s.rule);
    } else {
      out = s.negated ? "[^" : "[";
      for (const std::string& t : s.texts) out += t;
      out += "]";
    }
    if (s.min == 1 && s.max == 1) return out;
    return out + "{" + std::to_string(s.min) + "," + (s.max == 99 ? "" : std::to_string(s.max)) + "}";
  }

  bool takes(const Symbol& s, const std::string& letter) const {
    return (std::find(s.texts.begin(), s.texts.end(), letter) != s.texts.end()) != s.negated;
  }

  std::set<size_t> once(const Symbol& s, const std::string& text, size_t at) {
    if (s.rule >= 0) return ends(static_cast<size_t>(s.rule), text, at);
    if (at >= text.size()) return {};
    const Utf8Char c = utf8_at(text, at);
    if (c.kind != Utf8Char::Kind::valid || !takes(s, text.substr(at, c.bytes))) return {};
    return {at + c.bytes};
  }

  const std::set<size_t>& ends(size_t rule, const std::string& text, size_t at) {
    const auto known = memo_.find({rule, at});
    if (known != memo_.end()) return known->second;
    std::set<size_t> all;
    for (const Sequence& sequence : rules_[rule]) {
      std::set<size_t> now = {at};
      for (const Symbol& s : sequence) {
        std::set<size_t> after, frontier = now;
        if (s.min == 0) after = now;
        for (uint32_t n = 1; n <= std::min<uint32_t>(s.max, 40) && !frontier.empty(); ++n) {
          std::set<size_t> next;
          for (const size_t p : frontier) next.merge(std::set<size_t>(once(s, text, p)));
          frontier = next;
          if (n >= s.min) after.insert(frontier.begin(), frontier.end());
        }
        now = after;
      }
      all.merge(now);
    }
    return memo_[{rule, at}] = all;
  }

  void derive(size_t rule, std::string& out, int depth) {
    if (out.size() > 40 || depth > 12) return;
    for (const Symbol& s : rules_[rule][pick(rules_[rule].size())]) {
      const uint32_t most = s.max == 99 ? s.min + 2 : s.max;
      for (uint32_t n = s.min + static_cast<uint32_t>(pick(most - s.min + 1)); n > 0; --n) {
        if (s.rule >= 0) {
          derive(static_cast<size_t>(s.rule), out, depth + 1);
        } else {
          const std::string& letter = alphabet()[pick(alphabet().size())];
          out += takes(s, letter) ? letter : s.texts[0];
        }
      }
    }
  }

  Random random_;
  Rules rules_;
  std::map<std::pair<size_t, size_t>, std::set<size_t>> memo_;
};

FakeTokenizer tokens() {
  FakeTokenizer t;
  for (const char* text : {"a",
                           "b",
                           "\xC3\xA9",
                           "\xC3\xA8",
                           "\xF0\x9F\x98\x80",
                           "\xC3",
                           "\xA9",
                           "\xA8",
                           "\xF0\x9F",
                           "\x98",
                           "\x80",
                           "ab",
                           "ba",
                           "aa",
                           "aab",
                           "abab",
                           "a\xC3",
                           "\xA9"
                           "b",
                           "\xA8\xC3",
                           "\x80"
                           "ab",
                           "bbbb",
                           "\xC3\xA9\xC3\xA9"
                           "a"}) {
    t.add(text);
  }
  t.add_end("</s>");
  return t;
}

TEST(GrammarProperty, MatchesWhatAPlainMatcherDoes) {
  int compiled = 0, positive = 0, ambiguous = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    GrammarCase g(seed);
    std::shared_ptr<const Grammar> grammar;
    try {
      grammar = Grammar::compile(g.gbnf());
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("allows no text"), std::string::npos) << g.gbnf() << e.what();
      continue;
    }
    ++compiled;
    for (int i = 0; i < 12; ++i) {
      const std::string text = i % 2 == 0 ? g.sample() : g.random_text();
      if (text.size() > 60) continue;
      const bool want = g.matches(text);
      positive += want;
      try {
        ASSERT_EQ(grammar_matches(*grammar, text), want) << "seed " << seed << "\n" << g.gbnf() << "'" << text << "'";
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find("too ambiguous"), std::string::npos) << e.what();
        ++ambiguous;
      }
    }
  }
  EXPECT_LT(ambiguous, 100);
  EXPECT_GT(compiled, 1200);
  EXPECT_GT(positive, 4000);
}

TEST(GrammarProperty, MasksAllowExactlyWhatCanBeAccepted) {
  const FakeTokenizer t = tokens();
  const auto vocabulary = GrammarVocabulary::make(t);
  int ended = 0, steps = 0;
  for (uint64_t seed = 1; seed <= 800; ++seed) {
    GrammarCase g(seed);
    std::shared_ptr<const Grammar> grammar;
    try {
      grammar = Grammar::compile(g.gbnf());
    } catch (const Error&) {
      continue;
    }
    const auto c = make_grammar_constraint(grammar, vocabulary);
    std::string text;
    bool ambiguous = false;
    for (int n = 0; n < 12 && !ambiguous; ++n, ++steps) {
      ASSERT_EQ(c->complete(), g.matches(text)) << g.gbnf() << "'" << text << "'";
      std::vector<float> logits(static_cast<size_t>(t.vocab_size()), 0.0f);
      ambiguous = error_of([&] { c->mask(logits); }).find("too ambiguous") != std::string::npos;
      if (ambiguous) break;
      std::vector<TokenId> open;
      for (TokenId id = 0; id < t.vocab_size(); ++id) {
        const std::string why = error_of([&] { c->clone()->accept(id); });
        const bool accepted = why.empty();
        ambiguous = ambiguous || why.find("too ambiguous") != std::string::npos;
        if (ambiguous) break;
        ASSERT_EQ(logits[static_cast<size_t>(id)] == 0.0f, accepted) << "token " << id << " seed " << seed << "\n"
                                                                     << g.gbnf() << "'" << text << "'";
        if (accepted) open.push_back(id);
      }
      if (ambiguous) break;
      ASSERT_FALSE(open.empty()) << g.gbnf() << text;
      ASSERT_EQ(c->finished(), open == std::vector<TokenId>{t.vocab_size() - 1});
      const TokenId token = open[g.pick(open.size())];
      c->accept(token);
      if (t.is_end_of_generation(token)) {
        EXPECT_TRUE(g.matches(text)) << g.gbnf() << text;
        ++ended;
        break;
      }
      text += t.piece(token, false);
    }
  }
  EXPECT_GT(ended, 300);
  EXPECT_GT(steps, 2000);
}

TEST(GrammarProperty, EveryTextOfTheLanguageCanBeWritten) {
  const FakeTokenizer t = tokens();
  const auto vocabulary = GrammarVocabulary::make(t);
  for (uint64_t seed = 1; seed <= 800; ++seed) {
    GrammarCase g(seed);
    const std::string text = g.sample();
    if (text.size() > 60 || !g.matches(text)) continue;
    const auto c = make_grammar_constraint(Grammar::compile(g.gbnf()), vocabulary);
    // In random tokens that spell it.
    bool ambiguous = false;
    for (size_t at = 0; at < text.size();) {
      std::vector<float> logits(static_cast<size_t>(t.vocab_size()), 0.0f);
      ambiguous = error_of([&] { c->mask(logits); }).find("too ambiguous") != std::string::npos;
      if (ambiguous) break;
      std::vector<TokenId> fit;
      for (TokenId id = 0; id + 1 < t.vocab_size(); ++id) {
        if (text.compare(at, t.text(id).size(), t.text(id)) != 0) continue;
        fit.push_back(id);
        ASSERT_EQ(logits[static_cast<size_t>(id)], 0.0f) << g.gbnf() << "'" << text << "' at " << at;
      }
      ASSERT_FALSE(fit.empty());
      const TokenId token = fit[g.pick(fit.size())];
      ambiguous = error_of([&] { c->accept(token); }).find("too ambiguous") != std::string::npos;
      if (ambiguous) break;
      at += t.text(token).size();
    }
    EXPECT_TRUE(c->complete() || ambiguous);
  }
}

}  // namespace
}  // namespace moetier
