#include "cli/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "cli/residency_params.h"

namespace moetier::cli {
namespace {

template <typename T>
bool parse_number(std::string_view text, T& out) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), out);
  return status == std::errc() && end == text.data() + text.size();
}

std::string number(double value) {
  return value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
}

std::string range(const Param& p) {
  if (p.min != -kNoLimit && p.max != kNoLimit) return fmt::format("from {} to {}", number(p.min), number(p.max));
  if (p.min != -kNoLimit) return fmt::format("of {} or more", number(p.min));
  if (p.max != kNoLimit) return fmt::format("of {} or less", number(p.max));
  return "";
}

std::string check_number(const Param& p, const std::string& text) {
  double value = 0;
  bool good = false;
  if (p.type == ParamType::integer) {
    int64_t whole = 0;
    good = parse_number(text, whole);
    value = static_cast<double>(whole);
  } else {
    good = parse_number(text, value) && std::isfinite(value);
  }
  const std::string_view kind = p.type == ParamType::integer ? "a whole number" : "a number";
  const std::string limits = range(p);
  if (!good || value < p.min || value > p.max) {
    return fmt::format("--{} takes {}{}{}, not '{}'", p.name, kind, limits.empty() ? "" : " ", limits, text);
  }
  return "";
}

std::string check_value(const Param& p, const std::string& text) {
  switch (p.type) {
    case ParamType::integer:
    case ParamType::real:
      if (std::find(p.choices.begin(), p.choices.end(), text) != p.choices.end()) return "";  // e.g. "auto"
      return check_number(p, text);
    case ParamType::choice:
      if (std::find(p.choices.begin(), p.choices.end(), text) == p.choices.end()) {
        return fmt::format("--{} takes one of {}, not '{}'", p.name, fmt::join(p.choices, ", "), text);
      }
      return "";
    case ParamType::path:
      return text.empty() ? fmt::format("--{} takes a file name, not an empty one", p.name) : "";
    case ParamType::flag:
    case ParamType::text:
      return "";
  }
  return "";
}

std::string given_twice(const Param& p, const std::vector<std::string>& values) {
  if (values[0] == values[1]) return fmt::format("--{} is given more than once", p.name);
  return fmt::format("--{} is given more than once: {} and {} exclude each other", p.name, values[0], values[1]);
}

std::string environment_names(const Param& p) {
  return fmt::format("{}{}{}", p.env, p.env_alias.empty() ? "" : " or ", p.env_alias);
}

}  // namespace

std::string validate(const ParamList& params, const GivenValues& given) {
  for (const Param& p : params) {
    const auto it = given.find(p.name);
    if (it == given.end()) continue;
    const bool from_environment = it->second.source == Source::environment;
    if (p.handling == Handling::refused) {
      return fmt::format("--{}{} is not supported: {}", p.name,
                         from_environment ? fmt::format(" (from {})", environment_names(p)) : "", p.note);
    }
    if (p.handling == Handling::noop) continue;
    if (it->second.values.size() > 1 && !p.repeated) return given_twice(p, it->second.values);
    for (const std::string& value : it->second.values) {
      const std::string problem = check_value(p, value);
      if (!problem.empty())
        return from_environment ? fmt::format("{} (from {})", problem, environment_names(p)) : problem;
    }
  }
  return residency_problem(params, given);
}

std::vector<std::string> noop_notes(const ParamList& params, const GivenValues& given) {
  std::vector<std::string> notes;
  for (const Param& p : params) {
    if (p.handling == Handling::noop && given.contains(p.name)) {
      notes.push_back(fmt::format("--{} changes nothing here: {}", p.name, p.note));
    }
  }
  for (std::string& note : residency_notes(params, given)) notes.push_back(std::move(note));
  return notes;
}

Settings::Settings(const ParamList& params, const GivenValues& given) {
  for (const Param& p : params) {
    Value value{&p, {}, Source::fallback};
    if (const auto it = given.find(p.name); it != given.end()) {
      value.values = it->second.values;
      value.source = it->second.source;
    } else if (!p.fallback.empty()) {
      value.values = {std::string(p.fallback)};
    }
    values_.emplace(p.name, std::move(value));
  }
}

const Settings::Value& Settings::at(std::string_view name) const {
  const auto it = values_.find(name);
  if (it == values_.end()) fail("the parameter --{} is not in this subcommand's table; this is a bug in Moetier", name);
  return it->second;
}

bool Settings::has(std::string_view name) const {
  return values_.contains(name);
}

bool Settings::is_set(std::string_view name) const {
  return at(name).source != Source::fallback;
}

bool Settings::flag(std::string_view name) const {
  const auto& values = at(name).values;
  return !values.empty() && values.back() == "true";
}

int64_t Settings::integer(std::string_view name) const {
  int64_t value = 0;
  if (!parse_number(text(name), value)) fail("--{} has no whole number; this is a bug in Moetier", name);
  return value;
}

double Settings::real(std::string_view name) const {
  double value = 0;
  if (!parse_number(text(name), value)) fail("--{} has no number; this is a bug in Moetier", name);
  return value;
}

const std::string& Settings::text(std::string_view name) const {
  static const std::string empty;
  const auto& values = at(name).values;
  return values.empty() ? empty : values.back();
}

const std::vector<std::string>& Settings::texts(std::string_view name) const {
  return at(name).values;
}

void Settings::resolve(std::string_view name, std::string value) {
  const auto it = values_.find(name);
  if (it == values_.end()) fail("the parameter --{} is not in this subcommand's table; this is a bug in Moetier", name);
  it->second.values = {std::move(value)};
}

nlohmann::ordered_json Settings::json() const {
  auto out = nlohmann::ordered_json::object();
  for (const auto& [name, value] : values_) {
    const Param& p = *value.param;
    if (value.values.empty() && p.type != ParamType::flag) continue;
    if (p.handling != Handling::active && value.source == Source::fallback) continue;
    nlohmann::ordered_json shown;
    int64_t whole = 0;
    double real_value = 0;
    if (p.type == ParamType::flag) {
      shown = flag(name);
    } else if (p.repeated) {
      shown = value.values;
    } else if (p.type == ParamType::integer && parse_number(value.values.back(), whole)) {
      shown = whole;
    } else if (p.type == ParamType::real && parse_number(value.values.back(), real_value)) {
      shown = real_value;
    } else {
      shown = value.values.back();
    }
    constexpr const char* kSources[] = {"default", "environment", "flag"};
    out[name] = {{"value", shown}, {"source", kSources[static_cast<int>(value.source)]}};
  }
  return out;
}

}  // namespace moetier::cli
