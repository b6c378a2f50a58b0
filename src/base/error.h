// How Moetier reports that something went wrong: one sentence that says what, where, and what to do.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace moetier {

/// The process exit code that an error stands for.
enum class ErrorKind { failed = 1, usage = 2 };

/// The only exception type that leaves a room. `what()` is one sentence, fit to be shown to a user as it is.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& sentence) : std::runtime_error(sentence), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

/// Thrown where work ends because it was told to, with nothing wrong.
class Cancelled : public Error {
 public:
  Cancelled() : Error(ErrorKind::failed, "interrupted: the work is not complete") {}
};

/// Throws an Error for something that went wrong while running (exit code 1).
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::failed, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws an Error for a wrong flag or argument (exit code 2).
template <typename... Args>
[[noreturn]] void usage_error(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::usage, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace moetier
