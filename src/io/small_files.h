// The kernel's small text files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

namespace moetier {

/// The number a file begins with; nullopt if there is no such file, or if it begins with no number ("max", "-1").
inline std::optional<uint64_t> first_number(const std::filesystem::path& file) {
  std::ifstream in(file);
  uint64_t value = 0;
  if ((in >> std::ws).peek() == '-' || !(in >> value)) return std::nullopt;
  return value;
}

/// The number that follows `key` at the start of a line, e.g. "MemTotal:"; nullopt if there is none.
inline std::optional<uint64_t> number_after(const std::filesystem::path& file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key) || line.size() == key.size() || (line[key.size()] != ' ' && line[key.size()] != '\t')) {
      continue;
    }
    std::istringstream rest(line.substr(key.size()));
    uint64_t value = 0;
    if (rest >> value) return value;
    return std::nullopt;
  }
  return std::nullopt;
}

inline std::string first_line(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

}  // namespace moetier
