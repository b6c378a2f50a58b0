#include "cli/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

namespace moetier::cli {
namespace {

constexpr size_t kTextColumn = 30;  // where a flag's explanation begins
constexpr size_t kLineWidth = 100;

/// Breaks at spaces so that lines that begin at `indent` end before kLineWidth.
std::string wrap(const std::string& text, size_t indent) {
  std::istringstream words(text);
  std::string out, word;
  size_t column = indent;
  while (words >> word) {
    if (column > indent && column + 1 + word.size() > kLineWidth) {
      out.append("\n").append(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

std::string usage_line(const Command& command) {
  std::string line = fmt::format("moetier {}", command.name);
  for (const Positional& p : command.positionals) {
    const bool more =
        std::ranges::any_of(command.params, [&](const Param& o) { return o.name == p.param && o.repeated; });
    line += fmt::format(" {}{}{}{}", p.required ? "" : "[", p.name, more ? "..." : "", p.required ? "" : "]");
  }
  return line + " [flags]";
}

void append_params(std::string& out, const Command& command, bool accepted_only) {
  for (const Param& p : command.params) {
    if ((p.handling != Handling::active) != accepted_only) continue;
    const std::string names = "  " + flag_names(p);
    out += names;
    out += names.size() + 2 > kTextColumn ? "\n" + std::string(kTextColumn, ' ')
                                          : std::string(kTextColumn - names.size(), ' ');
    out += wrap(param_details(p), kTextColumn) + "\n";
  }
}

}  // namespace

std::string flag_names(const Param& param) {
  std::vector<std::string> names;
  for (const std::string_view alias : param.aliases) {
    if (alias.size() == 2) names.emplace_back(alias);
  }
  names.push_back(fmt::format("--{}", param.name));
  for (const std::string_view alias : param.aliases) {
    if (alias.size() != 2) names.emplace_back(alias);
  }
  return fmt::format("{}{}{}", fmt::join(names, ", "), param.value.empty() ? "" : " ", param.value);
}

std::string param_details(const Param& param) {
  std::string text(param.help);
  if (param.handling == Handling::noop) return fmt::format("{} Accepted, changes nothing: {}.", text, param.note);
  if (param.handling == Handling::refused) return fmt::format("{} Refused: {}.", text, param.note);
  if (param.type == ParamType::choice) text += fmt::format(" One of {}.", fmt::join(param.choices, ", "));
  if (!param.fallback.empty() && param.type != ParamType::flag) text += fmt::format(" Default: {}.", param.fallback);
  if (param.repeated) text += param.many ? " Several may follow." : " May be repeated.";
  if (param.lossy) text += " Changes the answer.";
  if (!param.mode.empty()) text += fmt::format(" Needs {}.", param.mode);
  if (!param.env.empty())
    text += fmt::format(" Environment: {}{}{}.", param.env, param.env_alias.empty() ? "" : " or ", param.env_alias);
  return text;
}

std::string program_help() {
  std::string out = "moetier " MOETIER_VERSION
                    " - runs Mixture-of-Experts models that are bigger than memory\n\n"
                    "Usage: moetier COMMAND [flags]\n\nCommands:\n";
  for (const Command& command : commands()) out += fmt::format("  {:<16} {}\n", command.name, command.summary);
  out +=
      "\n'moetier COMMAND --help' lists a command's flags; 'moetier --version' prints the version.\n"
      "Exit codes: 0 done, 1 failed, 2 wrong usage.\n";
  return out;
}

std::string command_help(const Command& command) {
  std::string out = fmt::format("{}\n\nUsage: {}\n\n{}\n", command.summary, usage_line(command),
                                wrap(std::string(command.description), 0));
  if (!command.positionals.empty()) {
    out += "\nArguments:\n";
    for (const Positional& p : command.positionals) out += fmt::format("  {:<27} {}\n", p.name, p.help);
  }
  out += "\nFlags:\n";
  append_params(out, command, false);
  std::string accepted;
  append_params(accepted, command, true);
  if (!accepted.empty()) out += "\nFlags of other tools:\n" + accepted;
  out += "\nExamples:\n";
  for (const std::string_view example : command.examples) out += fmt::format("  {}\n", example);
  return out;
}

std::string markdown_reference() {
  std::string out =
      "# Command line\n\nThis page is made by `moetier docs cli` from the one parameter table "
      "(`src/cli/commands.cpp`); do not edit it.\n\n"
      "Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 failed, 2 wrong usage. "
      "A flag `--x` is\n"
      "switched off by `--no-x`. A typed flag wins over its environment variable.\n";
  const auto cell = [](std::string text) {
    for (size_t i = 0; (i = text.find('|', i)) != std::string::npos; i += 2) text.replace(i, 1, "\\|");
    return text;
  };
  for (const Command& command : commands()) {
    out += fmt::format("\n## moetier {}\n\n{}\n\n```\n{}\n```\n\n", command.name, command.description,
                       usage_line(command));
    for (const Positional& p : command.positionals) out += fmt::format("- `{}`: {}\n", p.name, p.help);
    if (!command.positionals.empty()) out += "\n";
    out += "| flag | what it does |\n|---|---|\n";
    for (const Param& p : command.params)
      out += fmt::format("| `{}` | {} |\n", cell(flag_names(p)), cell(param_details(p)));
    out += "\nExamples:\n\n```\n";
    for (const std::string_view example : command.examples) out += fmt::format("{}\n", example);
    out += "```\n";
  }
  return out;
}

}  // namespace moetier::cli
