// The decoder most families share: embeddings, then layers of attention and an FFN on one residual stream, a norm, and
// the head.
#pragma once

#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "model/blocks.h"
#include "model/model.h"

namespace moetier {

/// What distinguishes one such family from another.
struct DecoderTraits {
  AttentionTraits attention = {};
  MoeTraits moe = {};
  std::string_view ffn_norm = "ffn_norm.weight";  ///< of a layer: the norm before FFN and experts
  std::string_view output_norm = "output_norm.weight";
  bool tied_output = false;       ///< the embeddings serve as the head where `output.weight` is absent
  bool rope_factors = false;      ///< `rope_freqs.weight` is applied if present
  bool long_rope = false;         ///< a rotation of type longrope is known
  bool norm_biases = false;       ///< all norms have one, and so has the head
  bool rotated = true;            ///< some layer needs the rotary table
  bool partial_rotation = false;  ///< only the first rope.dims elements of a head may be rotated
  /// Binds a layer's first half, where it is not the attention that `attention` describes; nullptr = it has none. Where
  /// hparams.layer_ffn_widths says so, it has no second half.
  std::function<std::unique_ptr<Mixer>(WeightBinder&, const HParams&, int layer)> mixer = {};
};

/// Binds the tensors of `file` to such a graph. Layers have experts where hparams.is_moe() says so, else a dense FFN.
std::unique_ptr<Model> load_decoder(const GgufFile& file, Compute& compute, HParams hparams,
                                    const DecoderTraits& traits);

/// Errors that name the architecture, for families that need experts, or have none.
void require_experts(const GgufFile& file, const HParams& hparams);
void require_dense(const GgufFile& file, const HParams& hparams);

}  // namespace moetier
