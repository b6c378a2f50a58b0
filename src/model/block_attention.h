// The attention of DeepSeek V4: queries of many heads, one key that is the value too, a window of positions, and beyond
// it keys of whole blocks of positions.
#pragma once

#include <memory>
#include <vector>

#include "model/blocks.h"
#include "model/streams.h"

namespace moetier {

/// Its sizes.
struct BlockAttentionShape {
  int64_t query_rank = 0;  ///< of the narrow form of queries
  int64_t groups = 0;      ///< of heads whose results go through a narrow form of their own
  int64_t output_rank = 0;
  int64_t index_heads = 0, index_length = 0;  ///< of queries and keys that choose blocks
  int64_t top_k = 0;                          ///< blocks chosen
  std::vector<int64_t> ratios = {};           ///< per layer: positions of a block; 0 = the layer sees no blocks
  StreamParams streams = {};

  int64_t ratio(int layer) const { return ratios[static_cast<size_t>(layer)]; }
};

/// Blocks that overlap, of which each row sees a choice; longer ones do not, and all are seen.
inline constexpr int64_t kShortBlock = 4;
inline constexpr int64_t kLongBlock = 128;

/// Binds a layer's first half, streams included.
std::unique_ptr<Mixer> bind_block_attention(WeightBinder& binder, const HParams& hparams, int layer,
                                            const BlockAttentionShape& shape);

}  // namespace moetier
