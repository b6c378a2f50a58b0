#include "experts/token_time.h"

#include <fmt/format.h>

#include <algorithm>

namespace moetier {

double TokenTime::expected() const {
  // Misses land one after another, and the last of a layer is computed after it has landed, so about half of the
  // shorter part is hidden.
  return dense + rest + std::max(experts, reads) + std::min(experts, reads) / 2;
}

TokenTime token_time(const TokenBytes& bytes, const TokenRates& rates) {
  TokenTime time;
  time.known = (bytes.dense <= 0 || rates.dense > 0) && (bytes.experts <= 0 || rates.experts > 0) &&
               (bytes.reads <= 0 || rates.drive > 0);
  time.rest = bytes.layers * kLayerSeconds;
  if (rates.dense > 0) time.dense = bytes.dense / rates.dense;
  if (rates.experts > 0) time.experts = bytes.experts / rates.experts;
  if (rates.drive > 0) time.reads = bytes.reads / rates.drive;
  return time;
}

std::string explain(const TokenBytes& bytes, const TokenRates& rates) {
  const TokenTime time = token_time(bytes, rates);
  const auto line = [](const char* what, double of, double rate, double seconds) {
    if (rate <= 0) return fmt::format("  {:<18} {:>9.1f} MB at an unknown rate\n", what, of / 1e6);
    return fmt::format("  {:<18} {:>9.1f} MB / {:>6.2f} GB/s = {:>8.2f} ms\n", what, of / 1e6, rate / 1e9,
                       1000 * seconds);
  };
  std::string out = line("dense weights", bytes.dense, rates.dense, time.dense) +
                    line("experts", bytes.experts, rates.experts, time.experts) +
                    line("read from the drive", bytes.reads, rates.drive, time.reads);
  if (bytes.layers > 0) {
    out += fmt::format("  {:<18} {:>9} layers x {:.2f} ms   = {:>8.2f} ms\n", "everything else", bytes.layers,
                       1000 * kLayerSeconds, 1000 * time.rest);
  }
  if (!time.known) return out;
  return out + fmt::format(
                   "  all but reads and experts, the longer of these, half of the shorter = {:.2f} ms: {:.2f} tok/s "
                   "({:.2f} to {:.2f})\n",
                   1000 * time.expected(), 1 / time.expected(), 1 / time.worst(), 1 / time.best());
}

}  // namespace moetier
