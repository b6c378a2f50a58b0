#include "tokenizer/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/error.h"

namespace moetier {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

std::string error_of(const std::string& source, const ordered_json& variables = ordered_json::object()) {
  try {
    return "rendered: " + ChatTemplate(source).render(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::failed);
    return error.what();
  }
}

TEST(ChatTemplate, RendersMessages) {
  const ChatTemplate chat(
      "{% for m in messages %}\n<{{ m.role }}>{{ m['content'] }}</{{ m.role }}>\n{% endfor %}\n"
      "{% if add_generation_prompt %}<assistant>{% endif %}");
  const auto variables =
      ordered_json::parse(R"({"messages": [{"role": "user", "content": "Grüß dich"}], "add_generation_prompt": true})");
  EXPECT_EQ(chat.render(variables), "<user>Grüß dich</user>\n<assistant>");
}

TEST(ChatTemplate, KeepsTheOrderOfKeysInJson) {
  const auto variables = ordered_json::parse(R"({"t": {"zeta": 1, "alpha": [1.0, true, null], "mid": "<&'\"é>"}})");
  EXPECT_EQ(ChatTemplate("{{ t | tojson }}").render(variables),
            R"({"zeta": 1, "alpha": [1.0, true, null], "mid": "<&'\"é>"})");
}

TEST(ChatTemplate, KeepsIntegersOf64BitsWhole) {
  const auto variables = ordered_json::parse(R"({"t": [18446744073709551615, -9223372036854775808]})");
  EXPECT_EQ(ChatTemplate("{{ t | tojson }}").render(variables), "[18446744073709551615, -9223372036854775808]");
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_EQ(error_of("a\n{{ b\n"),
            "the chat template does not compile, line 2: unexpected end of template, expected "
            "'end of print statement'.");
  EXPECT_THAT(error_of("a\n{% foo %}"), HasSubstr("does not compile, line 2: Encountered unknown tag 'foo'."));
  EXPECT_EQ(error_of("a\n\n{{ b.c }}"), "the chat template failed, line 3: 'b' is undefined");
  EXPECT_EQ(error_of("{% macro m() %}\n{{ 1 // 0 }}\n{% endmacro %}\n\n{{ m() }}"),
            "the chat template failed, line 2: integer division or modulo by zero");
  EXPECT_THAT(error_of("{{ messages.append(1) }}", {{"messages", ordered_json::array()}}), HasSubstr("is unsafe"));
}

TEST(ChatTemplate, KeepsTheMessageOfRaiseException) {
  EXPECT_EQ(error_of("{{ raise_exception('After {} comes \\'user\\'!') }}"),
            "the chat template failed, line 1: After {} comes 'user'!");
}

TEST(ChatTemplate, OtherTemplatesAreRefusedOnlyWhenReached) {
  EXPECT_THAT(error_of("{% include 'x' %}"), HasSubstr("'include' is not supported"));
  EXPECT_EQ(ChatTemplate("{% if false %}{% import 'x' as y %}{% endif %}ok").render(ordered_json::object()), "ok");
}

TEST(ChatTemplate, WhatIsNotRepeatableIsRefused) {
  EXPECT_THAT(error_of("{{ [1, 2] | random }}"), HasSubstr("random is refused"));
  EXPECT_THAT(error_of("{{ lipsum() }}"), HasSubstr("lipsum is refused"));
}

TEST(ChatTemplate, ListsAreNeverChanged) {
  EXPECT_THAT(error_of("{{ l.pop() }}", {{"l", {1, 2}}}), HasSubstr("is unsafe"));
  EXPECT_THAT(error_of("{% set x = l.clear() %}", {{"l", {1, 2}}}), HasSubstr("is unsafe"));
}

TEST(ChatTemplate, BytesThatAreNotUtf8AreReplaced) {
  ordered_json variables;
  variables["s"] =
      "a\xff"
      "b\xe4\xb8";
  EXPECT_EQ(ChatTemplate("{{ s | upper }}").render(variables),
            "A\xEF\xBF\xBD"
            "B\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_THAT(error_of("a\xff"), HasSubstr("not valid UTF-8"));
}

TEST(ChatTemplate, VariablesMustBeAnObject) {
  EXPECT_THAT(error_of("x", ordered_json::array()), HasSubstr("not a JSON object"));
  EXPECT_EQ(ChatTemplate("x").render(nullptr), "x");
}

TEST(ChatTemplate, MovesAndIsSharedByThreads) {
  ChatTemplate first("{% for i in range(n) %}{{ 'x' ~ i }},{% endfor %}");
  ChatTemplate chat = std::move(first);
  std::vector<std::string> results(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) results[i] = chat.render({{"n", 3}});
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, "x0,x1,x2,");
}

}  // namespace
}  // namespace moetier
