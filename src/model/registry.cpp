// The table of supported architectures.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "model/families/families.h"
#include "model/model.h"

namespace moetier {

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> table{
      {"llama", "Llama, Mistral, and Mixtral with experts", load_llama},
      {"olmoe", "OLMoE", load_olmoe},
      {"qwen2", "Qwen2 and Qwen2.5, dense", load_qwen2},
      {"qwen2moe", "Qwen1.5-MoE and Qwen2-MoE, with a shared expert", load_qwen2moe},
      {"qwen3", "Qwen3, dense", load_qwen3},
      {"qwen3moe", "Qwen3-MoE (30B-A3B, 235B-A22B, Coder)", load_qwen3moe},
  };
  return table;
}

const Architecture& architecture_of(const GgufFile& file) {
  const std::string wanted = file.need_string("general.architecture");
  const auto& table = architectures();
  const auto row = std::find_if(table.begin(), table.end(), [&](const Architecture& a) { return a.name == wanted; });
  if (row == table.end()) {
    std::vector<std::string_view> names;
    names.reserve(table.size());
    for (const Architecture& a : table) names.push_back(a.name);
    fail("{}: the architecture \"{}\" is not supported; supported are {}", file.path(), wanted, fmt::join(names, ", "));
  }
  return *row;
}

std::unique_ptr<Model> load_model(const GgufFile& file, Compute& compute) {
  return architecture_of(file).load(file, compute);
}

}  // namespace moetier
