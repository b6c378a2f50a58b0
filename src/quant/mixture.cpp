#include "quant/mixture.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace moetier {
namespace {

using enum FileType;

constexpr std::array<FileTypeInfo, 28> kFileTypes{{
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
    {iq4_nl, "iq4_nl", TensorType::iq4_nl, "4 bits that stand for unequal steps; for rows that are no multiple of 256"},
    {iq4_xs, "iq4_xs", TensorType::iq4_xs, "4 bits that stand for unequal steps; smaller than q4_k_s, about as good"},
    {q3_k_l, "q3_k_l", TensorType::q3_k, "3 bits, 5 for the down, value and attention output matrices"},
    {q3_k_m, "q3_k_m", TensorType::q3_k, "3 bits, 4 and 5 for the down, value and attention output matrices"},
    {q3_k_s, "q3_k_s", TensorType::q3_k, "3 bits"},
    {iq3_m, "iq3_m", TensorType::iq3_s, "3 bits by a grid, 4 for the value and attention output matrices"},
    {iq3_s, "iq3_s", TensorType::iq3_s, "3 bits by a grid"},
    {iq3_xs, "iq3_xs", TensorType::iq3_s, "3 bits by a grid, a smaller one for a part", true},
    {iq3_xxs, "iq3_xxs", TensorType::iq3_xxs, "3 bits by a small grid", true},
    {q2_k, "q2_k", TensorType::q2_k, "2 bits, 3 for the down and attention output matrices; a large loss"},
    {q2_k_s, "q2_k_s", TensorType::q2_k, "2 bits, 4 in the first layers; a large loss", true},
    {iq2_m, "iq2_m", TensorType::iq2_s, "2 bits by a grid; a large loss", true},
    {tq2_0, "tq2_0", TensorType::tq2_0, "-1, 0 and 1; for models trained so"},
    {tq1_0, "tq1_0", TensorType::tq1_0, "-1, 0 and 1, packed tighter; for models trained so"},
}};

constexpr char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), lower);
  return out;
}

/// A tensor's part in the model, as far as the mixtures care.
enum class Role { output, token_embd, attn_v, attn_k, attn_q, attn_output, ffn_down, ffn_gate_up, other };

Role role_of(std::string_view name, bool tied) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (name == "output.weight") return Role::output;
  if (name == "token_embd.weight") return tied ? Role::output : Role::token_embd;
  if (has("attn_v.weight") || has("attn_qkv.weight") || has("attn_kv_b.weight")) return Role::attn_v;
  if (has("attn_k.weight")) return Role::attn_k;
  if (has("attn_q.weight")) return Role::attn_q;
  if (has("attn_output.weight")) return Role::attn_output;
  if (has("ffn_down")) return Role::ffn_down;
  if (has("ffn_gate") || has("ffn_up")) return Role::ffn_gate_up;
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

/// What stands in for a type whose blocks do not fit the rows: one of the 32-weight types, or f16.
TensorType stand_in(TensorType type, int64_t row) {
  TensorType other = TensorType::f16;
  switch (type) {
    case TensorType::q2_k:
    case TensorType::q3_k:
    case TensorType::tq1_0:
    case TensorType::tq2_0:
      other = TensorType::q4_0;
      break;
    case TensorType::iq2_s:
    case TensorType::iq3_xxs:
    case TensorType::iq3_s:
    case TensorType::iq4_xs:
      other = TensorType::iq4_nl;
      break;
    case TensorType::q4_k:
      other = TensorType::q5_0;
      break;
    case TensorType::q5_k:
      other = TensorType::q5_1;
      break;
    case TensorType::q6_k:
      other = TensorType::q8_0;
      break;
    default:
      break;
  }
  return fits(other, row) ? other : TensorType::f16;
}

/// Counts over all tensors that the rules for single ones need.
struct Counts {
  bool tied = true;
  std::vector<int> attn_v_index;  ///< per tensor: its rank among the attn_v-like ones by layer and name
  int attn_v_total = 0;
  std::vector<int> ffn_down_index;  ///< per tensor: its rank among the down matrices by layer and name
};

/// Numbers the tensors of a role, by layer and name; returns how many there are.
template <typename Belongs>
int rank(std::span<const MixtureTensor> tensors, std::vector<int>& index, Belongs belongs) {
  std::vector<size_t> found;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (belongs(tensors[i])) found.push_back(i);
  }
  std::ranges::sort(found, {}, [&](size_t i) { return std::pair(layer_of(tensors[i].name), tensors[i].name); });
  index.assign(tensors.size(), 0);
  int n = 0;
  for (const size_t i : found) index[i] = n++;
  return n;
}

