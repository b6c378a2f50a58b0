#include "engine/account.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "experts/sizing.h"

namespace moetier {
namespace {

constexpr double kManyFaults = 20;                      // major ones per token: a steady state has fewer
constexpr uint64_t kMuchSwap = uint64_t{256} << 10;     // swapped in per token
constexpr double kMuchWait = 0.2;                       // share of the time
constexpr double kBusyDrive = 0.6;                      // share of what it can give
constexpr double kBusyMachine = 0.25;                   // share that other processes take
constexpr uint64_t kWorthGrowing = uint64_t{64} << 20;  // of a cache

double per_token(double what, const AccountInput& in) {
  return what / static_cast<double>(std::max<uint64_t>(in.tokens, 1));
}

double share(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

/// How much larger the cache could be with the memory there is.
uint64_t growth(const AccountInput& in) {
  const uint64_t missing = in.bank - std::min(in.bank, in.budget);
  const uint64_t free = in.available.value_or(0);
  return std::min(missing, free - std::min(free, in.floor));
}

Account judge_swap(const AccountInput& in) {
  Account a{Bound::swap, fmt::format("{} per token came back from swap", format_bytes(*in.swapped_in / in.tokens)), ""};
  if (in.cached) {
    a.help = fmt::format("a smaller cache (--cache-mb below {}) would help most", in.budget >> 20);
  } else if (in.mode == ExpertMode::resident) {
    a.help = "--experts stream would help most: it keeps only what fits";
  } else {
    a.help = "--mlock would help most, or a smaller --ctx";
  }
  return a;
}

Account judge_faults(const AccountInput& in) {
  Account a{Bound::faults,
            fmt::format("{:.0f} major faults per token", per_token(static_cast<double>(in.major_faults), in)), ""};
  const bool mapped =
      in.has_experts && (in.mode == ExpertMode::mmap || in.mode == ExpertMode::advise || in.mode == ExpertMode::noop);
  if (mapped) {
    a.help = "--experts stream would help most";
  } else if (in.dense != DensePolicy::anon) {
    a.help = "--dense-weights anon would help most";
  }
  return a;
}

Account judge_reads(const AccountInput& in) {
  Account a{Bound::drive,
            fmt::format("{:.0f} % of the time was spent waiting for reads", 100 * share(in.read_wait, in.wall)), ""};
  if (in.mode == ExpertMode::stream && !in.cached) {
    a.help = "a cache (--cache-mb auto) would help most";
    return a;
  }
  if (in.cached && in.bank > in.budget) {
    const uint64_t more = growth(in);
    if (more >= std::min(kWorthGrowing, in.bank - in.budget)) {
      const uint64_t mib = (in.budget + more) >> 20;
      a.help = fmt::format("a larger cache (--cache-mb {}) would help most",
                           mib >= kLeastCache >> 20 ? fmt::format("{}", mib) : "auto");
      return a;
    }
    // The cache has all the memory there is: more of it is what would help, and no flag gives it.
    if (in.available) {
      a.bound = Bound::memory;
      a.why += ", and no memory is left for a larger cache";
    }
  }
  const double rate = share(static_cast<double>(in.bytes_read), in.wall);
  if (in.drive_rate > 0 && rate < kBusyDrive * in.drive_rate) {
    a.help = in.overlap ? "--prefetch 1 would help most: the drive has time to spare"
                        : "--overlap would help most: the drive rests while experts are computed";
  }
  return a;
}

Account judge_compute(const AccountInput& in) {
  Account a{Bound::compute, fmt::format("{:.0f} % of the time was spent computing", 100 * share(in.compute, in.wall)),
            ""};
  if (in.threads < in.cpus) {
    a.help = fmt::format("--threads {} would help most", in.cpus);
  } else if (in.other_cpu_share.value_or(0) >= kBusyMachine) {
    a.help = fmt::format("other processes took {:.0f} % of the CPUs", 100 * *in.other_cpu_share);
  }
  return a;
}

}  // namespace

std::string_view to_string(Bound bound) {
  switch (bound) {
    case Bound::nothing:
      return "nothing";
    case Bound::drive:
      return "drive";
    case Bound::memory:
      return "memory";
    case Bound::compute:
      return "compute";
    case Bound::faults:
      return "faults";
    case Bound::swap:
      return "swap";
  }
  return "";
}

Account judge(const AccountInput& in) {
  if (in.tokens == 0 || in.wall <= 0) return {};
  if (in.swapped_in && *in.swapped_in / in.tokens >= kMuchSwap) return judge_swap(in);
  if (share(in.read_wait, in.wall) >= kMuchWait) return judge_reads(in);
  if (per_token(static_cast<double>(in.major_faults), in) >= kManyFaults) return judge_faults(in);
  return judge_compute(in);
}

std::string account(const AccountInput& in) {
  const Account a = judge(in);
  if (a.bound == Bound::nothing) return "bound by nothing: no token was computed";
  std::string line = fmt::format("bound by {}: {}", to_string(a.bound), a.why);
  if (in.has_experts) {
    const bool store_reads = in.mode == ExpertMode::stream;
    const uint64_t bytes = store_reads ? in.bytes_read : in.device_bytes.value_or(0);
    if (store_reads || bytes > 0) {
      line += fmt::format("; {} read per token", format_bytes(bytes / in.tokens));
      if (in.hit_share) line += fmt::format(" at {:.1f} % hits", 100 * *in.hit_share);
      line += fmt::format(", {}/s", format_bytes(static_cast<uint64_t>(share(static_cast<double>(bytes), in.wall))));
      if (in.drive_rate > 0)
        line += fmt::format(" of {}/s possible", format_bytes(static_cast<uint64_t>(in.drive_rate)));
    }
  }
  if (!a.help.empty()) line += "; " + a.help;
  return line;
}

}  // namespace moetier
