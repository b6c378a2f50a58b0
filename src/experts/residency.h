// How a model's entries are kept: what a user chooses.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "io/read_engine.h"

namespace moetier {

enum class ExpertMode : uint8_t {
  automatic,  ///< resident when the model fits with air, else stream
  resident,   ///< every entry in memory of our own
  mmap,       ///< the page cache decides
  advise,     ///< mmap, and WILLNEED on the picked slices
  noop,       ///< advise without the hint
  stream,     ///< slots and direct reads
};
/// Where the dense weights live: everything that is no entry.
enum class DensePolicy : uint8_t {
  automatic,  ///< anon when entries are in memory of our own or streamed, else mmap
  mmap,       ///< in the mapped file, read page by page as they are touched
  warm,       ///< mmap, swept once at load
  anon,       ///< read at load into memory of our own, past the page cache
};
enum class CachePolicy : uint8_t { standard, lru, heat, cycle, pinned, adaptive, reuse };
inline constexpr std::array kCachePolicies{CachePolicy::standard, CachePolicy::lru,    CachePolicy::heat,
                                           CachePolicy::cycle,    CachePolicy::pinned, CachePolicy::adaptive,
                                           CachePolicy::reuse};

std::string_view to_string(ExpertMode mode);
std::string_view to_string(DensePolicy policy);
std::string_view to_string(CachePolicy policy);  ///< standard: "default"

/// Ubatches of up to so many rows count as generation; larger ones as prompts, whose hits and misses are kept apart.
inline constexpr int64_t kSmallRows = 32;

/// The totals at the end of a run are split here: generation of one or a few sequences, and the rest.
inline constexpr int64_t kFewRows = 8;

struct ResidencyOptions {
  ExpertMode mode = ExpertMode::automatic;
  DensePolicy dense = DensePolicy::automatic;
  /// Of the cache of `stream`, transit slots included; nullopt: from the memory there is, once, at load.
  std::optional<uint64_t> cache_bytes;
  uint64_t floor_bytes = uint64_t{1536} << 20;  ///< left free when sizing from memory
  bool floor_asked = true;  ///< false: floor_bytes is the caller's own choice, of which nothing is said
  uint64_t ceil_bytes = 0;  ///< most when sizing from memory; 0 = no bound
  CachePolicy policy = CachePolicy::standard;
  std::string profile;         ///< STRP file to fill the cache from; empty = none
  bool direct = true;          ///< read past the page cache
  bool overlap = true;         ///< compute entries as they land; false waits for all of a layer first
  int prefetch = 0;            ///< layers ahead to read on the last token's picks, while the drive is idle
  bool load_all = false;       ///< read every entry of a layer, picked or not (for comparing)
  bool advise_always = false;  ///< advise also when the model fits
  bool mlock = false;          ///< lock slots and dense weights
  bool preload = false;        ///< resident: all entries at load, also those that the page cache has
  ReadKind io = ReadKind::automatic;
  int io_depth = 0, io_lanes = 0;  ///< 0: probed at load, kept per device
  bool io_probe = false;           ///< probe anew
};

}  // namespace moetier
