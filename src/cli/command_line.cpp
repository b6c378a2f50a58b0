#include "cli/command_line.h"

#include <fmt/format.h>

#include <algorithm>

namespace moetier::cli {
namespace {

bool is_plain(char c) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  return letter || std::string_view("_-./:=,+@%").find(c) != std::string_view::npos;
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

}  // namespace

std::string shell_word(std::string_view text) {
  if (!text.empty() && std::ranges::all_of(text, is_plain)) return std::string(text);
  // Only the form with a dollar can say control characters without being broken into lines by them.
  const bool escaped = std::ranges::any_of(text, is_control);
  std::string out = escaped ? "$'" : "'";
  for (const char c : text) {
    if (escaped && is_control(c)) {
      out += fmt::format("\\{:03o}", static_cast<unsigned char>(c));
    } else if (escaped && (c == '\'' || c == '\\')) {
      out += {'\\', c};
    } else if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string given_flags(const ParamList& params, const Settings& settings,
                        std::initializer_list<std::string_view> without) {
  std::string out;
  for (const Param& p : params) {
    if (p.handling != Handling::active || !settings.is_set(p.name)) continue;
    if (std::ranges::find(without, p.name) != without.end()) continue;
    if (p.type == ParamType::flag) {
      out += fmt::format(" --{}{}", settings.flag(p.name) ? "" : "no-", p.name);
      continue;
    }
    for (const std::string& value : settings.texts(p.name)) {
      // A value with a dash in front would be taken for a flag.
      out += fmt::format(" --{}{}{}", p.name, value.starts_with('-') ? "=" : " ", shell_word(value));
    }
  }
  return out;
}

}  // namespace moetier::cli
