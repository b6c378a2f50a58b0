// Profiles: which entries of a model are the hottest (STRP files, docs/formats.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace moetier {

struct Profile {
  /// (layer, expert), hottest first, each once: where a file ranks an entry twice, its first place counts. The layer is
  /// the model's layer number.
  std::vector<std::pair<int, int>> ranked;
  uint32_t slots = 0;   ///< that it was made for; for information only
  std::string problem;  ///< empty, or why the profile is refused: one sentence that names the file; then nothing is
                        ///< ranked
};

/// Reads a profile for a model of `n_layer` layers (all of them, not only those with experts) and `n_expert` experts.
/// Never throws for what is wrong with the file: that is `problem`, to be warned of, and the cache starts empty. The
/// rank table behind the pairs is not read and may be missing.
Profile read_profile(const std::string& path, int n_layer, int n_expert);
/// The same from memory; `name` stands for the file in the sentence.
Profile parse_profile(std::span<const std::byte> bytes, const std::string& name, int n_layer, int n_expert);

/// Writes a profile with its rank table, beside and then renamed. Errors: dimensions beyond what the format can hold, a
/// pair out of range or ranked twice, a file that cannot be written.
void write_profile(const std::string& path, int n_layer, int n_expert, std::span<const std::pair<int, int>> ranked,
                   uint32_t slots);

}  // namespace moetier
