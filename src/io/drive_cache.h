// What drives were measured at, kept from run to run.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "io/drive_probe.h"

namespace moetier {

/// $XDG_CACHE_HOME/moetier or ~/.cache/moetier; empty if the environment names neither.
std::filesystem::path default_cache_directory();

/// One JSON file in a directory. Nothing it holds is trusted, and nothing it cannot do is an error: the worst is that a
/// drive is measured again.
class DriveCache {
 public:
  explicit DriveCache(const std::filesystem::path& directory);  ///< empty: keeps nothing

  std::optional<DriveRate> find(const std::string& key) const;
  /// Written beside the old file and renamed. False if it could not be kept.
  bool keep(const std::string& key, const DriveRate& rate) const;

 private:
  std::filesystem::path file_;
};

}  // namespace moetier
