// A made-up "/", with whatever kernel files a test lays out under it.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "io/temp_files.h"

namespace moetier::testing_support {

class TempRoot {
 public:
  const std::filesystem::path& path() const { return files_.path(); }
  void put(const std::string& file, const std::string& text) const {
    const std::filesystem::path full = path() / file;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

 private:
  TempFiles files_;
};

}  // namespace moetier::testing_support
