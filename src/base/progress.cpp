#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/log.h"
#include "base/units.h"

namespace moetier {

using Clock = std::chrono::steady_clock;

Progress::Progress(std::string what)
    : what_(std::move(what)),
      terminal_(::isatty(STDERR_FILENO) == 1 && log::level() != log::Level::quiet),
      start_(Clock::now()),
      last_() {}

Progress::~Progress() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

void Progress::update(uint64_t done, uint64_t total, const std::string& note) {
  if (!terminal_) return;
  const auto now = Clock::now();
  if (drawn_ && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  drawn_ = true;
  const double share = total == 0 ? 0.0 : static_cast<double>(done) / static_cast<double>(total);
  const double seconds = std::chrono::duration<double>(now - start_).count();
  std::string left;
  if (share > 0.02 && seconds > 1) left = fmt::format(", {} left", format_seconds(seconds / share - seconds));
  fmt::print(stderr, "\r\033[K{}: {:.0f} %{}{}{}", what_, share * 100, left, note.empty() ? "" : ", ", note);
  std::fflush(stderr);
}

}  // namespace moetier
