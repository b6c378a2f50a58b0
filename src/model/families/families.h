// One loader per family; src/model/registry.cpp has a row for each.
#pragma once

#include <memory>

#include "model/model.h"

namespace moetier {

std::unique_ptr<Model> load_bailingmoe2(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_bailingmoe3(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_deepseek2(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_deepseek4(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_ernie4_5_moe(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_gemma4(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_glm4moe(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_gpt_oss(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_granitemoe(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_hunyuan_moe(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_lfm2moe(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_llama(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_llama4(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_minimax_m2(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_nemotron_h_moe(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_olmoe(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_phimoe(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_qwen2(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_qwen2moe(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_qwen3(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_qwen35moe(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_qwen3moe(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_qwen3next(const GgufFile& file, Compute& compute);

// Where the sizes of a layer's memory are the family's own.
HParams read_bailingmoe3(const GgufFile& file);
HParams read_deepseek2(const GgufFile& file);
HParams read_deepseek4(const GgufFile& file);
HParams read_gemma4(const GgufFile& file);
HParams read_lfm2moe(const GgufFile& file);
HParams read_nemotron_h_moe(const GgufFile& file);
HParams read_qwen3next(const GgufFile& file);  ///< and qwen35moe

}  // namespace moetier
