// A subcommand: its name, what it takes, and what it does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/param.h"
#include "cli/settings.h"

namespace moetier::cli {

/// A bare argument, e.g. IN and OUT of quantize.
struct Positional {
  std::string_view name;  ///< as help shows it, upper case
  std::string_view help;
  std::string_view param;  ///< the parameter it fills; the last one takes all that follows if that may be repeated
  bool required = true;
};

struct Command {
  std::string_view name;         ///< one word, or two: "profile show"
  std::string_view summary;      ///< one line
  std::string_view description;  ///< a paragraph for --help and the man page
  std::vector<Positional> positionals;
  ParamList params;
  std::vector<std::string_view> examples;
  int (*run)(const Settings& settings);  ///< returns the exit code; throws Error
  bool flags_after_dashes = false;       ///< a "--" among the arguments changes nothing
};

/// All subcommands in the order that help shows them.
const std::vector<Command>& commands();
const Command* find_command(std::string_view name);
/// The command that the first one or two words name, nullptr if none; `words`: how many they are.
const Command* find_command(const std::vector<std::string>& arguments, size_t& words);

/// The whole program. `arguments` without the program's name.
int run_program(const std::vector<std::string>& arguments);

// One function per subcommand, each in its own file.
int run_run(const Settings& settings);
int run_logits(const Settings& settings);
int run_perplexity(const Settings& settings);
int run_bench(const Settings& settings);
int run_inspect(const Settings& settings);
int run_tokenize(const Settings& settings);
int run_detokenize(const Settings& settings);
int run_template(const Settings& settings);
int run_trace(const Settings& settings);
int run_trace_show(const Settings& settings);
int run_profile(const Settings& settings);
int run_profile_show(const Settings& settings);
int run_profile_merge(const Settings& settings);
int run_profile_compare(const Settings& settings);
int run_profile_validate(const Settings& settings);
int run_plan(const Settings& settings);
int run_predict(const Settings& settings);
int run_bench_grid(const Settings& settings);
int run_compare(const Settings& settings);
int run_eval_code(const Settings& settings);
int run_check_all(const Settings& settings);
int run_simulate(const Settings& settings);
int run_quantize(const Settings& settings);
int run_synth(const Settings& settings);
int run_check_audit(const Settings& settings);
int run_serve(const Settings& settings);
int run_check_api(const Settings& settings);
int run_docs(const Settings& settings);

}  // namespace moetier::cli
