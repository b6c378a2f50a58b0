// template: a chat template over messages.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/command.h"
#include "cli/support.h"
#include "tokenizer/chat_template.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

Json read_variables(const std::string& path) {
  Json json = parse_json(read_input(path), path);
  if (json.is_array()) return Json{{"messages", std::move(json)}};
  if (!json.is_object() || !json.contains("messages")) {
    fail("{} must hold an array of messages, or an object with the key 'messages'", path);
  }
  return json;
}

}  // namespace

int run_template(const Settings& settings) {
  Json variables = read_variables(need(settings, "messages"));
  std::string source;
  if (settings.is_set("model")) {
    if (settings.is_set("file")) usage_error("--file and --model exclude each other");
    const GgufFile file = GgufFile::open(settings.text("model"));
    const auto tokenizer = Tokenizer::load(file);
    source = tokenizer->chat_template();
    if (source.empty()) fail("{} has no chat template; pass one with --file", settings.text("model"));
    if (tokenizer->bos() >= 0) variables["bos_token"] = tokenizer->text(tokenizer->bos());
    if (tokenizer->eos() >= 0) variables["eos_token"] = tokenizer->text(tokenizer->eos());
  } else {
    source = read_input(need(settings, "file"));
  }
  if (settings.is_set("bos")) variables["bos_token"] = settings.text("bos");
  if (settings.is_set("eos")) variables["eos_token"] = settings.text("eos");
  if (!variables.contains("add_generation_prompt"))
    variables["add_generation_prompt"] = settings.flag("add-generation-prompt");
  print_out(ChatTemplate(source).render(variables));
  return 0;
}

}  // namespace moetier::cli
