// Reading ahead of the router: entries of the next layers that the last token picked, while the drive is idle.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace moetier {

/// Homes for entries that were read on a guess, and how much the drive has to spare. The store issues the reads.
///
/// The time between the end of a layer's reads and the next demand is measured, and so is the drive's rate; no more is
/// guessed than that time can carry, so that a guess seldom delays a demand.
class Speculation {
 public:
  enum class State : uint8_t { empty, flying, landed, failed };
  struct Home {
    int layer = -1, expert = -1;  ///< place among MoE layers
    State state = State::empty;
    int left = 0;  ///< slices still to come
  };

  Speculation(int ahead, int64_t homes, size_t layers)
      : ahead_(ahead), last_picks_(layers), homes_(static_cast<size_t>(homes)) {}
  bool on() const { return ahead_ > 0 && !homes_.empty(); }
  int ahead() const { return ahead_; }
  std::span<Home> homes() { return homes_; }
  std::span<const Home> homes() const { return homes_; }
  /// Another number of homes, all empty. Nothing may be in flight.
  void set_homes(int64_t homes) { homes_.assign(static_cast<size_t>(homes), Home{}); }

  /// The demand of a layer begins: notes its picks for next time, if it is of one row.
  void demand(size_t layer, std::span<const int32_t> picks, int64_t rows);
  /// Nothing more is asked of the drive until the next demand. Gives what it can be expected to carry, in bytes.
  uint64_t idle(double bytes_per_second);
  std::span<const int32_t> last_picks(size_t layer) const { return last_picks_[layer]; }

  /// The home of an entry, or -1.
  int find(size_t layer, int expert) const;
  int free_home() const;
  /// Homes of a layer that was just visited were not picked: they are empty again, once their reads have ended.
  void drop(size_t layer);

 private:
  using Clock = std::chrono::steady_clock;
  int ahead_;
  std::vector<std::vector<int32_t>> last_picks_;
  std::vector<Home> homes_;
  std::optional<Clock::time_point> idle_since_;
  double idle_seconds_ = 0;  ///< smoothed
};

}  // namespace moetier
