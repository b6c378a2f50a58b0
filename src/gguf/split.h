// Names of the shards of a split set: PREFIX-00001-of-0000N.gguf.
#pragma once

#include <optional>
#include <string>

namespace moetier {

struct SplitName {
  std::string prefix;  ///< with its directory
  int number = 0;      ///< from 1
  int count = 0;
};

/// nullopt if the name does not have the form, or its numbers make no sense (number 0 or above the count).
std::optional<SplitName> parse_split_name(const std::string& path);

/// The path of shard `number`, from 1; number and count at most 99999.
std::string split_path(const std::string& prefix, int number, int count);

}  // namespace moetier
