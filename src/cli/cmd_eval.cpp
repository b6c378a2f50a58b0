// eval code: small coding tasks, each answer run against asserts.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/stopwatch.h"
#include "cli/command.h"
#include "cli/eval_answers.h"
#include "cli/sandbox.h"
#include "cli/support.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

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

Json evaluate(std::span<const CodeTask> tasks, Answers& answers, bool shut_in, bool tell) {
  Json results = Json::array();
  for (const CodeTask& task : tasks) {
    Stopwatch watch;
    const Answer answer = answers.of(task);
    const double seconds = watch.lap();
    const std::string code = code_of(answer.text);
    SandboxResult result{false, answer.problem.empty() ? "there is no answer" : answer.problem};
    if (code.find_first_not_of(" \t\r\n") != std::string::npos)
      result = run_python(fmt::format("{}\n\n{}", code, task.asserts), shut_in);
    results.push_back({{"task", task.name},
                       {"passed", result.passed},
                       {"why", result.passed ? Json(nullptr) : Json(result.why)},
                       {"seconds", seconds},
                       {"answer", answer.text}});
    if (tell)
      print_out(fmt::format("{:<14} {:<7} {:>6.1f} s  {}\n", task.name, result.passed ? "passed" : "failed", seconds,
                            result.why));
  }
  return results;
}

}  // namespace

int run_eval_code(const Settings& settings) {
  const bool trusted = settings.flag("trust-answers");
  if (const std::string problem = sandbox_problem(); !trusted && !problem.empty())
    fail("answers are not run: {}; --trust-answers runs them with limits on time and memory only", problem);
  const std::unique_ptr<Answers> answers = answers_of(settings);
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
