// Which tensor gets which type: the mixtures that file types such as Q4_K_M stand for. Knows names and numbers only.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quant/tensor_type.h"

namespace moetier {

/// A file type: what users name when they quantize, and what general.file_type holds.
enum class FileType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q8_0 = 7,
  q5_0 = 8,
  q5_1 = 9,
  q2_k = 10,
  q3_k_s = 11,
  q3_k_m = 12,
  q3_k_l = 13,
  q4_k_s = 14,
  q4_k_m = 15,
  q5_k_s = 16,
  q5_k_m = 17,
  q6_k = 18,
  q2_k_s = 21,
  iq3_xs = 22,
  iq3_xxs = 23,
  iq4_nl = 25,
  iq3_s = 26,
  iq3_m = 27,
  iq2_m = 29,
  iq4_xs = 30,
  bf16 = 32,
  tq1_0 = 36,
  tq2_0 = 37,
  mxfp4_moe = 38,
};

struct FileTypeInfo {
  FileType file_type;        ///< values are those of general.file_type
  std::string_view name;     ///< as users write it, lower case
  TensorType base;           ///< the type of most matrices (of expert stacks, for mxfp4_moe)
  std::string_view summary;  ///< one phrase for --help and docs
  /// Made for an importance matrix, without which stock llama.cpp refuses it: the loss is larger than its bits allow.
  bool wants_importance = false;
};

/// All file types that choose_types() knows.
std::span<const FileTypeInfo> known_file_types();
/// nullptr if there is none of that name. Case does not matter; "q3_k" means q3_k_m, "q4_k" q4_k_m, "q5_k"
/// q5_k_m, "mxfp4" mxfp4_moe.
const FileTypeInfo* find_file_type(std::string_view name);

/// One tensor to be given a type.
struct MixtureTensor {
  std::string name;                          ///< as in the file, e.g. "blk.3.ffn_down_exps.weight"
  std::array<int64_t, 4> shape{1, 1, 1, 1};  ///< GGUF order: shape[0] is the row length
  int n_dims = 1;
};

/// The model around the tensors.
struct MixtureModel {
  std::string architecture;     ///< general.architecture
  int layers = 0;               ///< all blocks of the file, block_count of the metadata
  int heads = 0, kv_heads = 0;  ///< of an ordinary layer; 0 if the file does not say
  int experts = 0;              ///< routed experts of a layer, 0 for dense models
};

/// What a tensor gets.
struct TypeChoice {
  TensorType type = TensorType::f32;
  bool keep = false;      ///< the tensor is not quantized: keep the type it has (type is then f32)
  bool fallback = false;  ///< the file type wanted another type, but its blocks do not fit the rows
};

/// Chooses types, in the order of `tensors`, as the stock quantizer does without an importance matrix
/// (docs/quantization.md has the rules). `tensors` must hold all tensors of the model, since some rules count them;
/// whether the output matrix is tied to the embeddings is seen from them.
/// Pure: all that is quantized gets the file type's base type.
std::vector<TypeChoice> choose_types(FileType file_type, const MixtureModel& model,
                                     std::span<const MixtureTensor> tensors, bool pure = false);

/// Why there is no file type of that name, though other programs have one, and what to take; empty if there is no such
/// reason.
std::string_view why_no_file_type(std::string_view name);

/// True for tensors that no file type quantizes: vectors, norms, biases, routers and the like.
bool keeps_type(const MixtureTensor& tensor);

/// True for the half of `n` layers that get more bits: the first and last eighth and every third one between.
bool more_bits(int i, int n);

}  // namespace moetier
