#include "cli/environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"

namespace moetier::cli {
namespace {

constexpr std::string_view kPrefix = "LLAMA_ARG_";

/// "LLAMA_ARG_NO_MMAP" of "LLAMA_ARG_MMAP"; empty for names of another kind.
std::string negation(std::string_view name) {
  if (!name.starts_with(kPrefix)) return "";
  return fmt::format("{}NO_{}", kPrefix, name.substr(kPrefix.size()));
}

/// The variable's value; empty if it is not set.
std::string value_of(const std::string& name) {
  const char* value = name.empty() ? nullptr : std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

bool is_one_of(const std::string& text, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, text) != words.end();
}

std::string switched(std::string_view name, const std::string& text) {
  if (is_one_of(text, {"1", "true", "on", "yes", "enabled"})) return "true";
  if (is_one_of(text, {"0", "false", "off", "no", "disabled"})) return "false";
  usage_error("the environment variable {} takes 1 or 0, not '{}'", name, text);
}

bool is_known(std::string_view name) {
  return std::ranges::any_of(commands(), [&](const Command& command) {
    return std::ranges::any_of(command.params, [&](const Param& p) {
      return !p.env.empty() &&
             (p.env == name || p.env_alias == name || (p.type == ParamType::flag && negation(p.env) == name));
    });
  });
}

}  // namespace

void read_environment(const Command& command, GivenValues& given) {
  for (const Param& p : command.params) {
    if (p.env.empty() || given.contains(p.name)) continue;
    std::string name(p.env);
    const bool is_flag = p.type == ParamType::flag;
    if (const std::string off = negation(name); is_flag && !value_of(off).empty()) {
      given[std::string(p.name)] = {{"false"}, Source::environment, off};
      continue;
    }
    if (value_of(name).empty() && !p.env_alias.empty()) name = p.env_alias;
    const std::string text = value_of(name);
    if (text.empty()) continue;
    given[std::string(p.name)] = {{is_flag ? switched(name, text) : text}, Source::environment, name};
  }
}

std::string unknown_variables(const Command& command) {
  const bool takes_pasted =
      std::ranges::any_of(command.params, [](const Param& p) { return p.name == "n-gpu-layers"; });
  std::vector<std::string> unknown;
  for (char** entry = environ; takes_pasted && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (name.starts_with(kPrefix) && name.size() + 1 < text.size() && !is_known(name)) unknown.emplace_back(name);
  }
  if (unknown.empty()) return "";
  std::ranges::sort(unknown);
  return fmt::format("{} in the environment {} known here and change{} nothing", fmt::join(unknown, ", "),
                     unknown.size() == 1 ? "is not" : "are not", unknown.size() == 1 ? "s" : "");
}

}  // namespace moetier::cli
