// A template from its source to its text: what ChatTemplate stands on, with limits and clock of one's own.
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tokenizer/template/ast.h"
#include "tokenizer/template/budget.h"

namespace moetier::jinja {

class Program {
 public:
  /// Raises a Fault with the line.
  Program(std::string_view source, const Limits& limits);

  /// Raises a Fault with the line. `now` is what strftime_now shows, in local time.
  std::string render(const nlohmann::ordered_json& variables, const Limits& limits,
                     std::chrono::system_clock::time_point now) const;

 private:
  std::unique_ptr<ParsedTemplate> parsed_;
};

/// A JSON value as the template sees it.
Value value_from_json(const nlohmann::ordered_json& json);

}  // namespace moetier::jinja
