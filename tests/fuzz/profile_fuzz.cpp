// libFuzzer: whatever the bytes, a profile is read or refused with a sentence.
#include <cstddef>
#include <cstdint>
#include <set>

#include "base/error.h"
#include "experts/profile.h"
#include "experts/profile_file.h"

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
  // What a cache takes from a file, the tools take too, and find the same in it.
  try {
    const ProfileFile file = parse_profile_file({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
    if (file.n_layer == kLayers && file.n_expert == kExperts && (!p.problem.empty() || file.ranked != p.ranked))
      __builtin_trap();
    if (rank_correlation(file, file) < 0.999 && file.ranked.size() > 1) __builtin_trap();
    if (merge_profiles({&file, 1}) != file.ranked) __builtin_trap();
  } catch (const Error&) {
  }
  return 0;
}
