#include "server/api/served_model.h"

#include <ctime>

#include "base/error.h"
#include "base/log.h"

namespace moetier::server {
namespace {

// For models that were never taught to chat: the texts alone, so that the model goes on with them.
constexpr std::string_view kTextsAlone =
    "{%- for message in messages -%}{{ message.content }}{%- if not loop.last %}{{ '\\n\\n' }}{% endif -%}"
    "{%- endfor -%}";

std::string choose_template(const Engine& engine, std::string given) {
  if (!given.empty()) return given;
  const std::string& own = engine.tokenizer().chat_template();
  if (!own.empty()) return own;
  log::warn("{} has no chat template, so a chat's texts are continued as they are; --chat-template gives it one",
            engine.file().path());
  return std::string(kTextsAlone);
}

/// Arguments of tool calls as texts, as the API has them, in place of objects.
void arguments_as_texts(Json& messages) {
  for (Json& message : messages) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end()) continue;
    for (Json& call : *calls) {
      Json& arguments = call["function"]["arguments"];
      if (!arguments.is_string()) arguments = arguments.dump();
    }
  }
}

bool has_tool_calls(const Json& messages) {
  for (const Json& message : messages) {
    if (message.contains("tool_calls")) return true;
  }
  return false;
}

}  // namespace

ServedModel::ServedModel(Engine& engine, std::string name, std::string template_source)
    : engine_(engine),
      name_(std::move(name)),
      template_source_(choose_template(engine, std::move(template_source))),
      template_(template_source_),
      format_(detect_chat_format(template_source_)),
      template_has_tools_(template_source_.find("tools") != std::string::npos),
      created_(static_cast<int64_t>(std::time(nullptr))) {}

std::string ServedModel::render(Json variables) const {
  const Tokenizer& words = tokenizer();
  if (!variables.contains("add_generation_prompt")) variables["add_generation_prompt"] = true;
  variables["bos_token"] = words.bos() >= 0 ? words.text(words.bos()) : std::string();
  variables["eos_token"] = words.eos() >= 0 ? words.text(words.eos()) : std::string();
  std::string problem;
  try {
    return template_.render(variables);
  } catch (const Error& error) {
    problem = error.what();
  }
  if (has_tool_calls(variables["messages"])) {
    arguments_as_texts(variables["messages"]);
    try {
      return template_.render(variables);
    } catch (const Error&) {
      // The first problem is the one to tell.
    }
  }
  throw ApiError(400, problem, "messages");
}

std::vector<TokenId> ServedModel::encode_rendered(std::string_view text) const {
  const Tokenizer& words = tokenizer();
  const bool has_bos =
      words.bos() >= 0 && !words.text(words.bos()).empty() && text.starts_with(words.text(words.bos()));
  return words.encode(text, {.add_special = !has_bos, .parse_special = true});
}

std::shared_ptr<const GrammarVocabulary> ServedModel::vocabulary(bool control_text) const {
  const std::lock_guard lock(mutex_);
  auto& kept = vocabularies_[control_text ? 1 : 0];
  if (kept == nullptr) kept = GrammarVocabulary::make(tokenizer(), control_text);
  return kept;
}

std::unique_ptr<TokenConstraint> ServedModel::constraint(const std::string& gbnf,
                                                         const std::vector<std::string>& triggers,
                                                         bool control_text) const {
  auto grammar = Grammar::compile(gbnf, {}, [this](std::string_view text) { return tokenizer().find(text); });
  if (triggers.empty()) return make_grammar_constraint(std::move(grammar), vocabulary(control_text));
  return make_lazy_grammar_constraint(std::move(grammar), vocabulary(control_text), triggers);
}

}  // namespace moetier::server
