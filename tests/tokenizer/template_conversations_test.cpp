// Whole chat templates over many conversations, against what jinja2 made of them (tools/compare-templates.py update).
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "template_support.h"

namespace moetier::jinja {
namespace {

class TemplateConversations : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("TZ", "UTC", 1);
    tzset();
  }
};

TEST_F(TemplateConversations, OwnTemplatesRenderAsJinja2Does) {
  const auto conversations = read_json("conversations.json");
  const auto own = read_json("own.json");
  ASSERT_GE(own.size(), 4u);
  for (const auto& [name, expected] : own.items()) {
    const std::string source = read_data(std::string(MOETIER_TEST_DATA "/template/") + name);
    ASSERT_FALSE(source.empty()) << name;
    ASSERT_EQ(expected.size(), conversations.size());
    for (size_t i = 0; i < conversations.size(); ++i) {
      const Outcome outcome = render(source, conversations[i].at("variables"));
      const auto label = name + ", " + conversations[i].at("name").get<std::string>();
      EXPECT_EQ(outcome.rendered, expected[i].contains("expected")) << label << "\n" << outcome.text;
      const char* key = expected[i].contains("expected") ? "expected" : "message";
      EXPECT_EQ(outcome.text, expected[i].value(key, outcome.text)) << label;
    }
  }
}

std::string summary(const Outcome& outcome, const std::string& expected) {
  if (outcome.rendered) return fnv(outcome.text) + " " + std::to_string(outcome.text.size());
  if (outcome.kind == FaultKind::raised) return "! TemplateError: " + outcome.text;
  return expected.starts_with("! ") && !expected.starts_with("! TemplateError") ? expected : "! " + outcome.text;
}

TEST_F(TemplateConversations, TemplatesOfRealModelsRenderAsJinja2Does) {
  const char* given = std::getenv("MOETIER_SHARED");
  const std::string folder = (given != nullptr ? std::string(given) : MOETIER_SOURCE_DIR "/../shared") + "/templates";
  if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << "the real templates are not there: " << folder;
  const auto conversations = read_json("conversations.json");
  const auto shared = read_json("shared.json");
  size_t compared = 0;
  for (const auto& [name, entry] : shared.items()) {
    const std::string source = read_data(folder + "/" + name);
    if (fnv(source) != entry.at("source").get<std::string>()) continue;  // another version: nothing is known of it
    ++compared;
    for (size_t i = 0; i < conversations.size(); ++i) {
      const auto expected = entry.at("results").at(i).get<std::string>();
      const Outcome outcome = render(source, conversations[i].at("variables"));
      EXPECT_EQ(summary(outcome, expected), expected)
          << name << ", " << conversations[i].at("name") << ": see tools/compare-templates.py compare\n"
          << outcome.text;
    }
  }
  EXPECT_GE(compared, 40u) << "most of the templates in " << folder << " are not those that shared.json was made from";
}

}  // namespace
}  // namespace moetier::jinja
