// Two thousand small templates, each with what jinja2 made of it (tools/compare-templates.py update).
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <map>

#include "template_support.h"

namespace moetier::jinja {
namespace {

class TemplateCases : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("TZ", "UTC", 1);
    tzset();
  }
};

TEST_F(TemplateCases, RenderAsJinja2Does) {
  const auto cases = read_json("cases.json");
  size_t rendered = 0, refused = 0;
  for (const auto& test : cases.at("cases")) {
    const auto source = test.at("template").get<std::string>();
    const Outcome outcome = render(source, cases.at("variables"));
    if (test.contains("expected")) {
      EXPECT_TRUE(outcome.rendered) << source << "\n" << outcome.text;
      EXPECT_EQ(outcome.text, test.at("expected").get<std::string>()) << source;
      ++rendered;
    } else {
      EXPECT_FALSE(outcome.rendered) << source << "\nrenders, where jinja2 raises " << test.at("error") << "\n"
                                     << outcome.text;
      if (test.contains("message")) {
        EXPECT_EQ(outcome.text, test.at("message").get<std::string>()) << source;
      }
      EXPECT_NE(outcome.line, 0) << source;
      ++refused;
    }
  }
  EXPECT_GT(rendered, 1500u);
  EXPECT_GT(refused, 400u);
}

TEST_F(TemplateCases, FaultsAreOfJinja2sKind) {
  const std::map<std::string, FaultKind> kinds = {{"UndefinedError", FaultKind::undefined},
                                                  {"SecurityError", FaultKind::security},
                                                  {"ZeroDivisionError", FaultKind::zero_division},
                                                  {"TemplateError", FaultKind::raised},
                                                  {"TemplateSyntaxError", FaultKind::syntax},
                                                  {"FilterArgumentError", FaultKind::argument},
                                                  {"KeyError", FaultKind::key},
                                                  {"IndexError", FaultKind::index},
                                                  {"AssertionError", FaultKind::assertion}};
  const auto cases = read_json("cases.json");
  for (const auto& test : cases.at("cases")) {
    const auto known = kinds.find(test.value("error", ""));
    if (known == kinds.end()) continue;
    const auto source = test.at("template").get<std::string>();
    EXPECT_EQ(render(source, cases.at("variables")).kind, known->second) << source;
  }
}

}  // namespace
}  // namespace moetier::jinja
