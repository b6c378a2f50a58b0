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
  std::string_view param;  ///< the parameter it fills
  bool required = true;
};

struct Command {
  std::string_view name;
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
int run_simulate(const Settings& settings);
int run_quantize(const Settings& settings);
int run_synth(const Settings& settings);
int run_check_audit(const Settings& settings);
int run_serve(const Settings& settings);
int run_check_api(const Settings& settings);
int run_docs(const Settings& settings);

}  // namespace moetier::cli
