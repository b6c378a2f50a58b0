#include "quant/grids.h"

#include <cstddef>
#include <memory>

#include "quant/grid_bitmaps.h"

namespace moetier {
namespace {

/// Writes the rows of the combinations that are in the set; returns how many.
template <typename Row, size_t kLevels>
void expand(const uint64_t* bitmap, const uint8_t (&levels)[kLevels], Row* rows, size_t count) {
  constexpr size_t kPlaces = sizeof(Row);
  size_t combinations = 1, found = 0;
  for (size_t i = 0; i < kPlaces; ++i) combinations *= kLevels;
  for (size_t u = 0; u < combinations && found < count; ++u) {
    if ((bitmap[u / 64] >> (u % 64) & 1) == 0) continue;
    Row row = 0;
    size_t rest = u;
    for (size_t j = 0; j < kPlaces; ++j, rest /= kLevels) row |= static_cast<Row>(levels[rest % kLevels]) << (8 * j);
    rows[found++] = row;
  }
}

std::unique_ptr<const Grids> make_grids() {
  static constexpr uint8_t kIq2[] = {8, 25, 43}, kIq1[] = {0, 8, 16};
  static constexpr uint8_t kIq3Xxs[] = {4, 12, 20, 28, 36, 44, 52, 62}, kIq3S[] = {1, 3, 5, 7, 9, 11, 13, 15};
  auto g = std::make_unique<Grids>();
  expand(grid_bitmaps::kIq2Xxs, kIq2, g->iq2_xxs, std::size(g->iq2_xxs));
  expand(grid_bitmaps::kIq2Xs, kIq2, g->iq2_xs, std::size(g->iq2_xs));
  expand(grid_bitmaps::kIq2S, kIq2, g->iq2_s, std::size(g->iq2_s));
  expand(grid_bitmaps::kIq1, kIq1, g->iq1, std::size(g->iq1));
  expand(grid_bitmaps::kIq3Xxs, kIq3Xxs, g->iq3_xxs, std::size(g->iq3_xxs));
  expand(grid_bitmaps::kIq3S, kIq3S, g->iq3_s, std::size(g->iq3_s));
  return g;
}

}  // namespace

const Grids& grids() {
  static const std::unique_ptr<const Grids> made = make_grids();
  return *made;
}

}  // namespace moetier
