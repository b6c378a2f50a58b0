// Messages to the user, on standard error. Standard output belongs to results.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moetier::log {

enum class Level { quiet, warning, info, verbose };

void set_level(Level level);
Level level();

/// Prints one line to standard error when `level` is wanted. Safe from any thread.
void line(Level level, std::string_view text);

/// A warning: shown unless quiet, and kept for the run record. The same sentence is shown once per process.
void warn_once(const std::string& sentence);

/// All sentences given to warn_once so far, in order (the run record holds them: promise 3, nothing silent).
std::vector<std::string> warnings();

template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  line(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void verbose(fmt::format_string<Args...> format, Args&&... args) {
  line(Level::verbose, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  warn_once(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace moetier::log
