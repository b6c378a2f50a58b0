#include "quant/mixture.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace moetier {
namespace {

using enum FileType;

constexpr std::array<FileTypeInfo, 14> kFileTypes{{
    {f32, "f32", TensorType::f32, "32-bit floats"},
    {f16, "f16", TensorType::f16, "16-bit floats"},
    {bf16, "bf16", TensorType::bf16, "16-bit floats with the range of f32"},
    {q8_0, "q8_0", TensorType::q8_0, "8 bits; next to no loss"},
    {q6_k, "q6_k", TensorType::q6_k, "6 bits; very little loss"},
    {q5_k_m, "q5_k_m", TensorType::q5_k, "5 bits, 6 for half of the down and value matrices"},
    {q5_k_s, "q5_k_s", TensorType::q5_k, "5 bits"},
    {q5_1, "q5_1", TensorType::q5_1, "5 bits, older form with a minimum"},
    {q5_0, "q5_0", TensorType::q5_0, "5 bits, older form"},
    {q4_k_m, "q4_k_m", TensorType::q4_k, "4 bits, 6 for half of the down and value matrices; the usual choice"},
    {q4_k_s, "q4_k_s", TensorType::q4_k, "4 bits, 5 in the first layers"},
    {q4_1, "q4_1", TensorType::q4_1, "4 bits, older form with a minimum"},
    {q4_0, "q4_0", TensorType::q4_0, "4 bits, older form; fast"},
    {mxfp4_moe, "mxfp4_moe", TensorType::mxfp4, "experts in 4-bit floats, everything else in q8_0"},
}};

constexpr char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// A tensor's part in the model, as far as the mixtures care.
enum class Role { output, token_embd, attn_v, attn_k, attn_output, ffn_down, other };

Role role_of(std::string_view name, bool tied) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (name == "output.weight") return Role::output;
  if (name == "token_embd.weight") return tied ? Role::output : Role::token_embd;
  if (has("attn_v.weight") || has("attn_qkv.weight") || has("attn_kv_b.weight")) return Role::attn_v;
  if (has("attn_k.weight")) return Role::attn_k;
  if (has("attn_output.weight")) return Role::attn_output;
  if (has("ffn_down")) return Role::ffn_down;
  return Role::other;
}

/// N of "blk.N.", or -1.
int layer_of(std::string_view name) {
  constexpr std::string_view prefix = "blk.";
  if (!name.starts_with(prefix)) return -1;
  int layer = -1;
  const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), layer);
  const bool valid = error == std::errc() && end != name.data() + name.size() && *end == '.' && layer >= 0;
  return valid ? layer : -1;
}

bool fits(TensorType type, int64_t row) {
  return row % type_info(type).block_length == 0;
}

/// What stands in for a type whose blocks do not fit the rows: the next of the 32-weight types, or f16.
TensorType stand_in(TensorType type, int64_t row) {
  TensorType other = TensorType::f16;
  if (type == TensorType::q4_k) other = TensorType::q5_0;
  if (type == TensorType::q5_k) other = TensorType::q5_1;
  if (type == TensorType::q6_k) other = TensorType::q8_0;
  return fits(other, row) ? other : TensorType::f16;
}

/// Counts over all tensors that the rules for single ones need.
struct Counts {
  bool tied = true;
  int layers = 0;
  std::vector<int> attn_v_index;  ///< per tensor: its rank among the attn_v-like ones by layer and name
  int attn_v_total = 0;
};

Counts count(const MixtureModel& model, std::span<const MixtureTensor> tensors) {
  Counts counts;
  counts.layers = model.layers;
  counts.attn_v_index.resize(tensors.size());
  std::vector<size_t> values;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == "output.weight") counts.tied = false;
    if (role_of(tensors[i].name, false) == Role::attn_v) values.push_back(i);
  }
  std::ranges::sort(values, {}, [&](size_t i) { return std::pair(layer_of(tensors[i].name), tensors[i].name); });
  for (const size_t i : values) counts.attn_v_index[i] = counts.attn_v_total++;
  return counts;
}

/// Mixtral's shape has rules of its own.
bool has_eight_experts(const MixtureModel& model) {
  return model.experts == 8;
}

/// Value matrices are small where few heads share them, and matter much.
TensorType attn_v_type(const FileTypeInfo& file, const MixtureModel& model, int index, int total) {
  if (has_eight_experts(model)) return TensorType::q8_0;
  TensorType type = file.base;
  const bool medium = file.file_type == q4_k_m || file.file_type == q5_k_m;
  if (medium && more_bits(index, total)) type = TensorType::q6_k;
  if (file.file_type == q4_k_s && index < 4) type = TensorType::q5_k;
  // Llama of 70B: eight heads share a value matrix, so more bits cost little.
  const bool llama_70b = model.architecture == "llama" && model.layers == 80 && model.heads != model.kv_heads;
  if (llama_70b && type == TensorType::q4_k) type = TensorType::q5_k;
  return type;
}

