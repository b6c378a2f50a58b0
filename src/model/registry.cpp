// The table of supported architectures.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "model/families/families.h"
#include "model/model.h"

namespace moetier {

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> table{
      {"bailingmoe2", "Ling 2 and Ring 2", load_bailingmoe2},
      {"bailingmoe3", "Ling 3 and Ring 3", load_bailingmoe3, read_bailingmoe3},
      {"deepseek2", "DeepSeek V2, V3 and R1, Kimi K2, and other models with latent attention", load_deepseek2,
       read_deepseek2},
      {"deepseek4", "DeepSeek V4: compressed keys, hyper-connections", load_deepseek4, read_deepseek4},
      {"ernie4_5-moe", "ERNIE 4.5 with experts", load_ernie4_5_moe},
      {"gemma4", "Gemma 4 with experts (26B-A4B)", load_gemma4, read_gemma4},
      {"glm4moe", "GLM-4.5, GLM-4.5-Air and GLM-4.6", load_glm4moe},
      {"gpt-oss", "gpt-oss (20b, 120b)", load_gpt_oss},
      {"granitemoe", "Granite 3 and 4 with experts, without recurrent layers", load_granitemoe},
      {"hunyuan-moe", "Hunyuan-A13B", load_hunyuan_moe},
      {"lfm2moe", "LFM2 with experts (8B-A1B)", load_lfm2moe, read_lfm2moe},
      {"llama", "Llama, Mistral, and Mixtral with experts", load_llama},
      {"llama4", "Llama 4 (Scout, Maverick)", load_llama4},
      {"minimax-m2", "MiniMax-M2", load_minimax_m2},
      {"nemotron_h_moe", "Nemotron-H and Nemotron 3 with experts", load_nemotron_h_moe, read_nemotron_h_moe},
      {"olmoe", "OLMoE", load_olmoe},
      {"phimoe", "Phi-3.5-MoE and Phi-mini-MoE", load_phimoe},
      {"qwen2", "Qwen2 and Qwen2.5, dense", load_qwen2},
      {"qwen2moe", "Qwen1.5-MoE and Qwen2-MoE, with a shared expert", load_qwen2moe},
      {"qwen3", "Qwen3, dense", load_qwen3},
      {"qwen35moe", "Qwen3.5 with experts", load_qwen35moe, read_qwen3next},
      {"qwen3moe", "Qwen3-MoE (30B-A3B, 235B-A22B, Coder)", load_qwen3moe},
      {"qwen3next", "Qwen3-Next", load_qwen3next, read_qwen3next},
  };
  return table;
}

void Model::last_hidden(const Pass&, const Tensor&, const Tensor&) const {
  usage_error("models of the architecture {} give no embeddings here", hparams_.architecture);
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
