#include "experts/speculation.h"

#include <algorithm>

namespace moetier {

void Speculation::demand(size_t layer, std::span<const int32_t> picks, int64_t rows) {
  if (!on()) return;
  if (idle_since_) {
    constexpr double kNew = 0.125;  // of the latest in the average
    const double seconds = std::chrono::duration<double>(Clock::now() - *idle_since_).count();
    idle_seconds_ += kNew * (seconds - idle_seconds_);
    idle_since_.reset();
  }
  if (rows == 1) last_picks_[layer].assign(picks.begin(), picks.end());
}

uint64_t Speculation::idle(double bytes_per_second) {
  idle_since_ = Clock::now();
  return static_cast<uint64_t>(idle_seconds_ * bytes_per_second);
}

int Speculation::find(size_t layer, int expert) const {
  for (size_t i = 0; i < homes_.size(); ++i) {
    const Home& home = homes_[i];
    if (home.state != State::empty && home.layer == static_cast<int>(layer) && home.expert == expert) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

int Speculation::free_home() const {
  const auto free =
      std::find_if(homes_.begin(), homes_.end(), [](const Home& home) { return home.state == State::empty; });
  return free == homes_.end() ? -1 : static_cast<int>(free - homes_.begin());
}

void Speculation::drop(size_t layer) {
  for (Home& home : homes_) {
    if (home.layer != static_cast<int>(layer)) continue;
    if (home.state == State::flying) {
      home.layer = home.expert = -1;  // nobody finds it; it empties when its reads end
    } else {
      home = {};
    }
  }
}

}  // namespace moetier
