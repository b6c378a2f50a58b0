// One loader per family; src/model/registry.cpp has a row for each.
#pragma once

#include <memory>

#include "model/model.h"

namespace moetier {

std::unique_ptr<Model> load_llama(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_olmoe(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_qwen2(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_qwen2moe(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_qwen3(const GgufFile& file, Compute& compute);
std::unique_ptr<Model> load_qwen3moe(const GgufFile& file, Compute& compute);

}  // namespace moetier
