#include "moe/next_router.h"

#include <algorithm>

#include "base/error.h"

namespace moetier {

NextRouter::NextRouter(Compute& compute, GuessObserver observer, void* user, int width)
    : compute_(compute), observer_(observer), user_(user), width_(width) {
  if (width < 1) fail("{} experts cannot be guessed", width);
}

void NextRouter::reserve(int64_t rows, int64_t experts) {
  if (rows <= rows_ && experts <= experts_) return;
  rows_ = std::max(rows, rows_);
  experts_ = std::max(experts, experts_);
  const auto picks = static_cast<size_t>(rows_ * width_);
  logits_ = compute_.allocate(static_cast<size_t>(rows_ * experts_) * sizeof(float));
  ids_ = compute_.allocate(picks * sizeof(int32_t));
  weights_ = compute_.allocate(picks * sizeof(float));
  host_.resize(picks);
}

void NextRouter::look(const MoeLayer& layer, const Tensor& router_in) {
  known_.try_emplace(layer.layer, layer);
  const auto next = known_.upper_bound(layer.layer);
  if (next == known_.end()) return;
  const MoeLayer& its = next->second;
  const int64_t rows = router_in.rows(), experts = its.router.shape[1];
  if (its.router.shape[0] != router_in.shape[0]) return;
  reserve(rows, experts);
  RouteParams params = its.route;
  params.top_k = static_cast<int>(std::min<int64_t>(width_, experts));
  // Groups would leave out experts that may well be picked when more are guessed than picked.
  params.groups = params.groups_used = 1;
  const Tensor scores = Tensor::packed(logits_.get(), 0, TensorType::f32, {experts, rows, 1, 1});
  const Tensor ids = Tensor::packed(ids_.get(), 0, TensorType::i32, {params.top_k, rows, 1, 1});
  const Tensor weights = Tensor::packed(weights_.get(), 0, TensorType::f32, {params.top_k, rows, 1, 1});
  const MatmulTerm term{its.router, scores, its.router_bias};
  compute_.matmul(router_in, std::span(&term, 1));
  compute_.route(scores, its.selection_bias, params, ids, weights);
  compute_.download(ids, host_.data());
  observer_(user_, next->first, rows, std::span(host_).first(static_cast<size_t>(rows * params.top_k)));
}

}  // namespace moetier