Counts count(std::span<const MixtureTensor> tensors) {
  Counts counts;
  counts.tied = std::ranges::none_of(tensors, [](const MixtureTensor& t) { return t.name == "output.weight"; });
  counts.attn_v_total =
      rank(tensors, counts.attn_v_index, [](const MixtureTensor& t) { return role_of(t.name, false) == Role::attn_v; });
  rank(tensors, counts.ffn_down_index,
       [](const MixtureTensor& t) { return role_of(t.name, false) == Role::ffn_down && !keeps_type(t); });
  return counts;
}

/// Mixtral's shape has rules of its own.
bool has_eight_experts(const MixtureModel& model) {
  return model.experts == 8;
}

/// Where four or more heads share a value matrix, more bits for it cost little.
bool shares_values(const MixtureModel& model) {
  return model.kv_heads > 0 && model.heads / model.kv_heads >= 4;
}

/// Value matrices are small where few heads share them, and matter much.
TensorType attn_v_by_file(const FileTypeInfo& file, const MixtureModel& model, int index, int total) {
  const bool shared = shares_values(model);
  switch (file.file_type) {
    case q2_k:
      return shared ? TensorType::q4_k : TensorType::q3_k;
    case iq3_xxs:
      return shared ? TensorType::q4_k : TensorType::iq3_s;
    case q2_k_s:
    case iq3_xs:
    case iq3_s:
      return shared ? TensorType::q4_k : file.base;
    case iq3_m:
      return TensorType::q4_k;
    case q3_k_m:
      return index < 2 ? TensorType::q5_k : TensorType::q4_k;
    case q3_k_l:
      return TensorType::q5_k;
    case iq4_nl:
    case iq4_xs:
      return shared ? TensorType::q5_k : file.base;
    case q4_k_s:
      return index < 4 ? TensorType::q5_k : file.base;
    case q4_k_m:
    case q5_k_m:
      return more_bits(index, total) ? TensorType::q6_k : file.base;
    default:
      return file.base;
  }
}

TensorType attn_v_type(const FileTypeInfo& file, const MixtureModel& model, int index, int total) {
  if (file.file_type == iq2_m) {
    return shares_values(model) || model.experts >= 4 ? TensorType::q4_k : TensorType::iq3_s;
  }
  if (has_eight_experts(model)) return TensorType::q8_0;
  const TensorType type = attn_v_by_file(file, model, index, total);
  // Llama of 70B: eight heads share a value matrix.
  const bool llama_70b =
      model.architecture == "llama" && model.layers == 80 && model.kv_heads > 0 && model.heads != model.kv_heads;
  return llama_70b && (type == TensorType::q3_k || type == TensorType::q4_k) ? TensorType::q5_k : type;
}

TensorType attn_qk_type(const FileTypeInfo& file, const MixtureModel& model, bool keys) {
  if (keys && has_eight_experts(model)) return file.file_type == iq2_m ? TensorType::q4_k : TensorType::q8_0;
  if (file.file_type == iq3_xs) return TensorType::iq3_xxs;
  if (file.file_type == iq3_xxs) return TensorType::iq2_s;
  return file.base;
}

TensorType attn_output_type(const FileTypeInfo& file, const MixtureModel& model) {
  if (has_eight_experts(model)) {
    static constexpr FileType kMore[] = {q2_k,  q3_k_s, q3_k_m, q4_k_s,  q4_k_m, iq2_m,
                                         iq3_m, iq3_s,  iq3_xs, iq3_xxs, iq4_nl, iq4_xs};
    return std::ranges::find(kMore, file.file_type) != std::end(kMore) ? TensorType::q5_k : file.base;
  }
  switch (file.file_type) {
    case q2_k:
      return TensorType::q3_k;
    case iq2_m:
    case iq3_xxs:
      return TensorType::iq3_s;
    case iq3_m:
    case q3_k_m:
      return TensorType::q4_k;
    case q3_k_l:
      return TensorType::q5_k;
    default:
      return file.base;
  }
}

