// The closing account of a run: what bound it, and what would help most. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "experts/residency.h"

namespace moetier {

/// Of the decoded tokens, or of the prompt where nothing was decoded. Bytes and seconds.
struct AccountInput {
  ExpertMode mode = ExpertMode::mmap;  ///< as it was, never automatic
  DensePolicy dense = DensePolicy::mmap;
  bool has_experts = true;
  bool cached = false;
  bool overlap = true;
  uint64_t tokens = 0;
  double wall = 0, read_wait = 0, compute = 0;
  uint64_t bytes_read = 0;               ///< by the store
  std::optional<uint64_t> device_bytes;  ///< fetched for the process, page faults too
  std::optional<double> hit_share;       ///< of the cache
  uint64_t major_faults = 0;
  std::optional<uint64_t> swapped_in;  ///< of the whole machine
  uint64_t budget = 0, bank = 0;
  std::optional<uint64_t> available;      ///< memory that can still be had, now
  uint64_t floor = 0;                     ///< of it, what is to be left free
  double drive_rate = 0;                  ///< bytes per second it was measured to give; 0 = not measured
  int threads = 1, cpus = 1;              ///< computing, and there for this process
  std::optional<double> other_cpu_share;  ///< of the machine's CPUs, taken by other processes
};

enum class Bound : uint8_t { nothing, drive, memory, compute, faults, swap };
std::string_view to_string(Bound bound);

struct Account {
  Bound bound = Bound::nothing;
  std::string why;   ///< what was measured, e.g. "58 % of the time was spent waiting for reads"
  std::string help;  ///< the flag that would help most; empty if none would
};

/// Looks for the costliest thing first: swapping, major faults, waiting for reads, and then computing. Waiting for
/// reads is the drive's doing where it gives what it can, and memory's where the cache cannot grow.
Account judge(const AccountInput& input);

/// One line: the bound, bytes per token, hit rate, read rates, and what would help.
std::string account(const AccountInput& input);

}  // namespace moetier
