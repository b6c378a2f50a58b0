// Writes a fixture anew with some of its keys and tensors changed: the ways a file can be wrong.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gguf/reader.h"
#include "gguf/writer.h"

namespace moetier::testing {

inline std::string fixture(const std::string& name) {
  return std::string(MOETIER_TEST_DATA) + "/models/" + name + ".gguf";
}

struct Changes {
  std::vector<std::string> drop_keys = {}, drop_tensors = {};
  std::vector<std::pair<std::string, std::vector<int32_t>>> set_ints = {};
  /// A tensor written with another shape or type; its data becomes zeros.
  struct Reshaped {
    std::string name;
    TensorType type;
    std::vector<int64_t> shape;
  };
  std::vector<Reshaped> reshape = {}, add = {};
};

/// The fixture with changes, opened; the file is removed when this goes.
class Rewritten {
 public:
  Rewritten(const std::string& name, const Changes& changes) {
    static int number = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("rewritten_" + std::to_string(getpid()) + "_" + std::to_string(number++) + ".gguf");
    const GgufFile from = GgufFile::open(fixture(name));
    GgufWriter writer;
    const auto contains = [](const auto& list, const std::string& wanted) {
      return std::find(list.begin(), list.end(), wanted) != list.end();
    };
    for (const auto& [key, value] : from.metadata()) {
      if (!contains(changes.drop_keys, key)) writer.set(key, value);
    }
    for (const auto& [key, values] : changes.set_ints) writer.set_ints(key, values);
    for (const TensorInfo& tensor : from.tensors()) {
      if (contains(changes.drop_tensors, tensor.name)) continue;
      const auto changed = std::find_if(changes.reshape.begin(), changes.reshape.end(),
                                        [&](const auto& r) { return r.name == tensor.name; });
      if (changed != changes.reshape.end()) {
        add_zeros(writer, *changed);
        continue;
      }
      const auto data = from.data(tensor);
      writer.add_tensor(tensor.name, tensor.type, {tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims},
                        std::vector<std::byte>(data.begin(), data.end()));
    }
    for (const auto& added : changes.add) add_zeros(writer, added);
    writer.write(path_);
    file_.emplace(GgufFile::open(path_));
  }
  ~Rewritten() { std::filesystem::remove(path_); }
  Rewritten(const Rewritten&) = delete;
  Rewritten& operator=(const Rewritten&) = delete;

  GgufFile& file() { return *file_; }

 private:
  static void add_zeros(GgufWriter& writer, const Changes::Reshaped& tensor) {
    int64_t rows = 1;
    for (size_t i = 1; i < tensor.shape.size(); ++i) rows *= tensor.shape[i];
    const size_t bytes = row_bytes(tensor.type, tensor.shape[0]) * static_cast<size_t>(rows);
    writer.add_tensor(tensor.name, tensor.type, tensor.shape, std::vector<std::byte>(bytes));
  }

  std::string path_;
  std::optional<GgufFile> file_;
};

}  // namespace moetier::testing
