#include "base/log.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>

namespace moetier::log {
namespace {
std::atomic<Level> g_level{Level::info};
std::mutex g_mutex;
std::vector<std::string>& stored() {
  static std::vector<std::string> sentences;
  return sentences;
}
}  // namespace

void set_level(Level level) {
  g_level = level;
}
Level level() {
  return g_level;
}

void line(Level level, std::string_view text) {
  if (level > g_level) return;
  const std::lock_guard lock(g_mutex);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fputc('\n', stderr);
}

void warn_once(const std::string& sentence) {
  {
    const std::lock_guard lock(g_mutex);
    auto& known = stored();
    if (std::find(known.begin(), known.end(), sentence) != known.end()) return;
    known.push_back(sentence);
  }
  line(Level::warning, "warning: " + sentence);
}

std::vector<std::string> warnings() {
  const std::lock_guard lock(g_mutex);
  return stored();
}

}  // namespace moetier::log
