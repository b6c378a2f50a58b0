// The machine's own limits, which a run is compared with: memory, arithmetic, drive, huge pages.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compute/cpu/cpu_compute.h"

namespace moetier {

/// Bytes per second that `threads` threads read from memory: the best of some passes over a block that is larger than
/// the caches (memory for it permitting).
double read_bandwidth(int threads, Isa isa);

struct MachineLimits {
  struct AtThreads {
    int threads = 0;
    double read = 0;   ///< bytes per second
    double int8 = 0;   ///< multiply-adds per second, of the unit's vector instructions
    double tiles = 0;  ///< the same of its matrix tiles; 0 = it has none
    double f32 = 0;    ///< multiplications with an addition each, per second
  };
  Isa isa = Isa::portable;
  std::string int8_instruction;
  uint64_t block_bytes = 0;  ///< read by the measurement
  std::vector<AtThreads> threads;
  struct Drive {
    std::string path, engine, why_unknown;  ///< why_unknown: empty if it was measured
    double sequential = 0, random = 0;      ///< bytes per second, by direct reads
    uint64_t request_bytes = 0;             ///< of the random reads
    int depth = 0;                          ///< of them in flight, the fewest that reach (nearly) the best rate
  } drive;
  struct HugePages {
    std::string enabled, defrag;  ///< the kernel's choice for anonymous memory; empty if it does not tell
    double granted_share = 0;     ///< of a block that asked for them
  } huge_pages;
};

struct LimitsOptions {
  int most_threads = 1;  ///< 1, 2, 4 ... and this
  Isa isa = Isa::automatic;
  std::string file;  ///< to read from; empty: one is made in `work` and removed
  std::string work = "/var/tmp";
  uint64_t request_bytes = uint64_t{1} << 20;  ///< of a random read: an expert's slice
};
MachineLimits measure_machine(const LimitsOptions& options);

nlohmann::ordered_json limits_json(const MachineLimits& limits);
std::string limits_text(const MachineLimits& limits);

}  // namespace moetier