/// `index`: the tensor's rank among the down matrices, which one file type counts instead of layers.
TensorType ffn_down_type(const FileTypeInfo& file, const MixtureModel& model, int layer, int index) {
  const int layers = model.layers;
  const bool first = layer < layers / 8;
  switch (file.file_type) {
    case q2_k:
      return TensorType::q3_k;
    case q2_k_s:
      return first ? TensorType::q4_k : file.base;
    case iq2_m:
      return index < layers / 8 ? TensorType::iq3_s : file.base;
    case iq3_xxs:
      return first ? TensorType::q4_k : TensorType::q3_k;
    case iq3_m:
      return first || (has_eight_experts(model) && more_bits(layer, layers)) ? TensorType::q4_k : file.base;
    case q3_k_m:
      return layer < layers / 16 ? TensorType::q5_k : TensorType::q4_k;
    case q3_k_l:
      return TensorType::q5_k;
    case iq4_nl:
    case iq4_xs:
    case q4_k_s:
      return first ? TensorType::q5_k : file.base;
    case q4_k_m:
    case q5_k_m:
      return more_bits(layer, layers) ? TensorType::q6_k : file.base;
    default:
      return file.base;
  }
}

TensorType ffn_gate_up_type(const FileTypeInfo& file, int layer, int layers) {
  const bool middle = layer >= layers / 8 && layer < int64_t{7} * layers / 8;
  return file.file_type == iq3_xs && middle ? TensorType::iq3_xxs : file.base;
}

TensorType output_type(const FileTypeInfo& file, int64_t row) {
  if (file.base == TensorType::q8_0 || !fits(file.base, row)) return TensorType::q8_0;
  return file.file_type == iq2_m || file.file_type == iq3_xxs ? TensorType::q5_k : TensorType::q6_k;
}

TensorType token_embd_type(const FileTypeInfo& file) {
  if (file.file_type == iq2_m || file.file_type == iq3_xxs) return TensorType::iq3_s;
  if (file.file_type == tq1_0 || file.file_type == tq2_0) return TensorType::q4_k;
  return file.base;
}

/// The type that the file type wants, whether or not it fits.
TensorType wanted_type(const FileTypeInfo& file, const MixtureModel& model, const MixtureTensor& tensor,
                       const Counts& counts, size_t index) {
  if (type_info(file.base).block_length == 1) return file.base;
  if (file.file_type == mxfp4_moe) return tensor.shape[2] > 1 ? TensorType::mxfp4 : TensorType::q8_0;
  const int layer = std::max(0, layer_of(tensor.name));
  switch (role_of(tensor.name, counts.tied)) {
    case Role::output:
      return output_type(file, tensor.shape[0]);
    case Role::token_embd:
      return token_embd_type(file);
    case Role::attn_v:
      return attn_v_type(file, model, counts.attn_v_index[index], counts.attn_v_total);
    case Role::attn_k:
      return attn_qk_type(file, model, true);
    case Role::attn_q:
      return attn_qk_type(file, model, false);
    case Role::attn_output:
      return attn_output_type(file, model);
    case Role::ffn_down:
      return ffn_down_type(file, model, layer, counts.ffn_down_index[index]);
    case Role::ffn_gate_up:
      return ffn_gate_up_type(file, layer, model.layers);
    case Role::other:
      return file.base;
  }
  return file.base;
}

}  // namespace

std::span<const FileTypeInfo> known_file_types() {
  return kFileTypes;
}

std::string_view why_no_file_type(std::string_view name) {
  const std::string wanted = lower_case(name);
  for (const std::string_view other : {"iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s"}) {
    if (wanted == other) {
      return "it has so few bits that an importance matrix must say which weights matter, and Moetier makes none; take "
             "iq2_m or q2_k, or a file that was quantized with one";
    }
  }
  if (wanted == "nvfp4") {
    return "its block scales need a factor for each matrix beside them, which only the converters of trained NVFP4 "
           "models write; take mxfp4_moe, iq4_xs or q4_k_s, of about the same size";
  }
  return {};
}

const FileTypeInfo* find_file_type(std::string_view name) {
  std::string wanted = lower_case(name);
  if (wanted == "q3_k" || wanted == "q4_k" || wanted == "q5_k") wanted += "_m";
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
                                     std::span<const MixtureTensor> tensors, bool pure) {
  const auto* found = std::ranges::find(kFileTypes, file_type, &FileTypeInfo::file_type);
  if (found == kFileTypes.end()) fail("there is no mixture for file type {}", static_cast<uint32_t>(file_type));
  const FileTypeInfo& file = *found;
  const Counts counts = count(tensors);
  std::vector<TypeChoice> choices;
  choices.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    TypeChoice choice;
    if (keeps_type(tensors[i])) {
      choice.keep = true;
    } else {
      choice.type = pure ? file.base : wanted_type(file, model, tensors[i], counts, i);
      choice.fallback = !fits(choice.type, tensors[i].shape[0]);
      if (choice.fallback) choice.type = stand_in(choice.type, tensors[i].shape[0]);
    }
    choices.push_back(choice);
  }
  return choices;
}

}  // namespace moetier
