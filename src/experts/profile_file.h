// Profiles as files of their own, whatever model they are for: read whole, checked, merged and compared.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace moetier {

/// What a STRP file holds, its rank table too.
struct ProfileFile {
  int n_layer = 0, n_expert = 0;
  uint32_t slots = 0;
  std::vector<std::pair<int, int>> ranked;  ///< (layer, expert), hottest first, each once
  /// Sentences about what breaks the format's rules though a cache can be filled from the file: an entry that is ranked
  /// twice, a rank table that is missing, too long or says something else than the pairs.
  std::vector<std::string> faults;
};

/// Errors: what read_profile() refuses whatever the model, and more layers and experts than a file with its rank table
/// may have (16 M entries).
ProfileFile read_profile_file(const std::string& path);
/// The same from memory; `name` stands for the file in errors.
ProfileFile parse_profile_file(std::span<const std::byte> bytes, const std::string& name);

/// One ranking of several of the same shape: entries by the sum of what their places are worth, where the first of n
/// ranked places is worth 1, the last 1/n, and no place 0. Equal sums go by layer and expert. Errors: shapes that
/// differ, nothing to merge.
std::vector<std::pair<int, int>> merge_profiles(std::span<const ProfileFile> profiles);

/// Of the `n` hottest of each, the share that both have; n is cut to the shorter ranking. 0 where one ranks nothing.
double shared_share(const ProfileFile& a, const ProfileFile& b, size_t n);
/// Spearman's correlation of the places of entries that both rank, from -1 to 1; 0 for fewer than two of them.
double rank_correlation(const ProfileFile& a, const ProfileFile& b);

}  // namespace moetier
