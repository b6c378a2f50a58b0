#include "gguf/split.h"

#include <fmt/format.h>

#include <string_view>

namespace moetier {
namespace {

constexpr size_t kDigits = 5;

/// Five decimal digits at the end of `text`, which is cut off; -1 if there are none.
int take_number(std::string_view& text) {
  if (text.size() < kDigits) return -1;
  int value = 0;
  for (const char c : text.substr(text.size() - kDigits)) {
    if (c < '0' || c > '9') return -1;
    value = value * 10 + (c - '0');
  }
  text.remove_suffix(kDigits);
  return value;
}

bool take_suffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

}  // namespace

std::optional<SplitName> parse_split_name(const std::string& path) {
  std::string_view rest = path;
  SplitName name;
  if (!take_suffix(rest, ".gguf")) return std::nullopt;
  name.count = take_number(rest);
  if (name.count < 1 || !take_suffix(rest, "-of-")) return std::nullopt;
  name.number = take_number(rest);
  if (name.number < 1 || name.number > name.count || !take_suffix(rest, "-")) return std::nullopt;
  name.prefix = rest;
  return name;
}

std::string split_path(const std::string& prefix, int number, int count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number, count);
}

}  // namespace moetier
