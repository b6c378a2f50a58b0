// What the next layer's router would choose if it saw this layer's state: a guess that could be read ahead for.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "compute/compute.h"
#include "moe/moe.h"

namespace moetier {

/// Learns the layers as they run (so a first token passes without guesses) and guesses for the one that follows.
class NextRouter {
 public:
  /// `width`: experts to guess, at most as many as the layer has.
  NextRouter(Compute& compute, GuessObserver observer, void* user, int width);
  /// A layer's router has seen `router_in` [columns, n].
  void look(const MoeLayer& layer, const Tensor& router_in);

 private:
  void reserve(int64_t rows, int64_t experts);
  Compute& compute_;
  GuessObserver observer_;
  void* user_;
  int width_;
  std::map<int, MoeLayer> known_;
  int64_t rows_ = 0, experts_ = 0;
  std::unique_ptr<Buffer> logits_, ids_, weights_;
  std::vector<int32_t> host_;
};

}  // namespace moetier
