// The decoder most families share: embeddings, then layers of attention and an FFN on one residual stream, a norm, and
// the head.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "model/blocks.h"
#include "model/model.h"

namespace moetier {

/// What distinguishes one such family from another.
struct DecoderTraits {
  QkNorm qk_norm = QkNorm::none;
  bool tied_output = false;      ///< the embeddings serve as the head where `output.weight` is absent
  bool rope_factors = false;     ///< `rope_freqs.weight` is applied if present
  bool normalize_picks = false;  ///< the picks' weights sum to one
  bool shared_expert = false;    ///< a gated shared expert beside the routed ones
};

/// Binds the tensors of `file` to such a graph. Layers have experts if hparams.experts > 0, else a dense FFN.
std::unique_ptr<Model> load_decoder(const GgufFile& file, Compute& compute, HParams hparams,
                                    const DecoderTraits& traits);

/// Errors that name the architecture, for families that need experts, or have none.
void require_experts(const GgufFile& file, const HParams& hparams);
void require_dense(const GgufFile& file, const HParams& hparams);

}  // namespace moetier
