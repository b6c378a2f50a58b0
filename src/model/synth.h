// Models with random weights in the shape of known ones, for benchmarks and tests: valid in every respect but sense.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "gguf/writer.h"

namespace moetier {

/// The numbers of a model. Names in capitals are those that SynthOptions::set and the fact sheets use.
struct SynthShape {
  std::string_view name;          ///< what users ask for: "qwen3-30b-a3b"
  std::string_view architecture;  ///< its own; another may be asked for
  int64_t layers;                 ///< L
  int64_t width;                  ///< D
  int64_t heads;                  ///< H
  int64_t kv_heads;               ///< KV
  int64_t head_length;            ///< hd
  int64_t ffn_width;              ///< F: of a routed expert; of the dense FFN where there are no experts
  int64_t experts;                ///< E, 0 = dense
  int64_t top_k;                  ///< K
  int64_t shared_width;           ///< Fs: of the shared expert, where the architecture has one
  int64_t vocab;                  ///< V
  int64_t context_length;
  double rms_eps;
  double rope_base;
  bool tied;          ///< no output.weight
  bool rope_factors;  ///< with rope_freqs.weight, as Llama 3 has
};

/// All named shapes; the last is `tiny`, which any architecture can take.
std::span<const SynthShape> synth_shapes();
/// All architectures that can be made.
std::span<const std::string_view> synth_architectures();

struct SynthOptions {
  std::string like = "tiny";  ///< a name from synth_shapes()
  std::string architecture;   ///< empty = the shape's own
  int layers = 0;             ///< 0 = the shape's own
  std::string type = "q8_0";  ///< a file type ("q4_k_m", "mxfp4") or a computable tensor type ("iq1_s")
  bool pure = false;          ///< of a file type: all matrices in its base type
  uint64_t seed = 1;          ///< a tensor's bytes depend on the seed and its name only
  double skew =
      0.0;  ///< spread of the logarithm of router rows' lengths; above 0, some experts are picked far more often
  std::map<std::string, int64_t> set = {};  ///< overrides of the shape's numbers: D F E K H KV hd V Fs L
};

/// Everything about the model but its bytes, which are drawn while it is written; so file_bytes() can be asked first.
/// Errors (usage) name the option, and list what is known where a name is not.
///
/// Tensors get their types as choose_types() says; those that no file type quantizes are f32. Blocks are drawn, not
/// encoded, since encoders are a hundred times slower (and would make no better a random model): random codes under
/// scales of random sign and similar size, such that weights have zero mean and activations keep their size from layer
/// to layer.
GgufWriter plan_synthesis(const SynthOptions& options);

/// plan_synthesis() and write.
void synthesize(const SynthOptions& options, const std::string& path, const GgufWriter::Progress& progress = {});

}  // namespace moetier
