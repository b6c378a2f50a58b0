// Which experts a run has used.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "experts/entry_map.h"

namespace moetier {

class ExpertUse {
 public:
  ExpertUse() = default;  ///< of a dense model: nothing to use
  explicit ExpertUse(const EntryMap& map);
  void note(int layer, std::span<const int32_t> ids);
  void reset();

  uint64_t picks() const { return picks_; }
  int64_t used() const { return used_; }    ///< distinct entries picked at least once
  int64_t total() const { return total_; }  ///< entries there are
  uint64_t used_bytes() const { return used_bytes_; }

 private:
  struct Layer {
    uint64_t entry_bytes = 0;
    std::vector<uint8_t> seen;  // by expert; empty: not a MoE layer
  };
  std::vector<Layer> layers_;  // by the model's layer number
  uint64_t picks_ = 0, used_bytes_ = 0;
  int64_t used_ = 0, total_ = 0;
};

}  // namespace moetier
