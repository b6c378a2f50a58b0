#include "engine/json_schema.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "engine/fake_tokenizer.h"
#include "engine/grammar.h"
#include "engine/random.h"
#include "engine/schema_check.h"
#include "support/error_of.h"

namespace moetier {
namespace {

using testing::HasSubstr;
using testing_support::error_of;
using testing_support::FakeTokenizer;
using testing_support::SchemaCheck;
using Json = nlohmann::ordered_json;

Json parse(const std::string& text) {
  return Json::parse(text);
}

std::shared_ptr<const Grammar> grammar_of(const std::string& schema) {
  return Grammar::compile(json_schema_grammar(parse(schema)));
}

std::string error_of_schema(const std::string& schema) {
  return error_of([&] { grammar_of(schema); });
}

/// Bytes, and pieces as JSON has them, some with half a character.
const FakeTokenizer& byte_tokenizer() {
  static const FakeTokenizer tokenizer = [] {
    FakeTokenizer t;
    for (int byte = 0; byte < 256; ++byte) t.add(std::string(1, static_cast<char>(byte)));
    for (const char* text :
         {"{\"",   "\":",      "\": ",         "\",",      "\", \"", "\"}",  "}",    "},",   "[{",
          "]}",    "true",     "false",        "null",     "alse",   ", ",   "\n  ", "a",    "ab",
          "the",   " is",      "12",           "100",      "0.5",    "-1",   "\\\"", "\\u",  "\\ud83d",
          "00",    "\xC3\xA9", "\xF0\x9F\x98", "\x98\x80", "2024-",  "-02-", "T1",   "name", "value",
          "id\":", "\xE4\xB8", "\xAD\"",       "e+1",      "[[",     "]]"}) {
      t.add(text);
    }
    t.add_end("</s>");
    return t;
  }();
  return tokenizer;
}

/// A document drawn through the masks. Ends are taken where they can be once it is long; `json` must be whole then.
std::string random_document(const std::shared_ptr<const Grammar>& grammar, const Tokenizer& tokenizer,
                            const std::shared_ptr<const GrammarVocabulary>& vocabulary, Random& random) {
  const auto c = make_grammar_constraint(grammar, vocabulary);
  std::string text;
  std::vector<float> logits(static_cast<size_t>(tokenizer.vocab_size()));
  for (int n = 0; n < 1000 && !c->finished(); ++n) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    c->mask(logits);
    std::vector<TokenId> open, closing;
    for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
      if (logits[static_cast<size_t>(id)] != 0.0f) continue;
      open.push_back(id);
      const std::string piece = tokenizer.piece(id, true);
      if (piece.find_first_of("\"}],:") != std::string::npos) closing.push_back(id);
    }
    if (open.empty()) ADD_FAILURE() << "nothing can follow '" << text << "'";
    if (open.empty()) return text;
    // Mostly what closes things, so that it comes to an end.
    const auto& from = !closing.empty() && random.next() % 8 < (n > 60 ? 7u : 2u) ? closing : open;
    TokenId token = from[random.next() % from.size()];
    if (n > 60) {
      // The end, else what ends a string, a list, an object; else letters that patterns may wait for.
      const bool value_begins = text.find_last_of(":,[ \n") == text.size() - 1;
      int best = 0;
      std::vector<TokenId> letters;
      for (const TokenId id : open) {
        const std::string piece = tokenizer.piece(id, true);
        if (piece.size() == 1 && std::string("abc@.").find(piece) != std::string::npos) letters.push_back(id);
        const int rank = tokenizer.is_end_of_generation(id)                  ? 4
                         : piece == "\""                                     ? 3
                         : piece == "]" || (piece == "null" && value_begins) ? 2
                         : piece == "}"                                      ? 1
                                                                             : 0;
        if (rank > best) token = id;
        best = std::max(best, rank);
      }
      if (best < 3 && !letters.empty() && random.next() % 8 != 0) token = letters[random.next() % letters.size()];
    }
    c->accept(token);
    if (!tokenizer.is_end_of_generation(token)) text += tokenizer.piece(token, false);
  }
  EXPECT_TRUE(c->finished()) << text.substr(0, 300);
  return text;
}

