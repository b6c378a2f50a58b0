#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/help.h"

namespace moetier::cli {
namespace {

std::vector<std::string> flags_of(const Param& p) {
  std::vector<std::string> out = {fmt::format("--{}", p.name)};
  if (p.type == ParamType::flag) out.push_back(fmt::format("--no-{}", p.name));
  for (const std::string_view alias : p.aliases) out.emplace_back(alias);
  return out;
}

/// A text inside single quotes of a shell; `extra` characters get a backslash.
std::string shell_quoted(std::string_view text, std::string_view extra = "") {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (extra.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

/// Commands of two words before those of one, so that the first pattern that fits is the right one.
std::vector<Command> longest_first() {
  std::vector<Command> all = commands();
  std::ranges::stable_partition(all, [](const Command& c) { return c.name.find(' ') != std::string_view::npos; });
  return all;
}

/// The second words of a command's own commands.
std::vector<std::string_view> second_words(std::string_view name) {
  std::vector<std::string_view> words;
  for (const Command& command : commands()) {
    if (command.name.size() > name.size() && command.name.starts_with(name) && command.name[name.size()] == ' ')
      words.push_back(command.name.substr(name.size() + 1));
  }
  return words;
}

}  // namespace

std::string bash_completion() {
  std::string names, cases;
  for (const Command& command : longest_first()) {
    const bool whole = command.name.find(' ') == std::string_view::npos;
    if (whole) names += fmt::format("{}{}", names.empty() ? "" : " ", command.name);
    std::string flags = "--help";
    std::string values;
    for (const Param& p : command.params) {
      if (p.handling != Handling::active) continue;
      for (const std::string& flag : flags_of(p)) flags += " " + flag;
      if (p.choices.empty()) continue;
      values += fmt::format("        {}) COMPREPLY=($(compgen -W '{}' -- \"$cur\")); return ;;\n",
                            fmt::join(flags_of(p), "|"), fmt::join(p.choices, " "));
    }
    cases += whole ? fmt::format("    '{} '*)\n      flags='{}' seconds='{}'\n", command.name, flags,
                                 fmt::join(second_words(command.name), " "))
                   : fmt::format("    '{}')\n      flags='{}'\n", command.name, flags);
    if (!values.empty()) cases += "      case \"$prev\" in\n" + values + "      esac\n";
    cases += "      ;;\n";
  }
  return fmt::format(
      "# Completion of moetier for bash, made by 'moetier docs bash'.\n"
      "_moetier() {{\n"
      "  local cur=\"${{COMP_WORDS[COMP_CWORD]}}\" prev=\"${{COMP_WORDS[COMP_CWORD-1]}}\" flags='' "
      "seconds=''\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W '{} --help --version' -- \"$cur\"))\n    return\n  fi\n"
      "  case \"${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}\" in\n{}  esac\n"
      "  if [ \"$COMP_CWORD\" -eq 2 ] && [ -n \"$seconds\" ]; then\n"
      "    COMPREPLY=($(compgen -W \"$seconds\" -f -- \"$cur\"))\n    return\n  fi\n"
      "  case \"$cur\" in\n    -*) COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\")) ;;\n    *) COMPREPLY=($(compgen -f "
      "-- \"$cur\")) ;;\n  esac\n"
      "}}\ncomplete -o filenames -F _moetier moetier\n",
      names, cases);
}

std::string zsh_completion() {
  std::string out =
      "#compdef moetier\n# Completion of moetier for zsh, made by 'moetier docs zsh'.\n_moetier() {\n  local -a "
      "names\n  names=(\n";
  for (const Command& command : commands()) {
    if (command.name.find(' ') == std::string_view::npos)
      out += fmt::format("    '{}:{}'\n", command.name, shell_quoted(command.summary, ":"));
  }
  out += "  )\n  if (( CURRENT == 2 )); then _describe command names; return; fi\n  case \"$words[2] $words[3]\" in\n";
  for (const Command& command : longest_first()) {
    const bool whole = command.name.find(' ') == std::string_view::npos;
    out += fmt::format("    '{}{})\n      _arguments -s \\\n", command.name, whole ? " '*" : "'");
    for (const Param& p : command.params) {
      if (p.handling != Handling::active) continue;
      for (const std::string& flag : flags_of(p)) {
        std::string action;
        if (p.type != ParamType::flag) {
          action = p.choices.empty() ? fmt::format(":{}:{}", p.value, p.type == ParamType::path ? "_files" : " ")
                                     : fmt::format(":{}:({})", p.value, fmt::join(p.choices, " "));
        }
        out += fmt::format("        '*{}[{}]{}' \\\n", flag, shell_quoted(p.help, "[]:"), shell_quoted(action));
      }
    }
    out += "        '*:file:_files'\n      ;;\n";
  }
  return out + "  esac\n}\n_moetier \"$@\"\n";
}

std::string fish_completion() {
  std::string out = "# Completion of moetier for fish, made by 'moetier docs fish'.\n";
  for (const Command& command : commands()) {
    const size_t space = command.name.find(' ');
    const std::string when = space == std::string_view::npos
                                 ? "__fish_use_subcommand"
                                 : fmt::format("'__fish_seen_subcommand_from {}'", command.name.substr(0, space));
    out += fmt::format("complete -c moetier -n {} -a {} -d '{}'\n", when,
                       command.name.substr(space == std::string_view::npos ? 0 : space + 1),
                       shell_quoted(command.summary));
  }
  for (const Command& command : commands()) {
    for (const Param& p : command.params) {
      if (p.handling != Handling::active) continue;
      const size_t space = command.name.find(' ');
      const std::string second = space == std::string_view::npos ? ""
                                                                 : fmt::format("; and __fish_seen_subcommand_from {}",
                                                                               command.name.substr(space + 1));
      std::string line = fmt::format("complete -c moetier -n '__fish_seen_subcommand_from {}{}' -l {}",
                                     command.name.substr(0, space), second, p.name);
      for (const std::string_view alias : p.aliases) {
        line += alias.size() == 2 ? fmt::format(" -s {}", alias.substr(1))
                : alias[1] == '-' ? fmt::format(" -l {}", alias.substr(2))
                                  : fmt::format(" -o {}", alias.substr(1));
      }
      if (p.type != ParamType::flag) line += " -r";
      if (!p.choices.empty()) line += fmt::format(" -f -a '{}'", fmt::join(p.choices, " "));
      out += fmt::format("{} -d '{}'\n", line, shell_quoted(p.help));
    }
  }
  return out;
}

}  // namespace moetier::cli