TensorType ffn_down_type(const FileTypeInfo& file, int layer, int layers) {
  const bool medium = file.file_type == q4_k_m || file.file_type == q5_k_m;
  if (medium && more_bits(layer, layers)) return TensorType::q6_k;
  if (file.file_type == q4_k_s && layer < layers / 8) return TensorType::q5_k;
  return file.base;
}

TensorType output_type(const FileTypeInfo& file, int64_t row) {
  if (file.base == TensorType::q8_0 || !fits(file.base, row)) return TensorType::q8_0;
  return TensorType::q6_k;
}

/// The type that the file type wants, whether or not it fits.
TensorType wanted_type(const FileTypeInfo& file, const MixtureModel& model, const MixtureTensor& tensor,
                       const Counts& counts, size_t index) {
  if (type_info(file.base).block_length == 1) return file.base;
  if (file.file_type == mxfp4_moe) return tensor.shape[2] > 1 ? TensorType::mxfp4 : TensorType::q8_0;
  switch (role_of(tensor.name, counts.tied)) {
    case Role::output:
      return output_type(file, tensor.shape[0]);
    case Role::attn_v:
      return attn_v_type(file, model, counts.attn_v_index[index], counts.attn_v_total);
    case Role::attn_k:
      return has_eight_experts(model) ? TensorType::q8_0 : file.base;
    case Role::attn_output: {
      const bool four_bit_k = file.file_type == q4_k_s || file.file_type == q4_k_m;
      return has_eight_experts(model) && four_bit_k ? TensorType::q5_k : file.base;
    }
    case Role::ffn_down:
      return ffn_down_type(file, std::max(0, layer_of(tensor.name)), counts.layers);
    case Role::token_embd:
    case Role::other:
      return file.base;
  }
  return file.base;
}

}  // namespace

std::span<const FileTypeInfo> known_file_types() {
  return kFileTypes;
}

const FileTypeInfo* find_file_type(std::string_view name) {
  std::string wanted(name);
  std::ranges::transform(wanted, wanted.begin(), lower);
  if (wanted == "q4_k" || wanted == "q5_k") wanted += "_m";
  if (wanted == "mxfp4") wanted += "_moe";
  const auto* it = std::ranges::find(kFileTypes, wanted, &FileTypeInfo::name);
  return it == kFileTypes.end() ? nullptr : it;
}

bool more_bits(int i, int n) {
  const int64_t eighth = n / 8, last_eighth = int64_t{7} * n / 8;
  return i < eighth || i >= last_eighth || (i - eighth) % 3 == 2;
}

bool keeps_type(const MixtureTensor& tensor) {
  const std::string_view name = tensor.name;
  if (std::ranges::all_of(tensor.shape.begin() + 1, tensor.shape.end(), [](int64_t n) { return n == 1; })) return true;
  if (!name.ends_with("weight")) return true;
  // Small, and their errors spread far: norms, routers, convolutions, mixers.
  static constexpr std::string_view kParts[] = {
      "_norm.weight",   "ffn_gate_inp.weight", "tid2eid",        "ssm_conv1d",    "shortconv.conv",
      "position_embd",  "token_types",         "altup",          "laurel",        "per_layer_model_proj",
      "indexer.q_proj", "indexer.k_proj",      "time_mix_first", "time_mix_lerp", "time_mix_decay_w",
      "time_mix_w0",    "time_mix_w1",         "time_mix_w2",    "time_mix_v0",   "time_mix_v1",
      "time_mix_v2",    "time_mix_a0",         "time_mix_a1",    "time_mix_a2",   "time_mix_g1",
      "time_mix_g2",
  };
  return std::ranges::any_of(kParts, [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

std::vector<TypeChoice> choose_types(FileType file_type, const MixtureModel& model,
                                     std::span<const MixtureTensor> tensors) {
  const auto* found = std::ranges::find(kFileTypes, file_type, &FileTypeInfo::file_type);
  if (found == kFileTypes.end()) fail("there is no mixture for file type {}", static_cast<uint32_t>(file_type));
  const FileTypeInfo& file = *found;
  const Counts counts = count(model, tensors);
  std::vector<TypeChoice> choices;
  choices.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    TypeChoice choice;
    if (keeps_type(tensors[i])) {
      choice.keep = true;
    } else {
      choice.type = wanted_type(file, model, tensors[i], counts, i);
      choice.fallback = !fits(choice.type, tensors[i].shape[0]);
      if (choice.fallback) choice.type = stand_in(choice.type, tensors[i].shape[0]);
    }
    choices.push_back(choice);
  }
  return choices;
}

}  // namespace moetier
