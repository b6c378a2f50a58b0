#pragma once

#include <cstdint>

namespace moetier {

/// A stretch of a text, in bytes.
struct TextSpan {
  uint32_t begin = 0, end = 0;
};

}  // namespace moetier
