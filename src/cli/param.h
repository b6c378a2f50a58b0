// What a parameter is. Every knob of every subcommand is declared once (param_table.cpp), and the parser, --help, the
// man page, the shell completion, the run record and docs/cli.md are all made from that table.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace moetier::cli {

enum class ParamType : uint8_t { flag, integer, real, text, path, choice };

/// What happens when it is given.
enum class Handling : uint8_t {
  active,   ///< it does what `help` says
  noop,     ///< accepted for the sake of pasted command lines: recorded, said once, changes nothing (`note` says why)
  refused,  ///< an error with `note` as the reason
};

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

struct Param {
  std::string_view name;                       ///< without dashes: "threads"; unique within a subcommand
  std::vector<std::string_view> aliases = {};  ///< as typed: "-t", "--n-threads"
  ParamType type = ParamType::flag;
  std::string_view value = {};             ///< what stands for the value in help: "N"
  std::string_view fallback = {};          ///< default, as it would be typed; empty = none
  std::string_view help = {};              ///< one or two sentences
  double min = -kNoLimit, max = kNoLimit;  ///< for numbers
  std::vector<std::string_view> choices = {};
  std::string_view env = {};        ///< environment variable that sets it; a typed flag wins
  std::string_view env_alias = {};  ///< another name of it, the reference's; `env` wins
  bool repeated = false;            ///< may be given more than once
  bool many = false;                ///< and then takes all values that follow it, up to the next flag
  bool lossy = false;               ///< changes the answer (promise 4: never by default)
  std::string_view mode = {};       ///< which mode or build it needs, if any
  Handling handling = Handling::active;
  std::string_view note = {};
};

/// A subcommand's parameters: shared groups and its own.
using ParamList = std::vector<Param>;

}  // namespace moetier::cli
