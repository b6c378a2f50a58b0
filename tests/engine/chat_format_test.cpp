// Templates tell in which notation their models write.
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "base/file.h"
#include "engine/chat_output.h"
#include "engine/oracle_case.h"

namespace moetier {
namespace {

namespace fs = std::filesystem;

TEST(ChatFormats, TemplatesGiveTheirFormatAway) {
  const std::pair<const char*, ChatFormat> templates[] = {
      {"{{ '<|start|>assistant<|channel|>final<|message|>' }}", ChatFormat::harmony},
      {"<|tool_call>call:", ChatFormat::gemma4},
      {"set dsml_token = '｜DSML｜'", ChatFormat::deepseek_dsml},
      {"<｜tool▁calls▁begin｜> <think>", ChatFormat::deepseek},
      {"<tool_call>{name}\n<arg_key>", ChatFormat::glm},
      {"<tool_call>\n<function=example>", ChatFormat::qwen_xml},
      {"<tool_call>\n{\"name\"", ChatFormat::hermes},
      {"<think> only", ChatFormat::hermes},
      {"<|tool_list_start|>", ChatFormat::lfm2},
      {"<minimax:tool_call>", ChatFormat::minimax},
      {"<|tool_calls_section_begin|>", ChatFormat::kimi},
      {"<|python_tag|>", ChatFormat::llama_json},
      {"[TOOL_CALLS]", ChatFormat::mistral},
      {"<|header_start|>user<|header_end|>", ChatFormat::llama4},
      {"<think> <|tool_call|> followed by a JSON list", ChatFormat::granite},
      {"{{ messages }}", ChatFormat::plain}};
  for (const auto& [source, format] : templates) EXPECT_EQ(detect_chat_format(source), format) << source;
  EXPECT_TRUE(prompt_opens_reasoning(ChatFormat::hermes, "...<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(prompt_opens_reasoning(ChatFormat::hermes, "...<think>\n\n</think>\n\n"));
  EXPECT_FALSE(prompt_opens_reasoning(ChatFormat::plain, "<think>"));
}

/// Templates of real models, each with the format that it is known to teach.
TEST(ChatFormats, TemplatesOfRealModelsGiveTheirFormatAway) {
  const fs::path folder = testing_support::shared_folder() / "templates";
  if (!fs::is_directory(folder)) GTEST_SKIP() << "the real templates are not there: " << folder;
  const std::string list = MOETIER_TEST_DATA "/template/formats.txt";
  std::map<std::string, std::string> known;
  std::istringstream lines(read_file(list));
  for (std::string name, format; lines >> name >> format;) EXPECT_TRUE(known.emplace(name, format).second) << name;
  size_t seen = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string name = entry.path().stem();
    const std::string_view format = to_string(detect_chat_format(read_file(entry.path().string())));
    ++seen;
    ASSERT_TRUE(known.contains(name)) << "the template is taken as " << format << "; if that is right, add \"" << name
                                      << " " << format << "\" to " << list;
    EXPECT_EQ(format, known.at(name)) << name;
  }
  EXPECT_GT(seen, 0u);
}

}  // namespace
}  // namespace moetier
