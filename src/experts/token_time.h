// What a decoded token costs: arithmetic on bytes and on rates that were measured.
#pragma once

#include <string>

namespace moetier {

/// Bytes per second; 0 = not known.
struct TokenRates {
  double dense = 0;    ///< dense weights through the kernels
  double experts = 0;  ///< entries through the kernels
  double drive = 0;    ///< reads of entries
};

/// Bytes of one token, the mean of many.
struct TokenBytes {
  double dense = 0;    ///< weights that every token needs
  double experts = 0;  ///< of all entries that it computes
  double reads = 0;    ///< of entries that are read for it, swaps included
  int layers = 0;      ///< that it passes
};

/// What a layer takes beside its weights: norms, the KV cache and a short context's attention, starting some fifteen
/// operations, the expert store's books. Not measured where it is used: on two models of 12 and 48 layers it was 0.12
/// and 0.15 ms with two threads of a server processor (docs/tools.md).
inline constexpr double kLayerSeconds = 0.12e-3;

/// Seconds. Entries of a layer are read while others of the layer are computed, but dense weights wait for both, so a
/// token takes dense + the longer of the two at best, and all three at worst.
struct TokenTime {
  double dense = 0, experts = 0, reads = 0;
  double rest = 0;     ///< of the layers, beside their weights
  bool known = false;  ///< all rates that are needed are known
  double best() const { return dense + rest + (experts > reads ? experts : reads); }
  double worst() const { return dense + rest + experts + reads; }
  /// Between the two: half of the shorter part is taken as hidden (misses land one after another, and the last of a
  /// layer is computed after it has landed).
  double expected() const;
};

TokenTime token_time(const TokenBytes& bytes, const TokenRates& rates);

/// The arithmetic, in lines: each part's bytes over its rate.
std::string explain(const TokenBytes& bytes, const TokenRates& rates);

}  // namespace moetier
