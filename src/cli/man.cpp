#include <fmt/format.h>

#include "cli/help.h"

namespace moetier::cli {
namespace {

/// Text as roff wants it: backslashes, hyphens and leading dots escaped.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if ((c == '.' || c == '\'') && out.empty()) {
      out += std::string("\\&") + c;
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string man_page() {
  std::string out = ".TH MOETIER 1 \"\" \"moetier " MOETIER_VERSION
                    "\" \"User Commands\"\n"
                    ".SH NAME\nmoetier \\- run Mixture\\-of\\-Experts models that are bigger than memory\n"
                    ".SH SYNOPSIS\n.B moetier\n.I COMMAND\n[flags]\n"
                    ".SH DESCRIPTION\nReads ordinary GGUF files of Mixture\\-of\\-Experts language models and runs "
                    "them on this machine. "
                    "Results go to standard output, everything else to standard error. A flag \\-\\-x is switched off "
                    "by \\-\\-no\\-x; a typed flag wins over "
                    "its environment variable.\n.SH COMMANDS\n";
  for (const Command& command : commands())
    out += fmt::format(".TP\n.B {}\n{}.\n", roff(command.name), roff(command.summary));
  for (const Command& command : commands()) {
    out += fmt::format(".SH \"MOETIER {}\"\n{}\n", roff(command.name), roff(command.description));
    for (const Positional& p : command.positionals) out += fmt::format(".TP\n.I {}\n{}\n", roff(p.name), roff(p.help));
    for (const Param& p : command.params)
      out += fmt::format(".TP\n.B \"{}\"\n{}\n", roff(flag_names(p)), roff(param_details(p)));
    out += ".PP\nExamples:\n.nf\n";
    for (const std::string_view example : command.examples) out += fmt::format("{}\n", roff(example));
    out += ".fi\n";
  }
  out += ".SH EXIT STATUS\n0 done, 1 failed, 2 wrong usage.\n";
  return out;
}

}  // namespace moetier::cli
