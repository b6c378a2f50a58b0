// Whether entries of a mapped file that are advised come sooner with the kernel's read-around turned off.
#pragma once

#include <cstdint>
#include <string>

#include "experts/entry_map.h"
#include "gguf/reader.h"

namespace moetier {

/// What fetching cold slices cost in one of the two ways.
struct RandomTrial {
  int slices = 0;
  double seconds = 0;
  uint64_t wanted = 0;   ///< bytes of the slices
  uint64_t brought = 0;  ///< bytes that came into memory, read-around too
};

struct RandomChoice {
  bool random = false;    ///< MADV_RANDOM on the entries
  bool measured = false;  ///< else it is the rule for the device's read-ahead
  std::string why;        ///< one sentence with the numbers
};

/// Pure. With too few slices on either side, or times alike, the rule decides: MADV_RANDOM where the device's
/// read-ahead is 512 KiB or more (docs/streaming.md), since every touch of a page that is not there then drags
/// megabytes along.
RandomChoice judge_random(const RandomTrial& normal, const RandomTrial& random, uint64_t read_ahead_bytes);

/// Advises and touches some slices that are not in the page cache, half of them with MADV_RANDOM (which is taken back),
/// for a tenth of a second or two at most. Where next to none is cold, there is nothing to measure. `call_bytes`: as
/// for advise_willneed().
RandomChoice choose_random(const GgufFile& file, const EntryMap& map, uint64_t call_bytes, uint64_t read_ahead_bytes);

}  // namespace moetier
