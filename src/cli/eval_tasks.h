// Small coding tasks with asserts that tell whether an answer is right.
#pragma once

#include <span>
#include <string_view>

namespace moetier::cli {

struct CodeTask {
  std::string_view name;
  std::string_view prompt;   ///< asks for one Python function by name
  std::string_view asserts;  ///< Python that fails if the function is wrong
};

/// Six that any coding model should do.
std::span<const CodeTask> smoke_tasks();
/// Ten that need some thought.
std::span<const CodeTask> hard_tasks();

}  // namespace moetier::cli
