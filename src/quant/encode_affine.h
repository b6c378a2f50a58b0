// x = scale * code + offset with offset <= 0: the fit that Q2_K, Q4_K and Q5_K share. Internal to this room.
#pragma once

#include "quant/encode_lanes.h"

namespace moetier::encoders {

/// How the fit searches: step sizes (high - low) / (top + first + step * t) for t = 0..steps.
struct AffineSearch {
  float top;  ///< highest code
  float first;
  int steps;
};

/// What an error counts: its square or its size.
enum class ErrorKind { squared, absolute };

template <int Length>
struct AffineFit {
  Floats scale, offset;
  Floats codes[Length];
};

/// How much each weight counts.
template <int Length>
struct Importance {
  Floats weight[Length];
  Floats sum, sum_x;  ///< of weights; of weight * x
  /// All weights are `base` plus their own magnitude.
  Importance(const SubBlocks<Length>& sub, Floats base) : sum(all(0)), sum_x(all(0)) {
    for (int i = 0; i < Length; ++i) {
      weight[i] = base + magnitude(sub.x[i]);
      sum = sum + weight[i];
      sum_x = sum_x + weight[i] * sub.x[i];
    }
  }
};

template <int Length, ErrorKind kError>
struct AffineFitter {
  const SubBlocks<Length>& sub;
  const Importance<Length>& importance;
  float top;
  AffineFit<Length> fit = {};
  Floats best = all(0);

  Floats error(const Floats* codes, Floats scale, Floats offset) const {
    Floats sum = all(0);
    for (int i = 0; i < Length; ++i) {
      const Floats difference = scale * codes[i] + offset - sub.x[i];
      const Floats counted = kError == ErrorKind::squared ? difference * difference : magnitude(difference);
      sum = sum + importance.weight[i] * counted;
    }
    return sum;
  }

  /// Tries codes rint(inverse * (x - offset)), solves for the best scale and offset for them, and keeps all if the
  /// error is smaller.
  void attempt(Floats inverse) {
    Floats codes[Length];
    Floats sum_c = all(0), sum_cc = all(0), sum_cx = all(0);
    for (int i = 0; i < Length; ++i) {
      codes[i] = round_clamp(inverse * (sub.x[i] - fit.offset), 0, top);
      const Floats wc = importance.weight[i] * codes[i];
      sum_c = sum_c + wc;
      sum_cc = sum_cc + wc * codes[i];
      sum_cx = sum_cx + wc * sub.x[i];
    }
    const Floats determinant = importance.sum * sum_cc - sum_c * sum_c;
    const Mask solvable = determinant > 0;
    const Floats divisor = solvable ? determinant : all(1);
    Floats scale = (importance.sum * sum_cx - importance.sum_x * sum_c) / divisor;
    Floats offset = (sum_cc * importance.sum_x - sum_c * sum_cx) / divisor;
    const Mask positive = offset > 0;  // only offsets <= 0 can be stored
    scale = positive ? sum_cx / (solvable ? sum_cc : all(1)) : scale;
    offset = positive ? all(0) : offset;
    const Floats now = error(codes, scale, offset);
    const Mask better = solvable & (now < best);
    best = better ? now : best;
    fit.scale = better ? scale : fit.scale;
    fit.offset = better ? offset : fit.offset;
    for (int i = 0; i < Length; ++i) fit.codes[i] = better ? codes[i] : fit.codes[i];
  }
};

template <ErrorKind kError, int Length>
AffineFit<Length> fit_affine(const SubBlocks<Length>& sub, const Importance<Length>& importance,
                             const AffineSearch& search) {
  Floats low = sub.x[0], high = sub.x[0];
  for (const Floats x : sub.x) {
    low = smaller(x, low);
    high = larger(x, high);
  }
  low = smaller(low, all(0));
  const Mask flat = high == low;
  AffineFitter<Length, kError> fitter{sub, importance, search.top};
  AffineFit<Length>& fit = fitter.fit;
  const Floats start = search.top / (flat ? all(1) : high - low);
  fit.scale = 1.0f / start;
  fit.offset = low;
  for (int i = 0; i < Length; ++i) fit.codes[i] = round_clamp(start * (sub.x[i] - low), 0, search.top);
  fitter.best = fitter.error(fit.codes, fit.scale, fit.offset);
  for (int t = 0; t <= search.steps; ++t) {
    // The offset found so far is the low end of the next trial.
    const Floats range = high - fit.offset;
    fitter.attempt((search.first + 0.1f * static_cast<float>(t) + search.top) / (range == 0 ? all(1) : range));
  }
  fit.scale = flat ? all(0) : fit.scale;
  fit.offset = flat ? low : fit.offset;
  for (Floats& codes : fit.codes) codes = flat ? all(0) : codes;
  return fit;
}

}  // namespace moetier::encoders
