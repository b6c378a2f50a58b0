#include "server/pace.h"

#include <algorithm>

namespace moetier {
namespace {

constexpr double kNewShare = 0.2;  // of a new measurement in the running ones
constexpr int64_t kFirstSlice = 64;

void learn(double& value, double measured) {
  value = value == 0 ? measured : value + kNewShare * (measured - value);
}

}  // namespace

int64_t Pace::prompt_rows(int64_t generating) const {
  if (generating == 0) return limits_.group_rows;
  if (debt_ > 0) return 0;
  int64_t slice = limits_.slice;
  if (slice == 0) {
    slice = limits_.streaming ? limits_.ubatch : kFirstSlice;
    if (!limits_.streaming && row_seconds_ > 0) {
      slice = static_cast<int64_t>(std::min(kSliceSeconds / row_seconds_, 1e6));
      slice = std::max(slice, kLeastSlice);
    }
  }
  return std::max<int64_t>(1, std::min(slice, limits_.ubatch - generating));
}

void Pace::note(int64_t generating, int64_t prompt_rows, double seconds) {
  if (generating == 0) {
    debt_ = 0;
    if (prompt_rows >= kLeastSlice) learn(row_seconds_, seconds / static_cast<double>(prompt_rows));
    return;
  }
  if (prompt_rows == 0) {
    learn(decode_, seconds);
    debt_ = std::max(0.0, debt_ - seconds);
    return;
  }
  const double prompt = std::max(0.0, seconds - decode_);
  debt_ += prompt;
  if (prompt_rows >= kLeastSlice) learn(row_seconds_, prompt / static_cast<double>(prompt_rows));
}

}  // namespace moetier
