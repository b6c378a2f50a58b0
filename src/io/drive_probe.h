// How fast a drive reads, and with how many reads at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/read_engine.h"
#include "io/read_file.h"

namespace moetier {

struct ProbeOptions {
  ReadKind kind = ReadKind::automatic;
  uint64_t request_bytes = uint64_t{1} << 20;  ///< of one read; rounded up to whole blocks, at most 4 MiB
  uint64_t offset = 0, bytes = ~uint64_t{0};   ///< the range of the file to read in
  bool ignore_cache = false;                   ///< measure anew; what was measured is kept all the same
  double seconds = 0.4;                        ///< for all depths together
  uint64_t most_bytes = uint64_t{256} << 20;   ///< read by all depths together
  std::string cache_directory;                 ///< empty: $XDG_CACHE_HOME/moetier or ~/.cache/moetier
};

struct DriveRate {
  struct Step {
    int depth = 0;
    double bytes_per_second = 0;
  };
  std::string engine;           ///< "io_uring" or "threads"
  int depth = 0;                ///< reads in flight, or threads, to choose; a usual one if nothing was measured
  double bytes_per_second = 0;  ///< with that depth; 0 = unknown
  double best_bytes_per_second = 0;
  uint64_t request_bytes = 0;  ///< of the reads that were timed
  bool from_cache = false;
  std::vector<Step> steps;  ///< all that was measured
  std::string why_unknown;  ///< one sentence if the rate is unknown
};

/// Times direct reads at random places of the file, with 1, 2, 4 ... 32 of them in flight (8 threads at most), and
/// chooses the least depth within 5 % of the best rate. Depths that a slow drive has no time for are left out. What was
/// measured is kept per device, kernel, engine and request size (rounded to a power of two). Where only buffered reads
/// can be had, and of a range below 16 MiB, the rate is unknown. Errors: options.kind is io_uring and is refused.
DriveRate probe_drive(const ReadFile& file, const ProbeOptions& options);

/// "1234 MiB/s with 8 reads of 2.0 MiB in flight (io_uring; 1: 400, 2: 790, ...)", or why it is unknown.
std::string describe(const DriveRate& rate);

}  // namespace moetier
