// What an error says.
#pragma once

#include <string>

#include "base/error.h"

namespace moetier::testing_support {

/// What the Error that `action` throws says; empty if it throws none.
template <typename Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace moetier::testing_support
