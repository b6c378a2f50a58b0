#include "engine/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/fake_tokenizer.h"
#include "support/error_of.h"

namespace moetier {
namespace {

using testing::HasSubstr;
using testing_support::error_of;
using testing_support::FakeTokenizer;

bool matches(std::string_view gbnf, std::string_view text) {
  return grammar_matches(*Grammar::compile(gbnf), text);
}

std::string error_of_grammar(const std::string& gbnf, const GrammarLimits& limits = {}) {
  return error_of([&] { Grammar::compile(gbnf, limits); });
}

/// Whether a token may come next.
std::vector<TokenId> allowed(TokenConstraint& constraint, const Tokenizer& tokenizer) {
  std::vector<float> logits(static_cast<size_t>(tokenizer.vocab_size()) + 3, 1.5f);
  constraint.mask(logits);
  std::vector<TokenId> ids;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == 1.5f) {
      ids.push_back(static_cast<TokenId>(i));
    } else {
      EXPECT_EQ(logits[i], -std::numeric_limits<float>::infinity());
    }
  }
  return ids;
}

TEST(Gbnf, LiteralsClassesAndAlternatives) {
  const char* g = R"(root ::= greeting " " [A-Z] [a-z]* ("!" | ".")?
greeting ::= "Hello" | "Good day"   # comment
)";
  EXPECT_TRUE(matches(g, "Hello Bob"));
  EXPECT_TRUE(matches(g, "Good day B!"));
  EXPECT_FALSE(matches(g, "Hello bob"));
  EXPECT_FALSE(matches(g, "Hello Bob!!"));
  EXPECT_FALSE(matches(g, "Hello "));
  EXPECT_FALSE(matches(g, ""));
}

TEST(Gbnf, EscapesAndCharactersBeyondAscii) {
  EXPECT_TRUE(matches(R"(root ::= "\x41\u00e9\U0001F600\n\r\t\\\"\[\]")", "A\xC3\xA9\xF0\x9F\x98\x80\n\r\t\\\"[]"));
  EXPECT_TRUE(matches("root ::= [\xC3\xA0-\xC3\xBC\\-\\]^]+", "\xC3\xA9-]^"));
  EXPECT_FALSE(matches("root ::= [\xC3\xA0-\xC3\xBC]", "\xC3\xBD"));
  EXPECT_TRUE(matches("root ::= [^a\\n]*", "b\xE4\xB8\xAD\xF4\x8F\xBF\xBF"));
  EXPECT_FALSE(matches("root ::= [^a\\n]*", "b\n"));
  EXPECT_TRUE(matches("root ::= [a-]+", "a-a"));
  EXPECT_TRUE(matches("root ::= .", "\n"));
  for (const char* bad : {"\xED\xA0\x80", "\xC0\x80", "\xF4\x90\x80\x80", "\x80", "\xC3"}) {
    EXPECT_FALSE(matches("root ::= .*", bad));  // never anything but UTF-8
  }
}

TEST(Gbnf, Repetitions) {
  for (const auto& [count, least, most] : std::vector<std::tuple<std::string, int, int>>{{"*", 0, 99},
                                                                                         {"+", 1, 99},
                                                                                         {"?", 0, 1},
                                                                                         {"{3}", 3, 3},
                                                                                         {"{2,}", 2, 99},
                                                                                         {"{2,4}", 2, 4},
                                                                                         {"{,4}", 0, 4},
                                                                                         {"{0}", 0, 0},
                                                                                         {"{0,0}", 0, 0},
                                                                                         {"{1}", 1, 1}}) {
    for (const char* symbol : {"\"ab\"", "(\"ab\")", "(\"a\" \"b\" | \"ab\")", "ab"}) {
      const std::string g = std::string("root ::= ") + symbol + count + " \"!\"\nab ::= \"a\" [b]\n";
      std::string text;
      for (int n = 0; n < 7; ++n, text += "ab") {
        EXPECT_EQ(matches(g, text + "!"), n >= least && n <= most) << g << text;
      }
    }
  }
  EXPECT_TRUE(matches("root ::= \"a\"{1000} [b]{3,500000}", std::string(1000, 'a') + std::string(4000, 'b')));
  EXPECT_FALSE(matches("root ::= \"a\"{1000}", std::string(999, 'a')));
  EXPECT_TRUE(matches("root ::= \"a\"*?", "aaa"));
}

