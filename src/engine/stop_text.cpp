#include "engine/stop_text.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace moetier {
namespace {

/// Length of the longest prefix that the input ends with once `c` is appended.
size_t advance(const std::string& text, const std::vector<size_t>& border, size_t matched, char c) {
  while (matched > 0 && (matched == text.size() || text[matched] != c)) matched = border[matched];
  return text[matched] == c ? matched + 1 : 0;
}

}  // namespace

StopText::StopText(const std::vector<std::string>& stops) {
  for (const std::string& stop : stops) {
    if (stop.empty()) usage_error("an empty stop text would end every answer before it begins: leave it out");
    Pattern p;
    p.text = stop;
    p.border.assign(stop.size() + 1, 0);
    for (size_t i = 1; i < stop.size(); ++i) p.border[i + 1] = advance(stop, p.border, p.border[i], stop[i]);
    patterns_.push_back(std::move(p));
  }
}

std::string StopText::push(std::string_view text) {
  if (stopped_) return "";
  for (const char c : text) {
    pending_ += c;
    size_t longest = 0;
    for (Pattern& p : patterns_) {
      p.matched = advance(p.text, p.border, p.matched, c);
      if (p.matched == p.text.size()) longest = std::max(longest, p.matched);
    }
    if (longest == 0) continue;
    stopped_ = true;
    matched_ = pending_.substr(pending_.size() - longest);
    pending_.resize(pending_.size() - longest);
    return std::exchange(pending_, {});
  }
  size_t hold = 0;
  for (const Pattern& p : patterns_) hold = std::max(hold, p.matched);
  std::string certain = pending_.substr(0, pending_.size() - hold);
  pending_.erase(0, certain.size());
  return certain;
}

std::string StopText::finish() {
  return stopped_ ? std::string() : std::exchange(pending_, {});
}

}  // namespace moetier