const char* const kSchemas[] = {
    R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 120}}, "required": ["name", "age"]})",
    R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "boolean"}, "d": {"type": "null"}}, "required": ["b"]})",
    R"({"type": "object", "properties": {"a": {"type": "integer"}, "ab": {"type": "integer"}, "b": {}}, "additionalProperties": {"type": "string"}})",
    R"({"type": "object", "properties": {"x": {"const": 1}, "never": false}, "required": ["x", "y"], "additionalProperties": true})",
    R"({"type": "object"})",
    R"({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "number"}}})",
    R"({"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 5}, "minItems": 1, "maxItems": 3})",
    R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "boolean"}, "minItems": 1, "maxItems": 4})",
    R"({"type": "array", "items": [{"const": "a"}, {"enum": [1, 2.5, null, {"k": [true]}]}], "additionalItems": false, "minItems": 2})",
    R"({"type": "array", "maxItems": 0})",
    R"({"enum": ["red", "gr\u00fcn", "quo\"te", 7, null, [1, 2]]})",
    R"({"type": "string", "enum": ["a", "b", 3]})",
    R"({"anyOf": [{"type": "integer", "minimum": -3, "maximum": 17}, {"type": "string", "maxLength": 3}]})",
    R"({"type": ["string", "null", "integer"], "minLength": 1, "maximum": 9, "minimum": 8})",
    R"({"oneOf": [{"type": "object", "properties": {"kind": {"const": "a"}, "n": {"type": "integer"}}, "required": ["kind", "n"]}, {"type": "object", "properties": {"kind": {"const": "b"}, "s": {"type": "string"}}, "required": ["kind"]}]})",
    R"({"oneOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}, {"type": "string"}]})",
    R"({"allOf": [{"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}, "required": ["a"]}, {"properties": {"a": {"maximum": 5}, "b": {"type": "string"}}, "required": ["b"]}]})",
    R"({"allOf": [{"anyOf": [{"minimum": 10}, {"maximum": -10}]}, {"anyOf": [{"maximum": 20}, {"minimum": 100}]}], "type": "integer"})",
    R"({"$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["v", "next"]}}, "$ref": "#/$defs/node"})",
    R"({"definitions": {"tree": {"type": "array", "items": {"$ref": "#/definitions/tree"}, "maxItems": 3}}, "properties": {"t": {"allOf": [{"$ref": "#/definitions/tree"}], "description": "d"}}, "required": ["t"], "type": "object"})",
    R"({"type": "object", "properties": {"self": {"$ref": "#"}, "k~/%": {"type": "integer"}, "r": {"$ref": "#/properties/k~0~1%25"}}})",
    R"({"type": "string", "pattern": "^[a-z]{2,4}-\\d+$"})",
    R"({"type": "string", "pattern": "^(yes|no|m[ae]ybe)$"})",
    R"({"type": "string", "pattern": "^\\w+@\\w+\\.(com|org)$"})",
    R"({"type": "string", "pattern": "^[^\"\\\\a-y]{1,3}$"})",
    R"({"type": "string", "pattern": "ab+c"})",
    R"({"type": "string", "pattern": "^a|b$|^(?:c{2}|d?)$"})",
    R"({"type": "string", "pattern": "^[0-9a-f]*$", "minLength": 3, "maxLength": 6})",
    R"({"type": "string", "pattern": "^\\S\\s\\t[\\n\\x41-\\u0043]\\.$"})",
    R"({"type": "string", "format": "date"})",
    R"({"type": "string", "format": "time"})",
    R"({"type": "string", "format": "date-time"})",
    R"({"type": "string", "format": "uuid"})",
    R"({"type": "string", "format": "ipv4"})",
    R"({"type": "string", "format": "email"})",
    R"({"type": "string", "format": "uri", "maxLength": 9})",
    R"({"type": "string", "format": "no-such-format"})",
    R"({"type": "string", "minLength": 3})",
    R"({"type": "number"})",
    R"({"type": "number", "minimum": 0})",
    R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1})",
    R"({"type": "number", "minimum": -1.5, "exclusiveMaximum": 2.25})",
    R"({"type": "number", "minimum": 0.125, "maximum": 0.1875})",
    R"({"type": "number", "exclusiveMinimum": 99.9, "exclusiveMaximum": 100.05})",
    R"({"type": "number", "maximum": -0.5})",
    R"({"type": "number", "minimum": 3, "maximum": 3})",
    R"({"type": "number", "minimum": 1e-3, "maximum": 2.5e2})",
    R"({"type": "number", "minimum": 5, "exclusiveMinimum": true, "maximum": 5.0625})",
    R"({"type": "integer"})",
    R"({"type": "integer", "minimum": 1})",
    R"({"type": "integer", "exclusiveMinimum": -1, "exclusiveMaximum": 1})",
    R"({"type": "integer", "minimum": -128, "maximum": 127})",
    R"({"type": "integer", "minimum": 256, "maximum": 70000})",
    R"({"type": "integer", "minimum": 1.5, "maximum": 9.5})",
    R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807})",
    R"({"type": "integer", "maximum": -7})",
    R"({"type": "boolean"})",
    R"({"type": "string", "nullable": true, "maxLength": 1})",
    R"({"type": "array", "uniqueItems": true, "maxItems": 1})",
    R"({"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"enum": ["x", "y"]}}}, "required": ["id"]}, "minItems": 2})",
    R"({})",
    R"(true)",
};

