// What was picked, and what the layer before would have guessed: recorded once, analysed offline (docs/formats.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace moetier {

struct GuessLog {
  struct Layer {
    int layer = 0;                 ///< the model's layer number
    uint64_t entry_bytes = 0;      ///< of one expert; 0 = not known
    std::vector<int32_t> picks;    ///< [top_k x tokens]
    std::vector<int32_t> guesses;  ///< [width x tokens], best first; empty for the first layer
  };
  int n_expert = 0, top_k = 0, width = 0;
  int64_t tokens = 0;
  std::vector<Layer> layers;  ///< ascending
};

/// Errors: lists whose lengths do not agree, a file that cannot be written. Beside, and then renamed.
void write_guess_log(const std::string& path, const GuessLog& log);
/// A file is hostile: errors name it and what is wrong.
GuessLog read_guess_log(const std::string& path);
GuessLog parse_guess_log(std::span<const std::byte> bytes, const std::string& name);

}  // namespace moetier
