// Tells models apart, so that a saved state is never read into another one.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "engine/context.h"

namespace moetier {

struct ModelId {
  std::array<uint8_t, 32> bytes{};
  bool operator==(const ModelId&) const = default;
  std::string hex() const;
};

/// SHA-256 of all metadata, the sizes of all shards, 4 KiB of each tensor, and what was chosen that changes the numbers
/// (overrides, dropped experts). Not of all weights: reading those would take as long as the model is big.
ModelId identify(Context& context);

/// SHA-256 of a file, in hexadecimal. An error if it cannot be read.
std::string sha256_of_file(const std::string& path);

}  // namespace moetier
