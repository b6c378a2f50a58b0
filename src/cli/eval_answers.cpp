#include "cli/eval_answers.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/chat.h"
#include "cli/local_server.h"
#include "cli/run_audit.h"
#include "cli/support.h"
#include "engine/generate.h"
#include "tokenizer/chat_template.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

/// NAME.py in a folder.
class WrittenAnswers final : public Answers {
 public:
  explicit WrittenAnswers(std::string folder) : folder_(std::move(folder)) {
    std::error_code absent;
    if (!std::filesystem::is_directory(folder_, absent))
      fail("{} is no directory: --answers takes one with a NAME.py for each task", folder_);
  }
  Answer of(const CodeTask& task) override {
    const std::string path = fmt::format("{}/{}.py", folder_, task.name);
    std::error_code absent;
    if (!std::filesystem::exists(path, absent)) return {"", fmt::format("there is no {}", path)};
    return {read_file(path, uint64_t{1} << 20), ""};
  }

 private:
  std::string folder_;
};

/// A model's, greedy, by its chat template; a model without one continues the task as a comment.
class ModelAnswers final : public Answers {
 public:
  explicit ModelAnswers(const Settings& settings)
      : engine_(load_engine(settings)),
        context_(*engine_, context_options(settings, *engine_)),
        audit_(settings, context_) {
    options_.sampler.temperature = 0;
    options_.max_tokens = settings.integer("max-tokens");
    options_.cancel = &interrupted();
    chats_ = !engine_->tokenizer().chat_template().empty();
    if (!chats_) log::warn("{} has no chat template, so it continues the tasks as comments", settings.text("model"));
  }
  Answer of(const CodeTask& task) override {
    SequenceState sequence = context_.new_sequence();
    std::vector<TokenId> held;
    const GenerateResult result = generate(context_, sequence, held, prompt_of(task), options_);
    audit_.measure(result);
    if (result.reason == StopReason::cancelled) throw Cancelled();
    return {result.text, ""};
  }

 private:
  std::vector<TokenId> prompt_of(const CodeTask& task) const {
    const std::string ask = question_of(task);
    const Tokenizer& tokenizer = engine_->tokenizer();
    if (!chats_) return tokenizer.encode("# " + ask + "\n", {.add_special = true, .parse_special = false});
    return chat_prompt(ChatTemplate(tokenizer.chat_template()), Json::array({{{"role", "user"}, {"content", ask}}}),
                       tokenizer);
  }

  std::unique_ptr<Engine> engine_;
  Context context_;
  RunAudit audit_;
  GenerateOptions options_;
  bool chats_ = false;
};

/// A model's, through a server that lives as long as it is asked.
class OwnServerAnswers final : public Answers {
 public:
  explicit OwnServerAnswers(const Settings& settings)
      : engine_(load_engine(settings)),
        server_(*engine_, context_options(settings, *engine_), static_cast<int>(settings.integer("port")),
                settings.text("api-key"), [&](Context& context) { return open_audit(settings, context); }),
        asked_(answers_of_server(server_.url(), settings.text("api-key"), settings.integer("max-tokens"))) {
    log::info("serving {} at {}", settings.text("model"), server_.url());
  }
  Answer of(const CodeTask& task) override { return asked_->of(task); }

 private:
  std::unique_ptr<Engine> engine_;
  LocalServer server_;
  std::unique_ptr<Answers> asked_;
};

}  // namespace

std::string question_of(const CodeTask& task) {
  return fmt::format("{} Answer with the code only, in one Python code block.", task.prompt);
}

std::unique_ptr<Answers> answers_of(const Settings& settings) {
  const bool model = settings.is_set("model"), written = settings.is_set("answers"), url = settings.is_set("url");
  const bool port = settings.is_set("port"), served = settings.flag("server");
  if ((model ? 1 : 0) + (written ? 1 : 0) + (url ? 1 : 0) > 1 || (written && port) || (url && port))
    usage_error("answers come from a model, from a server (--url, --port) or from --answers, one of them");
  if (written) return std::make_unique<WrittenAnswers>(settings.text("answers"));
  const std::string& key = settings.text("api-key");
  const int64_t most = settings.integer("max-tokens");
  if (url) return answers_of_server(settings.text("url"), key, most);
  const bool in_process = settings.is_set("server") && !served;
  if (!model) {
    if (!port || in_process) usage_error("there is nobody to ask: give a model, --url, --port or --answers");
    if (settings.integer("port") == 0) usage_error("--port 0 is no server that runs; give its port");
    return answers_of_server(fmt::format("http://127.0.0.1:{}", settings.integer("port")), key, most);
  }
  if (served || (port && !in_process)) return std::make_unique<OwnServerAnswers>(settings);
  return std::make_unique<ModelAnswers>(settings);
}

}  // namespace moetier::cli
