#include "experts/profile_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "experts/profile.h"

namespace moetier {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 27;
constexpr uint64_t kMostCells = uint64_t{1} << 24;
constexpr size_t kHeadBytes = 24;

uint32_t word(std::span<const std::byte> bytes, uint64_t index) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= std::to_integer<uint32_t>(bytes[4 * index + i]) << (8 * i);
  return value;
}

size_t cell(const ProfileFile& p, std::pair<int, int> entry) {
  return static_cast<size_t>(entry.first) * static_cast<size_t>(p.n_expert) + static_cast<size_t>(entry.second);
}

size_t cells(const ProfileFile& p) {
  return static_cast<size_t>(p.n_layer) * static_cast<size_t>(p.n_expert);
}

/// Each entry's place, -1 where it has none.
std::vector<int64_t> places(const ProfileFile& p) {
  std::vector<int64_t> place(cells(p), -1);
  for (size_t i = 0; i < p.ranked.size(); ++i) place[cell(p, p.ranked[i])] = static_cast<int64_t>(i);
  return place;
}

/// What is wrong with the table behind `pairs` pairs.
void check_table(std::span<const std::byte> bytes, uint64_t pairs, const std::string& name, ProfileFile& p) {
  const uint64_t begin = kHeadBytes / 4 + pairs, left = bytes.size() - 4 * begin, whole = 4 * uint64_t{cells(p)};
  if (left < whole) {
    p.faults.push_back(fmt::format("{} has {} bytes of rank table where {} belong", name, left, whole));
    return;
  }
  if (left > whole)
    p.faults.push_back(fmt::format("{} goes on for {} bytes behind its rank table", name, left - whole));
  const std::vector<int64_t> place = places(p);
  uint64_t wrong = 0, first = 0;
  for (uint64_t i = 0; i < place.size(); ++i) {
    if (static_cast<int32_t>(word(bytes, begin + i)) == place[i]) continue;
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return;
  const auto experts = static_cast<uint64_t>(p.n_expert);
  p.faults.push_back(fmt::format(
      "{}: the rank table differs from the pairs in {} places; the first is expert {} of layer {}, ranked {} there",
      name, wrong, first % experts, first / experts, static_cast<int32_t>(word(bytes, begin + first))));
}

}  // namespace

ProfileFile parse_profile_file(std::span<const std::byte> bytes, const std::string& name) {
  ProfileFile p;
  p.n_layer = p.n_expert = 1;  // of a file that is too short to tell
  if (bytes.size() >= kHeadBytes) {
    const uint64_t layers = word(bytes, 2), experts = word(bytes, 3);
    if (layers == 0 || experts == 0 || layers > 65536 || experts > 65536 || layers * experts > kMostCells) {
      if (std::memcmp(bytes.data(), "STRP", 4) == 0)
        fail("{} is a profile for {} layers of {} experts, which no model has", name, layers, experts);
    } else {
      p.n_layer = static_cast<int>(layers);
      p.n_expert = static_cast<int>(experts);
    }
  }
  Profile profile = parse_profile(bytes, name, p.n_layer, p.n_expert);
  if (!profile.problem.empty()) fail("{}", profile.problem);
  p.slots = profile.slots;
  p.ranked = std::move(profile.ranked);
  const uint64_t pairs = word(bytes, 5);
  if (pairs > p.ranked.size())
    p.faults.push_back(fmt::format("{} ranks {} entries more than once", name, pairs - p.ranked.size()));
  check_table(bytes, pairs, name, p);
  return p;
}

ProfileFile read_profile_file(const std::string& path) {
  const std::string text = read_file(path, kMostBytes);
  return parse_profile_file(std::as_bytes(std::span(text.data(), text.size())), path);
}

std::vector<std::pair<int, int>> merge_profiles(std::span<const ProfileFile> profiles) {
  if (profiles.empty()) fail("there is no profile to merge");
  const ProfileFile& first = profiles.front();
  std::vector<double> worth(cells(first), 0);
  for (const ProfileFile& p : profiles) {
    if (p.n_layer != first.n_layer || p.n_expert != first.n_expert) {
      fail("profiles for {} layers of {} experts and for {} of {} cannot be merged: they are of different models",
           first.n_layer, first.n_expert, p.n_layer, p.n_expert);
    }
    const auto n = static_cast<double>(p.ranked.size());
    for (size_t i = 0; i < p.ranked.size(); ++i) worth[cell(p, p.ranked[i])] += (n - static_cast<double>(i)) / n;
  }
  std::vector<std::pair<int, int>> merged;
  for (size_t i = 0; i < worth.size(); ++i) {
    const auto experts = static_cast<size_t>(first.n_expert);
    if (worth[i] > 0) merged.emplace_back(static_cast<int>(i / experts), static_cast<int>(i % experts));
  }
  std::ranges::stable_sort(merged, [&](std::pair<int, int> a, std::pair<int, int> b) {
    return worth[cell(first, a)] > worth[cell(first, b)];
  });
  return merged;
}

double shared_share(const ProfileFile& a, const ProfileFile& b, size_t n) {
  n = std::min({n, a.ranked.size(), b.ranked.size()});
  if (n == 0) return 0;
  std::vector<std::pair<int, int>> its(a.ranked.begin(), a.ranked.begin() + static_cast<ptrdiff_t>(n));
  std::ranges::sort(its);
  size_t shared = 0;
  for (size_t i = 0; i < n; ++i) shared += std::ranges::binary_search(its, b.ranked[i]) ? 1 : 0;
  return static_cast<double>(shared) / static_cast<double>(n);
}

double rank_correlation(const ProfileFile& a, const ProfileFile& b) {
  if (a.n_layer != b.n_layer || a.n_expert != b.n_expert) return 0;
  const std::vector<int64_t> in_b = places(b);
  std::vector<int64_t> of_b;  // places in b of the entries that both rank, in a's order
  for (const std::pair<int, int>& entry : a.ranked) {
    if (in_b[cell(b, entry)] >= 0) of_b.push_back(in_b[cell(b, entry)]);
  }
  const size_t n = of_b.size();
  if (n < 2) return 0;
  std::vector<int64_t> sorted = of_b;
  std::ranges::sort(sorted);
  double squares = 0;
  for (size_t i = 0; i < n; ++i) {
    const auto at = std::ranges::lower_bound(sorted, of_b[i]) - sorted.begin();
    const double apart = static_cast<double>(i) - static_cast<double>(at);
    squares += apart * apart;
  }
  const auto m = static_cast<double>(n);
  return 1 - 6 * squares / (m * (m * m - 1));
}

}  // namespace moetier
