// What can go wrong inside a template. A Fault stays in this room's interpreter; ChatTemplate turns it into an Error.
#pragma once

#include <fmt/core.h>

#include <exception>
#include <string>
#include <utility>

namespace moetier::jinja {

/// The exception that Python or jinja2 would raise. Some are caught by the language itself: an item that is missing is
/// undefined, and `int` falls back to its default on `type` and `value`.
enum class FaultKind {
  type,
  value,
  key,
  index,
  attribute,
  overflow,
  zero_division,
  assertion,
  undefined,    ///< an undefined value was used
  security,     ///< refused by the sandbox
  runtime,      ///< jinja2's TemplateRuntimeError
  argument,     ///< jinja2's FilterArgumentError
  syntax,       ///< the template does not parse or compile
  raised,       ///< the template called raise_exception
  limit,        ///< a bound of this interpreter (see Limits)
  unsupported,  ///< jinja2 can, this interpreter will not
};

class Fault : public std::exception {
 public:
  Fault(FaultKind kind, std::string message, int line = 0) : kind_(kind), message_(std::move(message)), line_(line) {}
  const char* what() const noexcept override { return message_.c_str(); }
  FaultKind kind() const { return kind_; }
  const std::string& message() const { return message_; }
  int line() const { return line_; }  ///< the template's line; 0 if not known
  void set_line(int line) { line_ = line; }

 private:
  FaultKind kind_;
  std::string message_;
  int line_;
};

template <typename... Args>
[[noreturn]] void raise(FaultKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Fault(kind, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace moetier::jinja
