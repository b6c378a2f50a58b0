// eval code: small coding tasks, each answer run against asserts.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "cli/chat.h"
#include "cli/command.h"
#include "cli/eval_tasks.h"
#include "cli/run_audit.h"
#include "cli/sandbox.h"
#include "cli/support.h"
#include "engine/generate.h"
#include "tokenizer/chat_template.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kAsk = " Answer with the code only, in one Python code block.";

/// The code of an answer: its longest fenced block, or all of it. What a model thought aloud before is left out.
std::string code_of(std::string_view answer) {
  constexpr std::string_view kThought = "</think>", kFence = "```";
  if (const size_t end = answer.rfind(kThought); end != std::string_view::npos)
    answer.remove_prefix(end + kThought.size());
  std::string_view best;
  for (size_t at = answer.find(kFence); at != std::string_view::npos;) {
    const size_t line = answer.find('\n', at);
    if (line == std::string_view::npos) break;
    const size_t end = answer.find(kFence, line);  // npos: cut off
    const std::string_view block = answer.substr(line + 1, end == std::string_view::npos ? end : end - line - 1);
    if (block.size() > best.size()) best = block;
    if (end == std::string_view::npos) break;
    at = answer.find(kFence, end + kFence.size());
  }
  return std::string(best.empty() ? answer : best);
}

/// Where answers come from.
class Answers {
 public:
  virtual ~Answers() = default;
  virtual std::string of(const CodeTask& task) = 0;
};

/// NAME.py in a folder.
class WrittenAnswers final : public Answers {
 public:
  explicit WrittenAnswers(std::string folder) : folder_(std::move(folder)) {}
  std::string of(const CodeTask& task) override {
    const std::string path = fmt::format("{}/{}.py", folder_, task.name);
    std::error_code absent;
    if (!std::filesystem::exists(path, absent)) return "";
    return read_file(path, uint64_t{1} << 20);
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
  std::string of(const CodeTask& task) override {
    SequenceState sequence = context_.new_sequence();
    std::vector<TokenId> held;
    const GenerateResult result = generate(context_, sequence, held, prompt_of(task), options_);
    if (result.reason == StopReason::cancelled) throw Cancelled();
    return result.text;
  }

 private:
  std::vector<TokenId> prompt_of(const CodeTask& task) const {
    const std::string ask = fmt::format("{}{}", task.prompt, kAsk);
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

Json evaluate(std::span<const CodeTask> tasks, Answers& answers, bool shut_in, bool tell) {
  Json results = Json::array();
  for (const CodeTask& task : tasks) {
    Stopwatch watch;
    const std::string answer = answers.of(task);
    const double seconds = watch.lap();
    const std::string code = code_of(answer);
    SandboxResult result{false, "there is no answer"};
    if (code.find_first_not_of(" \t\r\n") != std::string::npos)
      result = run_python(fmt::format("{}\n\n{}", code, task.asserts), shut_in);
    results.push_back({{"task", task.name},
                       {"passed", result.passed},
                       {"why", result.passed ? Json(nullptr) : Json(result.why)},
                       {"seconds", seconds},
                       {"answer", answer}});
    if (tell)
      print_out(fmt::format("{:<14} {:<7} {:>6.1f} s  {}\n", task.name, result.passed ? "passed" : "failed", seconds,
                            result.why));
  }
  return results;
}

}  // namespace

int run_eval_code(const Settings& settings) {
  const bool written = settings.is_set("answers");
  if (written == settings.is_set("model")) usage_error("answers come from a model or from --answers, one of them");
  const bool trusted = settings.flag("trust-answers");
  if (const std::string problem = sandbox_problem(); !trusted && !problem.empty())
    fail("answers are not run: {}; --trust-answers runs them with limits on time and memory only", problem);
  std::unique_ptr<Answers> answers;
  if (written) {
    answers = std::make_unique<WrittenAnswers>(settings.text("answers"));
  } else {
    answers = std::make_unique<ModelAnswers>(settings);
  }
  const bool hard = settings.text("suite") == "hard";
  const std::span<const CodeTask> tasks = hard ? hard_tasks() : smoke_tasks();
  const Json results = evaluate(tasks, *answers, !trusted, !settings.flag("json"));
  const auto passed = std::ranges::count_if(results, [](const Json& r) { return r["passed"].get<bool>(); });
  if (settings.flag("json")) {
    print_json({{"suite", settings.text("suite")}, {"passed", passed}, {"tasks", tasks.size()}, {"results", results}});
  } else {
    print_out(fmt::format("{} of {} tasks passed\n", passed, tasks.size()));
  }
  return 0;
}

}  // namespace moetier::cli
