#include "cli/parse.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>

#include "base/error.h"

namespace moetier::cli {
namespace {

bool is_short(std::string_view alias) {
  return alias.size() == 2 && alias[0] == '-' && alias[1] != '-';
}
bool is_long(std::string_view alias) {
  return alias.size() > 2 && alias.substr(0, 2) == "--";
}

/// The field writes some aliases with one dash and several letters (-ngl, -ctk), which the parser library would read as
/// a cluster of single letters: they are rewritten to the long name first. Values keep their place.
std::vector<std::string> expand_aliases(const Command& command, const std::vector<std::string>& arguments) {
  std::vector<std::string> out;
  bool literal = false;
  for (const std::string& argument : arguments) {
    std::string replaced = argument;
    if (argument == "--") literal = true;
    if (!literal && argument.size() > 2 && argument[0] == '-' && argument[1] != '-') {
      const size_t equals = argument.find('=');
      const std::string_view head = std::string_view(argument).substr(0, equals);
      for (const Param& p : command.params) {
        if (std::find(p.aliases.begin(), p.aliases.end(), head) == p.aliases.end()) continue;
        replaced = fmt::format("--{}{}", p.name, equals == std::string::npos ? "" : argument.substr(equals));
      }
    }
    out.push_back(std::move(replaced));
  }
  return out;
}

bool is_numbers(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789,") == std::string_view::npos;
}

/// `--cache-mb 1000 2000`: what follows the flag of a list belongs to it, up to the next flag; where it is a list of
/// numbers, numbers only. Each value gets the flag before it.
std::vector<std::string> spread_lists(const Command& command, const std::vector<std::string>& arguments) {
  std::vector<std::string> out;
  const Param* list = nullptr;  // whose values come
  bool first = false, literal = false;
  for (const std::string& argument : arguments) {
    literal = literal || argument == "--";
    const std::string_view head = std::string_view(argument).substr(0, argument.find('='));
    if (!literal && argument.size() > 1 && argument[0] == '-' && !first) {
      const auto found = std::ranges::find_if(command.params, [&](const Param& p) {
        return p.many && (head == fmt::format("--{}", p.name) || std::ranges::find(p.aliases, head) != p.aliases.end());
      });
      list = found == command.params.end() ? nullptr : &*found;
      first = list != nullptr && head.size() == argument.size();
    } else if (literal) {
      list = nullptr;
    } else if (list != nullptr && !first) {
      if (list->type == ParamType::path || is_numbers(argument)) {
        out.push_back(fmt::format("--{}", list->name));
      } else {
        list = nullptr;
      }
    } else {
      first = false;
    }
    out.push_back(argument);
  }
  return out;
}

/// All names the parser library is given for a parameter, comma separated.
std::string library_names(const Param& p) {
  std::string names = fmt::format("--{}", p.name);
  for (const std::string_view alias : p.aliases) {
    if (is_short(alias) || is_long(alias)) names += fmt::format(",{}", alias);
  }
  return names;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

/// The known flag that is nearest to a wrong one, if any is near.
std::string nearest_flag(const Command& command, std::string_view wrong) {
  std::string best;
  size_t best_distance = 3;
  const auto consider = [&](const std::string& known) {
    const size_t distance = edit_distance(wrong.substr(0, wrong.find('=')), known);
    if (distance < best_distance) {
      best_distance = distance;
      best = known;
    }
  };
  for (const Param& p : command.params) {
    consider(fmt::format("--{}", p.name));
    for (const std::string_view alias : p.aliases) consider(std::string(alias));
  }
  return best;
}

void read_environment(const Command& command, GivenValues& given) {
  for (const Param& p : command.params) {
    if (p.env.empty() || given.contains(p.name)) continue;
    const char* value = std::getenv(std::string(p.env).c_str());
    if ((value == nullptr || *value == '\0') && !p.env_alias.empty()) {
      value = std::getenv(std::string(p.env_alias).c_str());
    }
    if (value == nullptr || *value == '\0') continue;
    std::string text = value;
    if (p.type == ParamType::flag) {
      const bool off = text == "0" || text == "false" || text == "off" || text == "no";
      const bool on = text == "1" || text == "true" || text == "on" || text == "yes";
      if (!on && !off) usage_error("the environment variable {} takes 1 or 0, not '{}'", p.env, text);
      text = on ? "true" : "false";
    }
    given[std::string(p.name)] = {{text}, Source::environment};
  }
}

}  // namespace

Parsed parse_arguments(const Command& command, const std::vector<std::string>& arguments) {
  CLI::App app;
  app.set_help_flag();
  bool help = false;
  app.add_flag("-h,--help", help);
  const auto& params = command.params;
  // The library keeps pointers to what it fills, so nothing here may move.
  std::vector<std::vector<std::string>> values(params.size());
  std::vector<CLI::Option*> switches(params.size(), nullptr), unswitches(params.size(), nullptr);
  for (size_t i = 0; i < params.size(); ++i) {
    const Param& p = params[i];
    if (p.type == ParamType::flag) {
      switches[i] = app.add_flag(library_names(p));
      unswitches[i] = app.add_flag(fmt::format("--no-{}", p.name));
    } else {
      app.add_option(library_names(p), values[i])->expected(1)->take_all()->allow_extra_args(false);
    }
  }
  std::vector<std::string> bare;
  CLI::Option* bare_option = app.add_option("bare", bare);
  if (command.positionals.empty()) app.remove_option(bare_option);

  std::vector<std::string> plain = arguments;
  if (command.flags_after_dashes) {
    if (const auto dashes = std::find(plain.begin(), plain.end(), "--"); dashes != plain.end()) plain.erase(dashes);
  }
  std::vector<std::string> reversed = expand_aliases(command, spread_lists(command, plain));
  std::reverse(reversed.begin(), reversed.end());
  try {
    app.parse(reversed);
  } catch (const CLI::ExtrasError&) {
    const auto extras = app.remaining();
    const std::string wrong = extras.empty() ? "?" : extras.front();
    const std::string near = nearest_flag(command, wrong);
    if (wrong.starts_with('-')) {
      usage_error("unknown flag {} for 'moetier {}'; {}see 'moetier {} --help'", wrong, command.name,
                  near.empty() ? "" : fmt::format("did you mean {}? ", near), command.name);
    }
    usage_error("'moetier {}' does not take the argument '{}'; see 'moetier {} --help'", command.name, wrong,
                command.name);
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string_view what = error.what();
    usage_error("{} needs a value; see 'moetier {} --help'", what.substr(0, what.find(':')), command.name);
  } catch (const CLI::ParseError& error) {
    usage_error("{}; see 'moetier {} --help'", error.what(), command.name);
  }

  Parsed parsed;
  parsed.help = help;
  for (size_t i = 0; i < params.size(); ++i) {
    const std::string name(params[i].name);
    if (params[i].type == ParamType::flag) {
      const size_t on = switches[i]->count(), off = unswitches[i]->count();
      if (on > 0 && off > 0) usage_error("--{} and --no-{} exclude each other", name, name);
      if (on + off > 0) parsed.given[name] = {{on > 0 ? "true" : "false"}, Source::typed};
    } else if (!values[i].empty()) {
      parsed.given[name] = {values[i], Source::typed};
    }
  }
  const auto takes_more = [&](std::string_view name) {
    return std::ranges::any_of(params, [&](const Param& p) { return p.name == name && p.repeated; });
  };
  if (bare.size() > command.positionals.size() && !takes_more(command.positionals.back().param)) {
    usage_error("'moetier {}' does not take the argument '{}'; see 'moetier {} --help'", command.name,
                bare[command.positionals.size()], command.name);
  }
  for (size_t i = 0; i < bare.size(); ++i) {
    if (i >= command.positionals.size()) {
      parsed.given[std::string(command.positionals.back().param)].values.push_back(bare[i]);
      continue;
    }
    const Positional& positional = command.positionals[i];
    if (parsed.given.contains(positional.param)) {
      usage_error("{} and --{} both name the same thing; give one of them", positional.name, positional.param);
    }
    parsed.given[std::string(positional.param)] = {{bare[i]}, Source::typed};
  }
  read_environment(command, parsed.given);
  for (const Positional& positional : command.positionals) {
    if (positional.required && !parsed.help && !parsed.given.contains(positional.param)) {
      usage_error("'moetier {}' needs {}; see 'moetier {} --help'", command.name, positional.name, command.name);
    }
  }
  return parsed;
}

}  // namespace moetier::cli