TEST(JsonSchema, RandomDocumentsAreValid) {
  Random random(7);
  const auto vocabulary = GrammarVocabulary::make(byte_tokenizer());
  for (const char* schema : kSchemas) {
    const Json json = parse(schema);
    const SchemaCheck check(json);
    const auto grammar = grammar_of(schema);
    for (int i = 0; i < 25; ++i) {
      const std::string text = random_document(grammar, byte_tokenizer(), vocabulary, random);
      const Json document = Json::parse(text, nullptr, false);
      ASSERT_FALSE(document.is_discarded()) << schema << "\n" << text.substr(0, 500);
      EXPECT_EQ(check.problem(document), "") << schema << "\n" << text;
      EXPECT_TRUE(grammar_matches(*grammar, text));
    }
  }
}

TEST(JsonSchema, EveryPrefixOfADocumentIsNoDocument) {
  Random random(11);
  const auto vocabulary = GrammarVocabulary::make(byte_tokenizer());
  const auto grammar = grammar_of(kSchemas[0]);
  for (int i = 0; i < 10; ++i) {
    const std::string text = random_document(grammar, byte_tokenizer(), vocabulary, random);
    for (size_t n = 0; n < text.size(); ++n) EXPECT_FALSE(grammar_matches(*grammar, text.substr(0, n)));
  }
}

TEST(JsonSchema, DocumentsThatAreTakenAndRefused) {
  struct Case {
    const char* schema;
    std::vector<const char*> good, bad;
  };
  const Case cases[] = {
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]})",
       {R"({"a": 1})", R"({"a":1,"b":"x"})", "{\n  \"a\": 1\n}"},
       {R"({"b": "x"})", R"({"a": "1"})", R"({"a": 1, "c": 2})", R"({"a": 1,})", "{}", R"({"a": 1} )", R"([1])",
        R"({"a": 01})"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "ab": {"type": "integer"}}, "additionalProperties": {"type": "null"}})",
       {"{}", R"({"a": 1, "ab": 2, "c": null})", R"({"abc": null, "": null})", R"({"b": null})"},
       {R"({"a": null})", R"({"ab": null})", R"({"\u0061": null})", R"({"c": 1})"}},
      {R"({"type": "integer", "minimum": -20, "maximum": 105})",
       {"-20", "-19", "-9", "-1", "0", "7", "10", "99", "100", "105"},
       {"-21", "-30", "106", "200", "1000", "00", "-100", "1.0", "1e1"}},
      {R"({"type": "integer", "minimum": 95, "maximum": 1203})",
       {"95", "99", "100", "999", "1000", "1199", "1203"},
       {"94", "1204", "9", "2000", "0"}},
      {R"({"type": "number", "minimum": 0.5, "maximum": 10.25})",
       {"0.5", "0.50", "0.51", "0.9", "1", "9.99", "10", "10.0", "10.2", "10.25", "10.250"},
       {"0", "0.4", "0.49", "10.26", "10.251", "10.3", "11", "-1", "1e5"}},
      {R"({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1})",
       {"0.1", "0.001", "0.99"},
       {"0", "0.0", "1", "1.0", "-0.1"}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {R"("ab")", "\"\xC3\xA9\xC3\xA9\xC3\xA9\"", R"("\n\u00e9")", R"("\ud83d\ude00x")"},
       {R"("a")", R"("abcd")", R"("\ud83d\ude00")", R"("\ud83dab")", "ab", "\"a\nb\""}},
      {R"({"type": "string", "format": "date"})",
       {R"("2024-02-29")", R"("2000-02-29")", R"("1999-12-31")"},
       {R"("2023-02-29")", R"("1900-02-29")", R"("2024-04-31")", R"("2024-13-01")", R"("2024-1-1")",
        R"("2024-00-10")"}},
      {R"({"type": "string", "format": "date-time"})",
       {R"("2024-02-29T23:59:59Z")", R"("2024-01-01T00:00:00.123+05:30")"},
       {R"("2024-02-29 23:59:59Z")", R"("2024-01-01T24:00:00Z")", R"("2024-01-01T00:00:00")"}},
      {R"({"type": "string", "pattern": "^(\\+\\d{1,3} )?[1-9]\\d{3,}$"})",
       {R"("+49 1234")", R"("5555")"},
       {R"("49 1234")", R"("0123")", R"("123")"}},
      {R"({"type": "string", "pattern": "o.o"})", {R"("foo oof")", R"("xo\"ox")"}, {R"("foo")", R"("o\nof")"}},
      {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]})",
       {"[]", "[1]", "[1, \"a\"]"},
       {"[\"a\"]", "[1, 2]", "[1, \"a\", 3]"}},
      {R"({"const": {"a": [1, "x"]}})", {R"({"a":[1,"x"]})"}, {R"({"a":[1]})"}},
  };
  for (const Case& c : cases) {
    const auto grammar = grammar_of(c.schema);
    const SchemaCheck check(parse(c.schema));
    for (const char* text : c.good) EXPECT_TRUE(grammar_matches(*grammar, text)) << c.schema << " " << text;
    for (const char* text : c.bad) EXPECT_FALSE(grammar_matches(*grammar, text)) << c.schema << " " << text;
  }
}

