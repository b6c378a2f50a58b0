// What stays and what goes: ranks all entries of all layers. Plain classes without memory, threads or time; the same
// run in the engine and in the simulator.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "experts/layer_shape.h"
#include "experts/residency.h"

namespace moetier {

/// What a policy may ask about the cache.
class CacheView {
 public:
  virtual ~CacheView() = default;
  virtual bool holds(int layer, int expert) const = 0;
  virtual int held_in(int layer) const = 0;                ///< entries
  virtual int64_t free_slots(int layer) const = 0;         ///< that an entry of the layer could take
  virtual bool same_size(int layer, int other) const = 0;  ///< their entries can take each other's slots
};

/// An entry that a policy wants between tokens, instead of another one, or in a free slot (victim_layer -1).
struct Proposal {
  int layer = 0, expert = 0;
  int victim_layer = -1, victim_expert = -1;
};

/// The state advances only in begin_token() and touch(), in pick order. Each entry has a key; the lowest key of a layer
/// goes first. Keys of a layer keep their order from touch to touch of that layer, so that minima can be kept.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;

  /// A token begins, after a visit of `rows` rows (0: none yet).
  virtual void begin_token(int64_t rows) { (void)rows; }
  /// A layer's picks, in pick order, [top_k x rows].
  virtual void touch(int layer, std::span<const int32_t> picks, int64_t rows) = 0;

  virtual std::span<const double> keys(int layer) const = 0;  ///< by expert; higher is kept longer
  /// Makes keys of layers comparable, at this moment. Grows with the key.
  virtual double value(int layer, double key) const {
    (void)layer;
    return key;
  }
  /// The same over whole tokens, wherever the token is just now: for decisions that last.
  virtual double worth(int layer, double key) const {
    (void)layer;
    return key;
  }
  /// May an entry that was just picked take the place of the one with the lowest value?
  virtual bool admits(int layer, int expert, int victim_layer, int victim_expert) const = 0;
  /// A miss may take a slot at once.
  virtual bool takes_slots() const { return true; }
  /// May an entry give way at all, however cold it is?
  virtual bool yields(int layer, int expert) const {
    (void)layer;
    (void)expert;
    return true;
  }

  /// Swaps between tokens; appends to `proposals`. `max_swaps` < 0: when and as many as the policy wants by itself.
  virtual void propose(const CacheView& cache, int max_swaps, std::vector<Proposal>& proposals) {
    (void)cache;
    (void)max_swaps;
    (void)proposals;
  }
};

/// Layers until `layer` comes, when `at` is being computed: 1 to `layers`.
inline int layers_ahead(int layer, int at, int layers) {
  return layer > at ? layer - at : layer - at + layers;
}

/// `profile`: (layer, expert), hottest first, for `pinned`.
std::unique_ptr<Policy> make_policy(CachePolicy kind, std::span<const LayerShape> shapes,
                                    std::span<const std::pair<int, int>> profile = {});

}  // namespace moetier
