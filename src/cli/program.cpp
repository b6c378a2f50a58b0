// From the command line to a subcommand, and from errors to exit codes.
#include <fmt/format.h>

#include <cstdio>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/nearest.h"
#include "cli/parse.h"

namespace moetier::cli {
namespace {

/// Prints to standard output; an Error if that fails (a closed pipe, a full disk).
void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    fail("cannot write to standard output");
  }
}

/// Control characters as \xNN: a name from a hostile file must not steer the terminal.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out;
}

std::string known_commands() {
  std::string names;
  for (const Command& command : commands()) names += fmt::format("{}{}", names.empty() ? "" : ", ", command.name);
  return names;
}

[[noreturn]] void refuse_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  const std::string near = nearest_word(name, names);
  usage_error("there is no command '{}'; {}the commands are {}", name,
              near.empty() ? "" : fmt::format("did you mean {}? ", near), known_commands());
}

int dispatch(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(program_help().c_str(), stderr);
    return static_cast<int>(ErrorKind::usage);
  }
  const std::string& name = arguments.front();
  if (name == "--help" || name == "-h" || name == "help") {
    if (arguments.size() > 1) {
      size_t words = 0;
      const Command* command = find_command({arguments.begin() + 1, arguments.end()}, words);
      if (command == nullptr) refuse_command(arguments[1]);
      print(command_help(*command));
    } else {
      print(program_help());
    }
    return 0;
  }
  if (name == "--version" || name == "-V" || name == "version") {
    print("moetier " MOETIER_VERSION "\n");
    return 0;
  }
  size_t words = 0;
  const Command* command = find_command(arguments, words);
  if (command == nullptr) refuse_command(name);
  const Parsed parsed = parse_arguments(*command, {arguments.begin() + static_cast<ptrdiff_t>(words), arguments.end()});
  if (parsed.help) {
    print(command_help(*command));
    return 0;
  }
  const std::string problem = validate(command->params, parsed.given);
  if (!problem.empty()) usage_error("{}", problem);
  const Settings settings(command->params, parsed.given);
  const auto has = [&](std::string_view flag) { return parsed.given.contains(flag) && settings.flag(flag); };
  if (has("quiet")) log::set_level(log::Level::quiet);
  if (has("verbose")) log::set_level(log::Level::verbose);
  for (const std::string& note : parsed.notes) log::warn_once(note);
  for (const std::string& note : noop_notes(command->params, parsed.given)) log::warn_once(note);
  return command->run(settings);
}

}  // namespace

int run_program(const std::vector<std::string>& arguments) {
  try {
    return dispatch(arguments);
  } catch (const Error& error) {
    fmt::print(stderr, "moetier: {}\n", printable(error.what()));
    return static_cast<int>(error.kind());
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "moetier: out of memory; a smaller input, --ctx or --ubatch needs less\n");
    return static_cast<int>(ErrorKind::failed);
  } catch (const std::exception& error) {
    fmt::print(stderr, "moetier: {}\n", error.what());
    return static_cast<int>(ErrorKind::failed);
  }
}

}  // namespace moetier::cli