TEST(JsonSchema, KeywordsThatCannotBeKeptAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"not": {"type": "string"}})", "'not' at #"},
      {R"({"properties": {"a": {"if": {}, "then": {}}}})", "'if' at #/properties/a"},
      {R"({"type": "object", "patternProperties": {"^x": {}}})", "patternProperties"},
      {R"({"type": "object", "propertyNames": {}})", "propertyNames"},
      {R"({"type": "object", "minProperties": 2})", "minProperties"},
      {R"({"type": "object", "maxProperties": 2})", "maxProperties"},
      {R"({"type": "object", "dependentRequired": {}})", "dependentRequired"},
      {R"({"type": "array", "uniqueItems": true})", "uniqueItems"},
      {R"({"type": "array", "contains": {}})", "contains"},
      {R"({"type": "number", "multipleOf": 0.5})", "multipleOf"},
      {R"~({"type": "string", "pattern": "(?=a)"})~", "looks ahead"},
      {R"({"type": "string", "pattern": "\\bword"})", "\\b"},
      {R"~({"type": "string", "pattern": "(a"})~", "not closed"},
      {R"({"type": "string", "pattern": "a^b"})", "in the middle"},
      {R"({"type": "string", "pattern": "(a)\\1"})", "\\1"},
      {R"({"type": "string", "pattern": "^ab?c?$", "minLength": 2})", "minLength"},
      {R"({"type": "string", "pattern": "a", "format": "date"})", "format 'date'"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "alternatives 0 and 1 of oneOf"},
      {R"({"oneOf": [{"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"b": {}}}]})",
       "oneOf"},
      {R"({"$ref": "#/nowhere"})", "leads nowhere"},
      {R"({"$ref": "http://example.com/schema"})", "leads outside"},
      {R"({"$ref": "#"})", "refers to itself"},
      {R"({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"})",
       "refers to itself"},
      {R"({"type": "strin"})", "strin"},
      {R"({"type": "array", "minItems": 3, "maxItems": 2})", "minItems"},
      {R"({"type": "array", "prefixItems": [{}], "items": false, "minItems": 2})", "minItems"},
      {R"({"type": "string", "minLength": -1})", "minLength"},
      {R"({"type": "string", "minLength": 4, "maxLength": 3})", "minLength"},
      {R"({"type": "integer", "minimum": 3, "maximum": 2})", "no whole number"},
      {R"({"type": "integer", "minimum": 1.2, "maximum": 1.8})", "no whole number"},
      {R"({"type": "number", "exclusiveMinimum": 1, "maximum": 1})", "no number"},
      {R"({"type": "number", "minimum": 1e300})", "minimum"},
      {R"({"allOf": [{"type": "string"}, {"type": "integer"}]})", "allows nothing"},
      {R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})", "pattern"},
      {R"({"type": "object", "required": ["a"], "additionalProperties": false})", "requires the property 'a'"},
      {R"({"type": "object", "properties": {"a": false}, "required": ["a"]})", "allows nothing"},
      {R"({"enum": []})", "no value"},
      {R"({"type": "integer", "enum": ["a"]})", "no value"},
      {R"({"enum": ["a"], "pattern": "a"})", "'pattern' beside"},
      {R"({"anyOf": []})", "anyOf"},
      {"false", "allows nothing"},
      {"[]", "neither an object"},
      {R"({"properties": {"a": 3}})", "#/properties/a"},
      {R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "allows no text"},
  };
  for (const auto& [schema, what] : cases) EXPECT_THAT(error_of_schema(schema), HasSubstr(what)) << schema;
}

