// How much of a batch prompts may take, so that they go on and others keep their pace.
#pragma once

#include <cstdint>

namespace moetier {

/// While someone generates, prompts get about half of the time: after a batch with a slice of a prompt come batches
/// without one, until these have taken as long as the slice did. The slice is sized from the speed measured so that one
/// batch takes no longer than kSliceSeconds more; where entries are streamed it is a whole ubatch, since a slice of any
/// size reads nearly all experts.
class Pace {
 public:
  static constexpr double kSliceSeconds = 0.1;
  static constexpr int64_t kLeastSlice = 16;

  struct Limits {
    int64_t ubatch = 1;
    int64_t group_rows = 1;  ///< rows of a prompt when nobody generates
    int64_t slice = 0;       ///< 0 = from the speed
    bool streaming = false;
  };
  explicit Pace(const Limits& limits) : limits_(limits) {}

  /// Rows of prompts that the next batch may have, beside `generating` rows.
  int64_t prompt_rows(int64_t generating) const;
  /// A batch of so many rows took so long.
  void note(int64_t generating, int64_t prompt_rows, double seconds);

 private:
  Limits limits_;
  double debt_ = 0;         // seconds that prompts have taken from others
  double decode_ = 0;       // seconds of a batch without prompts; 0 = not known
  double row_seconds_ = 0;  // of a prompt; 0 = not known
};

}  // namespace moetier
