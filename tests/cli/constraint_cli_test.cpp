// Grammars and schemas on the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/process.h"

namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kDemo = MOETIER_SOURCE_DIR "/models/fairytale-moe-q8_0.gguf";

TEST(ConstraintCli, AGrammarAndASchemaAreKept) {
  const TemporaryFolder folder;
  const std::string grammar = folder.write("g.gbnf", "root ::= \"Once\" \" upon\"{3} [ab]\n");
  const ProcessResult by_file =
      run_moetier({"run", "-m", kDemo, "-p", "The king", "--grammar-file", grammar, "--seed", "1", "-q"});
  EXPECT_EQ(by_file.code, 0) << by_file.err;
  EXPECT_THAT(by_file.out, testing::MatchesRegex("Once upon upon upon[ab]"));
  const ProcessResult person = run_moetier(
      {"run", "-m", kDemo, "-p", "The king", "-q", "--seed", "2", "--json-schema",
       R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 99}}, "required": ["name", "age"]})"});
  EXPECT_EQ(person.code, 0) << person.err;
  const json parsed = json::parse(person.out, nullptr, false);
  ASSERT_TRUE(parsed.is_object()) << person.out;
  EXPECT_TRUE(parsed["name"].is_string());
  EXPECT_LE(parsed["age"].get<int>(), 99);
}

TEST(ConstraintCli, EachAnswerOfAChatBeginsAnew) {
  const TemporaryFolder folder;
  const std::string format = folder.write("t.jinja", "{% for m in messages %}{{ m.content }} {% endfor %}");
  const ProcessResult chat = run_moetier({"run", "-m", kDemo, "--chat", "--chat-template", format, "--grammar",
                                          "root ::= \"yes\" | \"no\"", "-q", "--temp", "0"},
                                         "Is it?\nIs it not?\n");
  EXPECT_EQ(chat.code, 0) << chat.err;
  EXPECT_THAT(chat.out, testing::MatchesRegex("(yes|no)\n(yes|no)\n"));
}

TEST(ConstraintCli, MistakesAreWrongUsage) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--grammar", "root ::= other"}, "line 1, column 10: the rule 'other'"},
      {{"--grammar", "root ::= \"a\"", "--json-schema", "{}"}, "--grammar and --json-schema exclude each other"},
      {{"--json-schema", R"({"not": {}})"}, "'not' at #"},
      {{"--json-schema", "{"}, "not valid JSON"},
  };
  for (const auto& [flags, what] : cases) {
    std::vector<std::string> all = {"run", "-m", kDemo, "-p", "x"};
    all.insert(all.end(), flags.begin(), flags.end());
    const ProcessResult result = run_moetier(all);
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr(what));
  }
}

}  // namespace