TEST(JsonSchema, HostileSchemasEndSoon) {
  // References that double at each level.
  std::string defs = R"({"$defs": {"d0": {"type": "string"})";
  for (int i = 1; i <= 40; ++i) {
    defs += fmt::format(R"(, "d{0}": {{"allOf": [{{"$ref": "#/$defs/d{1}"}}, {{"$ref": "#/$defs/d{1}"}}]}})", i, i - 1);
  }
  EXPECT_THAT(error_of_schema(defs + R"(}, "$ref": "#/$defs/d40"})"), HasSubstr("schema"));
  // Deep, wide, long.
  std::string deep = R"({"type": "string"})";
  for (int i = 0; i < 250; ++i) deep = std::string(R"({"type": "array", "items": )").append(deep).append("}");
  EXPECT_THAT(error_of_schema(deep), HasSubstr("200 deep"));
  Json wide = {{"type", "object"}, {"properties", Json::object()}};
  for (int i = 0; i < 400; ++i) wide["properties"][fmt::format("p{}", i)] = {{"type", "integer"}};
  const auto grammar = Grammar::compile(json_schema_grammar(wide));
  EXPECT_TRUE(grammar_matches(*grammar, R"({"p3": 1, "p399": 2})"));
  EXPECT_FALSE(grammar_matches(*grammar, R"({"p3": 1, "p2": 2})"));
  Json many = {{"enum", Json::array()}};
  for (int i = 0; i < 200'000; ++i) many["enum"].push_back(fmt::format("value number {}", i));
  EXPECT_THAT(error_of([&] { json_schema_grammar(many); }), HasSubstr("too large"));
}

TEST(JsonSchema, JsonObject) {
  const auto grammar = Grammar::compile(json_object_grammar());
  EXPECT_TRUE(grammar_matches(*grammar, R"({"a": [1, -2.5e3, true, null, {"b": "\u00e9\ud83d\ude00"}], "": {}})"));
  for (const char* bad : {"[]", "1", "", "{", R"({"a"})", R"({"a": 1,})", R"({"a": 01})", R"({"a": .5})",
                          R"({"a": "\ud83d"})", R"({'a': 1})", R"({"a": NaN})"}) {
    EXPECT_FALSE(grammar_matches(*grammar, bad)) << bad;
  }
  JsonSchemaOptions compact;
  compact.compact = true;
  EXPECT_TRUE(grammar_matches(*Grammar::compile(json_object_grammar(compact)), R"({"a":[1,2]})"));
  EXPECT_FALSE(grammar_matches(*Grammar::compile(json_object_grammar(compact)), R"({"a": 1})"));
}

/// Every vocabulary that is committed.
TEST(JsonSchema, RandomDocumentsOfRealVocabulariesAreValid) {
  Random random(3);
  int vocabularies = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(MOETIER_TEST_DATA) + "/tokenizer")) {
    if (entry.path().extension() != ".gguf") continue;
    std::unique_ptr<Tokenizer> tokenizer;
    const GgufFile file = GgufFile::open(entry.path().string());
    try {
      tokenizer = Tokenizer::load(file);
    } catch (const Error&) {
      continue;  // made to be refused
    }
    ++vocabularies;
    const auto vocabulary = GrammarVocabulary::make(*tokenizer);
    for (const char* schema : {kSchemas[0], kSchemas[2], kSchemas[14], kSchemas[18], kSchemas[31]}) {
      const SchemaCheck check(parse(schema));
      const auto grammar = grammar_of(schema);
      for (int i = 0; i < 3; ++i) {
        const std::string text = random_document(grammar, *tokenizer, vocabulary, random);
        const Json document = Json::parse(text, nullptr, false);
        ASSERT_FALSE(document.is_discarded()) << entry.path() << schema << "\n" << text.substr(0, 500);
        EXPECT_EQ(check.problem(document), "") << entry.path() << schema << "\n" << text;
      }
    }
  }
  EXPECT_GE(vocabularies, 3);
}

}  // namespace
}  // namespace moetier
