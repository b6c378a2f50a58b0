// libFuzzer: whatever the bytes, a profile is read or refused with a sentence.
#include <cstddef>
#include <cstdint>
#include <set>

#include "experts/profile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moetier;
  constexpr int kLayers = 6, kExperts = 16;
  const Profile p = parse_profile({reinterpret_cast<const std::byte*>(data), size}, "fuzz", kLayers, kExperts);
  if (!p.problem.empty() && !p.ranked.empty()) __builtin_trap();
  const std::set<std::pair<int, int>> distinct(p.ranked.begin(), p.ranked.end());
  if (distinct.size() != p.ranked.size()) __builtin_trap();
  for (const auto& [layer, expert] : p.ranked) {
    if (layer < 0 || layer >= kLayers || expert < 0 || expert >= kExperts) __builtin_trap();
  }
  return 0;
}
