// Other forms of a model: the same tensors, arranged in another way.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gguf/reader.h"
#include "gguf/split.h"
#include "gguf/writer.h"

namespace moetier::testing_support {

/// The gate and up rows of every expert in one tensor.
inline std::vector<std::byte> fused_data(const GgufFile& file, const TensorInfo& gate, const TensorInfo& up) {
  std::vector<std::byte> data;
  const auto a = file.data(gate), b = file.data(up);
  const size_t each = a.size() / static_cast<size_t>(gate.shape[2]);
  for (size_t e = 0; e < static_cast<size_t>(gate.shape[2]); ++e) {
    data.insert(data.end(), a.begin() + static_cast<ptrdiff_t>(e * each),
                a.begin() + static_cast<ptrdiff_t>((e + 1) * each));
    data.insert(data.end(), b.begin() + static_cast<ptrdiff_t>(e * each),
                b.begin() + static_cast<ptrdiff_t>((e + 1) * each));
  }
  return data;
}

/// Writes the model anew, fused or not, in `shards` files (1 = one); gives the path to open.
inline std::string write_form(const std::string& from, const std::string& prefix, bool fuse, int shards) {
  const GgufFile file = GgufFile::open(from);
  GgufWriter writer;
  for (const auto& [key, value] : file.metadata()) writer.set(key, value);
  for (const TensorInfo& tensor : file.tensors()) {
    const size_t at = tensor.name.find("ffn_gate_exps");
    if (fuse && at != std::string::npos) {
      const std::string block = tensor.name.substr(0, at);
      const TensorInfo& up = *file.find_tensor(block + "ffn_up_exps.weight");
      writer.add_tensor(block + "ffn_gate_up_exps.weight", tensor.type,
                        {tensor.shape[0], 2 * tensor.shape[1], tensor.shape[2]}, fused_data(file, tensor, up));
      continue;
    }
    if (fuse && tensor.name.find("ffn_up_exps") != std::string::npos) continue;
    const auto data = file.data(tensor);
    writer.add_tensor(tensor.name, tensor.type, {tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims},
                      std::vector<std::byte>(data.begin(), data.end()));
  }
  if (shards > 1) {
    writer.write_split(prefix, shards);
    return split_path(prefix, 1, shards);
  }
  writer.write(prefix + ".gguf");
  return prefix + ".gguf";
}

}  // namespace moetier::testing_support
