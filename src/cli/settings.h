// The values of a subcommand's parameters, typed, checked, and with where each came from.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/param.h"

namespace moetier::cli {

enum class Source : uint8_t { fallback, environment, typed };

/// One given value as it was written.
struct Given {
  std::vector<std::string> values;  ///< flags: "true" or "false"
  Source source = Source::fallback;
  std::string typed = {};  ///< the flag as it was typed, "-ub", or the environment variable; empty: a bare argument
};
using GivenValues = std::map<std::string, Given, std::less<>>;

class Settings {
 public:
  Settings() = default;
  Settings(const ParamList& params, const GivenValues& given);

  bool has(std::string_view name) const;     ///< the subcommand takes it
  bool is_set(std::string_view name) const;  ///< typed or from the environment
  bool flag(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  const std::string& text(std::string_view name) const;  ///< empty if not given and no default
  const std::vector<std::string>& texts(std::string_view name) const;
  /// What "auto" came to. Where the value came from stays as it is.
  void resolve(std::string_view name, std::string value);
  /// Every parameter with its resolved value and source, for the run record.
  nlohmann::ordered_json json() const;

 private:
  struct Value {
    const Param* param;
    std::vector<std::string> values;
    Source source;
  };
  const Value& at(std::string_view name) const;
  std::map<std::string, Value, std::less<>> values_;
};

/// Checks every given value against the table. Pure: no file is touched. Returns one sentence that names the flag and
/// the reason, or an empty string if all is well.
std::string validate(const ParamList& params, const GivenValues& given);

/// Sentences to say once about accepted parameters that change nothing, and about deprecated ones.
std::vector<std::string> noop_notes(const ParamList& params, const GivenValues& given);

}  // namespace moetier::cli