TEST(Gbnf, RepetitionsOfWhatMayBeEmpty) {
  for (const char* g :
       {"root ::= (\"a\"? \"b\"?){2,3} \"c\"", "root ::= (x){2,3} \"c\"\nx ::= | \"a\" | \"b\" | \"ab\""}) {
    for (const char* good : {"c", "ac", "abac", "aac", "abababc", "bac"}) EXPECT_TRUE(matches(g, good)) << good;
    for (const char* bad : {"aaaac", "ababababc", "", "ab"}) EXPECT_FALSE(matches(g, bad)) << bad;
  }
  EXPECT_TRUE(matches("root ::= ((\"a\"*)* (\"b\"?)+)*", "aabba"));
  EXPECT_TRUE(matches("root ::= ((\"a\"*)* (\"b\"?)+)*", ""));
  EXPECT_TRUE(matches("root ::=", ""));
  EXPECT_TRUE(matches("root ::= \"\"* \"x\"", "x"));
}

TEST(Gbnf, RecursionInTheMiddleAndAtTheEnd) {
  const char* g = "root ::= pair | list\npair ::= \"(\" root? \")\"\nlist ::= \"x\" | \"x,\" list\n";
  EXPECT_TRUE(matches(g, "((()))"));
  EXPECT_TRUE(matches(g, "((x,x,x))"));
  EXPECT_FALSE(matches(g, "((())"));
  std::string deep = std::string(3000, '(') + std::string(3000, ')');
  EXPECT_TRUE(matches(g, deep));
  std::string lengthy;
  for (int i = 0; i < 100'000; ++i) lengthy += "x,";
  EXPECT_TRUE(matches(g, lengthy + "x"));  // no deeper for its length
}

TEST(Gbnf, LinesAndComments) {
  EXPECT_TRUE(matches(
      "# first\r\nroot ::= # then\n  \"a\"\n  | # or\n  \"b\" (\n \"c\" # in it\n | \"d\"\n )\n\n\nx ::= \"y\"", "bd"));
  EXPECT_TRUE(matches("root ::= \"a\" x_1-B\nx_1-B ::= \"b\"\n\t", "ab"));
}

TEST(Gbnf, WhatCannotBeReadIsLeftOut) {
  EXPECT_TRUE(matches("root ::= \"a\" | loop | []\nloop ::= \"x\" loop", "a"));
  FakeTokenizer t;
  t.add("a"), t.add("x");
  const auto c = make_grammar_constraint(Grammar::compile("root ::= \"a\" loop* | \"a\" loop\nloop ::= \"x\" loop"),
                                         GrammarVocabulary::make(t));
  EXPECT_EQ(allowed(*c, t), std::vector<TokenId>{0});
  c->accept(0);
  EXPECT_TRUE(c->finished());
}

TEST(Gbnf, ErrorsSayWhere) {
  EXPECT_THAT(error_of_grammar("root ::= \"a\"\nroot ::= \"b\""),
              HasSubstr("line 2, column 1: the rule 'root' is defined a second time"));
  EXPECT_THAT(error_of_grammar("root ::= \"\xC3\xA9\" other"),
              HasSubstr("line 1, column 14: the rule 'other' is used here and defined nowhere"));
  EXPECT_THAT(error_of_grammar("start ::= \"a\""), HasSubstr("no rule 'root'"));
  EXPECT_THAT(error_of_grammar(""), HasSubstr("no rule 'root'"));
  EXPECT_THAT(error_of_grammar("root ::= \"a"),
              HasSubstr("line 1, column 10: the text that begins here has no closing"));
  EXPECT_THAT(error_of_grammar("root ::= [a"), HasSubstr("no closing ']'"));
  EXPECT_THAT(error_of_grammar("root ::= (\n \"a\""), HasSubstr("line 1, column 10: the group that begins here"));
  EXPECT_THAT(error_of_grammar("root ::= ( \"a\" ::= )"), HasSubstr("')' was expected, not ':'"));
  EXPECT_THAT(error_of_grammar("root ::= \"a\" )"), HasSubstr("not ')'"));
  EXPECT_THAT(error_of_grammar("root = \"a\""), HasSubstr("line 1, column 6: '::=' was expected"));
  EXPECT_THAT(error_of_grammar("root ::= \"\\q\""), HasSubstr("unknown escape"));
  EXPECT_THAT(error_of_grammar("root ::= \"\\u12\""), HasSubstr("4 hexadecimal digits"));
  EXPECT_THAT(error_of_grammar("root ::= \"\\uD800\""), HasSubstr("no character"));
  EXPECT_THAT(error_of_grammar("root ::= [z-a]"), HasSubstr("ends before it begins"));
  EXPECT_THAT(error_of_grammar("root ::= \"a\"{3,2}"), HasSubstr("ends (2) before it begins (3)"));
  EXPECT_THAT(error_of_grammar("root ::= \"a\"{x}"), HasSubstr("a number was expected, not 'x'"));
  EXPECT_THAT(error_of_grammar("root ::= \"a\"{1000001}"), HasSubstr("more than 1000000 repetitions"));
  EXPECT_THAT(error_of_grammar("root ::= \"a\"{99999999999999999999999}"), HasSubstr("more than 1000000 repetitions"));
  EXPECT_THAT(error_of_grammar("root ::= \"\xFF\""), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(error_of_grammar("root ::= * \"a\""), HasSubstr("not '*'"));
  EXPECT_THAT(error_of_grammar("root ::= <think>"), HasSubstr("only be named by number"));
  EXPECT_THAT(error_of_grammar("root ::= \"a\" root"), HasSubstr("allows no text"));
  EXPECT_THAT(error_of_grammar("root ::= []"), HasSubstr("allows no text"));
}

TEST(Gbnf, LeftRecursionIsRefused) {
  EXPECT_THAT(error_of_grammar("root ::= root \"a\" | \"a\""),
              HasSubstr("left-recursive: the rule 'root' can begin with itself (root -> root)"));
  EXPECT_THAT(error_of_grammar("root ::= \"x\" a\na ::= b? c\nb ::= \"q\"\nc ::= (a \"y\" | \"z\")"),
              HasSubstr("(a -> c -> a)"));
  EXPECT_THAT(error_of_grammar("root ::= e* root \"b\" | \"c\"\ne ::= \"\""), HasSubstr("left-recursive"));
  EXPECT_EQ(error_of_grammar("root ::= \"a\" root | \"b\""), "");
}

TEST(Gbnf, LimitsHold) {
  GrammarLimits limits;
  limits.source = 100;
  EXPECT_THAT(error_of_grammar("root ::= " + std::string(100, ' ') + "\"a\"", limits), HasSubstr("at most 100"));
  limits = {};
  limits.items = 10;
  EXPECT_THAT(error_of_grammar("root ::= \"aaaaaaaaaaaa\"", limits), HasSubstr("more than 10 symbols"));
  EXPECT_THAT(error_of_grammar("root ::= " + std::string(5000, '(') + "\"a\"" + std::string(5000, ')')),
              HasSubstr("200 deep"));
  // The stack: a way that is too deep is given up, and the others stay.
  limits = {};
  limits.stack = 10;
  const auto g = Grammar::compile("root ::= \"(\" root \")\" | \"x\"", limits);
  EXPECT_TRUE(grammar_matches(*g, "(((((x)))))"));
  EXPECT_FALSE(grammar_matches(*g, std::string(30, '(') + "x" + std::string(30, ')')));
  // Many ways at once, and a small cache.
  limits = {};
  limits.alternatives = 100;
  EXPECT_THAT(error_of([&] {
                grammar_matches(*Grammar::compile("root ::= (\"a\" | \"aa\"){0,1000}", limits), std::string(500, 'a'));
              }),
              HasSubstr("too ambiguous"));
  limits = {};
  limits.cache = 10'000;
  EXPECT_TRUE(grammar_matches(*Grammar::compile("root ::= \"a\"{1000,4000}", limits), std::string(3000, 'a')));
}

TEST(GrammarConstraint, TokensMayEndAnywhere) {
  FakeTokenizer t;
  const TokenId he = t.add("\"he"), llo = t.add("llo\""), e_first = t.add("\xC3"), e_second = t.add("\xA9"),
                quote = t.add("\""), both = t.add("\","), end = t.add_end("</s>"), control = t.add_control("<x>"),
                empty = t.add(""), bad = t.add("\xC3\"");
  const auto vocabulary = GrammarVocabulary::make(t);
  const auto c = make_grammar_constraint(Grammar::compile("root ::= \"\\\"\" [^\"\\n]{1,8} \"\\\"\""), vocabulary);
  EXPECT_EQ(allowed(*c, t), (std::vector<TokenId>{he, quote, both}));
  EXPECT_FALSE(c->complete());
  c->accept(he);
  EXPECT_EQ(allowed(*c, t), (std::vector<TokenId>{llo, e_first, quote}));
  const auto other = c->clone();
  c->accept(e_first);
  EXPECT_EQ(allowed(*c, t), (std::vector<TokenId>{e_second}));
  c->accept(e_second);
  c->accept(llo);
  EXPECT_TRUE(c->complete());
  EXPECT_TRUE(c->finished());
  EXPECT_EQ(allowed(*c, t), (std::vector<TokenId>{end}));
  EXPECT_EQ(allowed(*other, t), (std::vector<TokenId>{llo, e_first, quote}));
  for (const TokenId wrong : {he, both, end, control, empty, bad, TokenId{-1}, TokenId{99}}) {
    EXPECT_NE(error_of([&] { other->accept(wrong); }), "") << wrong;
  }
  EXPECT_EQ(allowed(*other, t), (std::vector<TokenId>{llo, e_first, quote}));  // nothing has changed
  c->accept(end);
  EXPECT_TRUE(c->finished());
  EXPECT_FALSE(c->complete());
  EXPECT_TRUE(allowed(*c, t).empty());
}

TEST(GrammarConstraint, WholeTokens) {
  FakeTokenizer t;
  const TokenId think = t.add_control("<think>"), a = t.add("a"), close = t.add_control("</think>"),
                end = t.add_end("<end>");
  const auto find = [&](std::string_view text) { return t.find(text); };
  const auto g = Grammar::compile("root ::= <think> !</think>* <[2]> \"a\"", {}, find);
  const auto c = make_grammar_constraint(g, GrammarVocabulary::make(t));
  EXPECT_EQ(allowed(*c, t), (std::vector<TokenId>{think}));
  c->accept(think);
  EXPECT_EQ(allowed(*c, t), (std::vector<TokenId>{think, a, close}));
  c->accept(a);
  c->accept(think);
  c->accept(close);
  EXPECT_EQ(allowed(*c, t), (std::vector<TokenId>{a}));
  c->accept(a);
  EXPECT_EQ(allowed(*c, t), (std::vector<TokenId>{end}));
  EXPECT_THAT(error_of([&] { Grammar::compile("root ::= <nothing>", {}, find); }), HasSubstr("no token '<nothing>'"));
  // As text.
  const auto by_text =
      make_grammar_constraint(Grammar::compile("root ::= \"<think>\" \"a\""), GrammarVocabulary::make(t, true));
  EXPECT_EQ(allowed(*by_text, t), (std::vector<TokenId>{think}));
}

TEST(GrammarConstraint, SleepsUntilATrigger) {
  FakeTokenizer t;
  const TokenId x = t.add("x"), open = t.add("<ca"), rest = t.add("ll>{"), other_rest = t.add("ll>("),
                brace = t.add("}"), end = t.add_end("");
  const auto c = make_lazy_grammar_constraint(Grammar::compile("root ::= \"<call>{\" \"x\"* \"}\""),
                                              GrammarVocabulary::make(t), {"<call>"});
  EXPECT_TRUE(c->complete());
  EXPECT_FALSE(c->finished());
  for (const TokenId id : {x, open, open, other_rest, open}) c->accept(id);  // the grammar would not have "<call>("
  EXPECT_EQ(allowed(*c, t).size(), static_cast<size_t>(t.vocab_size()) + 3);
  const auto ended = c->clone();
  ended->accept(end);
  EXPECT_TRUE(ended->finished());
  EXPECT_TRUE(allowed(*ended, t).empty());
  c->accept(rest);
  EXPECT_EQ(allowed(*c, t), (std::vector<TokenId>{x, brace}));
  EXPECT_FALSE(c->complete());
  c->accept(brace);
  EXPECT_EQ(allowed(*c, t), (std::vector<TokenId>{end}));
  EXPECT_THAT(error_of([&] {
                make_lazy_grammar_constraint(Grammar::compile("root ::= \"a\""), GrammarVocabulary::make(t), {""});
              }),
              HasSubstr("empty"));
}

TEST(GrammarConstraint, CachesAreThrownAwayInTime) {
  FakeTokenizer t;
  const TokenId a = t.add("a"), aa = t.add("aaaa"), b = t.add("b");
  GrammarLimits limits;
  limits.cache = 20'000;
  const auto g = Grammar::compile("root ::= x{0,3000}\nx ::= \"a\" \"b\"?", limits);
  const auto c = make_grammar_constraint(g, GrammarVocabulary::make(t));
  EXPECT_EQ(allowed(*c, t), (std::vector<TokenId>{a, aa}));
  for (int i = 0; i < 1000; ++i) {
    c->accept(i % 2 == 0 ? aa : a);
    ASSERT_EQ(allowed(*c, t), (std::vector<TokenId>{a, aa, b}));
  }
  c->accept(b);
  EXPECT_EQ(allowed(*c, t), (std::vector<TokenId>{a, aa}));
}

}  // namespace
}  // namespace moetier
