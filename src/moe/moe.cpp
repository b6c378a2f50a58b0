#include "moe/moe.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace moetier {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Keep row * top_k in 32 bits.
constexpr int64_t kMaxRows = 1 << 20;
constexpr int kMaxExperts = 1024;

/// Which slice of an entry is which projection.
struct SliceOrder {
  int gate = -1, up = -1, down = -1;
};

/// Matches the layer's description with the store's entries, so that no kernel can be sent past a slice's end.
SliceOrder match_slices(const LayerEntries& entries, const MoeLayer& layer) {
  const ExpertFfn& ffn = layer.ffn;
  SliceOrder order;
  const auto same = [](const SliceSource& slice, TensorType type, int64_t columns, int64_t rows) {
    return slice.type == type && slice.columns == columns && slice.rows == rows;
  };
  for (size_t i = 0; i < entries.slices.size(); ++i) {
    const SliceSource& slice = entries.slices[i];
    const int at = static_cast<int>(i);
    const bool up_form = same(slice, ffn.up_type, ffn.columns, ffn.width);
    switch (slice.projection) {
      case Projection::gate_up:
        if (ffn.fused && same(slice, ffn.gate_type, ffn.columns, 2 * ffn.width)) order.gate = at;
        break;
      case Projection::gate:
        if (!ffn.fused && same(slice, ffn.gate_type, ffn.columns, ffn.width)) order.gate = at;
        break;
      case Projection::up:
        if (!ffn.fused && up_form) order.up = at;
        break;
      case Projection::down:
        if (same(slice, ffn.down_type, ffn.width, ffn.columns)) order.down = at;
        break;
    }
  }
  if (order.gate < 0 || order.down < 0 || (order.up < 0) != ffn.fused)
    fail("the experts of layer {} in the store do not have the types and shapes that the model describes", layer.layer);
  return order;
}

}  // namespace

struct MoeOperation::Impl {
  Impl(Compute& compute_in, ExpertStore& store_in, int64_t most_rows, int most_experts, int most_picks)
      : compute(compute_in), store(store_in), max_rows(most_rows), max_experts(most_experts), max_top_k(most_picks) {
    if (max_rows < 1 || max_rows > kMaxRows || max_top_k < 1 || max_top_k > max_experts || max_experts > kMaxExperts)
      fail("a MoE operation cannot be sized for {} rows, {} experts and {} picks", max_rows, max_experts, max_top_k);
    const auto picks = static_cast<size_t>(max_rows * max_top_k);
    logits = compute.allocate(static_cast<size_t>(max_rows * max_experts) * sizeof(float));
    ids = compute.allocate(picks * sizeof(int32_t));
    weights = compute.allocate(picks * sizeof(float));
    host_ids.resize(picks);
    host_weights.resize(picks);
    places.resize(picks);
    first_place.resize(static_cast<size_t>(max_experts) + 1);
    groups.reserve(static_cast<size_t>(max_experts));
  }

  void check(const MoeLayer& layer, const Tensor& x, const Tensor& out) const;
  void route(const MoeLayer& layer, const Tensor& x);
  void group_picks(const MoeLayer& layer);
  ExpertGroup group(const FetchedEntry& entry, const SliceOrder& order) const;
  void run_experts(const MoeLayer& layer, const LayerEntries& entries, const Tensor& x, const Tensor& out);

  Compute& compute;
  ExpertStore& store;
  int64_t max_rows;
  int max_experts, max_top_k;
  PickObserver observer = nullptr;
  void* observer_user = nullptr;
  Meters meters;

  std::unique_ptr<Buffer> logits, ids, weights;
  // Of the call in progress: views of the above, and the picks on the host.
  Tensor call_ids, call_weights;
  int64_t rows = 0, n_picks = 0;
  std::vector<int32_t> host_ids;
  std::vector<float> host_weights;   ///< filled for the observer only
  std::vector<PickPlace> places;     ///< grouped by expert, rows ascending
  std::vector<int32_t> first_place;  ///< expert e's places are [first_place[e], first_place[e + 1])
  std::vector<ExpertGroup> groups;
};

void MoeOperation::Impl::check(const MoeLayer& layer, const Tensor& x, const Tensor& out) const {
  const int64_t experts = layer.router.shape[1];
  if (x.rows() > max_rows || experts > max_experts || layer.route.top_k > max_top_k)
    fail("layer {}: {} rows, {} experts and {} picks are more than this MoE operation was sized for ({}, {}, {})",
         layer.layer, x.rows(), experts, layer.route.top_k, max_rows, max_experts, max_top_k);
  if (layer.route.top_k < 1 || layer.route.top_k > experts)
    fail("layer {}: cannot pick {} of {} experts", layer.layer, layer.route.top_k, experts);
  if (x.shape[0] != layer.ffn.columns || out.shape[0] != layer.ffn.columns || out.rows() != x.rows())
    fail("layer {}: the input [{}, {}] and output [{}, {}] of the MoE operation do not match a width of {}",
         layer.layer, x.shape[0], x.rows(), out.shape[0], out.rows(), layer.ffn.columns);
}

void MoeOperation::Impl::route(const MoeLayer& layer, const Tensor& x) {
  const int64_t experts = layer.router.shape[1];
  const int64_t top_k = layer.route.top_k;
  rows = x.rows();
  n_picks = rows * top_k;
  const Tensor scores = Tensor::packed(logits.get(), 0, TensorType::f32, {experts, rows, 1, 1});
  call_ids = Tensor::packed(ids.get(), 0, TensorType::i32, {top_k, rows, 1, 1});
  call_weights = Tensor::packed(weights.get(), 0, TensorType::f32, {top_k, rows, 1, 1});
  const MatmulTerm term{layer.router, scores, layer.router_bias};
  compute.matmul(x, std::span(&term, 1));
  compute.route(scores, layer.selection_bias, layer.route, call_ids, call_weights);
  compute.download(call_ids, host_ids.data());
  for (int64_t i = 0; i < n_picks; ++i) {
    const int32_t id = host_ids[static_cast<size_t>(i)];
    if (id < 0 || id >= experts)
      fail("layer {}: the router picked expert {} of {}; its logits are not numbers", layer.layer, id, experts);
  }
}

/// A counting sort of the picks by expert; rows stay ascending within one.
void MoeOperation::Impl::group_picks(const MoeLayer& layer) {
  const auto experts = static_cast<size_t>(layer.router.shape[1]);
  const auto top_k = static_cast<int64_t>(layer.route.top_k);
  std::fill_n(first_place.begin(), experts + 1, 0);
  for (int64_t i = 0; i < n_picks; ++i) ++first_place[static_cast<size_t>(host_ids[static_cast<size_t>(i)])];
  int32_t end = 0;
  for (size_t e = 0; e < experts; ++e) first_place[e] = end += first_place[e];
  first_place[experts] = end;
  // Filled from the back, each expert's mark walks from its end to its beginning.
  for (int64_t slot = n_picks - 1; slot >= 0; --slot) {
    const auto expert = static_cast<size_t>(host_ids[static_cast<size_t>(slot)]);
    places[static_cast<size_t>(--first_place[expert])] = {static_cast<int32_t>(slot / top_k),
                                                          static_cast<int32_t>(slot)};
  }
}

ExpertGroup MoeOperation::Impl::group(const FetchedEntry& entry, const SliceOrder& order) const {
  const auto slice = [&](int index) { return index < 0 ? nullptr : entry.slices[static_cast<size_t>(index)]; };
  const auto expert = static_cast<size_t>(entry.expert);
  const auto first = static_cast<size_t>(first_place[expert]);
  const auto end = static_cast<size_t>(first_place[expert + 1]);
  ExpertGroup result;
  result.expert = entry.expert;
  result.weights.gate = slice(order.gate);
  result.weights.up = slice(order.up);
  result.weights.down = slice(order.down);
  result.picks = std::span(places).subspan(first, end - first);
  return result;
}

void MoeOperation::Impl::run_experts(const MoeLayer& layer, const LayerEntries& entries, const Tensor& x,
                                     const Tensor& out) {
  const SliceOrder order = match_slices(entries, layer);
  Clock::time_point mark = Clock::now();
  const auto lap = [&mark](double& meter) {
    const Clock::time_point now = Clock::now();
    meter += seconds_between(mark, now);
    mark = now;
  };
  Lease lease =
      store.fetch(layer.layer, std::span(host_ids.data(), static_cast<size_t>(n_picks)), rows, FetchOrder::ascending);
  lap(meters.wait_seconds);
  compute.experts_begin(layer.ffn, x, call_weights);
  lap(meters.compute_seconds);
  std::vector<int> done;
  for (Ready ready = lease.next_ready(); ready; ready = lease.next_ready()) {
    groups.clear();
    done.clear();
    for (; ready; ready = lease.try_ready()) {
      groups.push_back(group(lease.entries()[static_cast<size_t>(ready.index)], order));
      done.push_back(ready.index);
    }
    lap(meters.wait_seconds);
    compute.experts_run(groups);
    for (const int index : done) lease.done(index);
    lap(meters.compute_seconds);
  }
  lap(meters.wait_seconds);
  compute.experts_finish(call_ids, out);
  lap(meters.compute_seconds);
}

MoeOperation::MoeOperation(Compute& compute, ExpertStore& store, int64_t max_rows, int max_experts, int max_top_k)
    : impl_(std::make_unique<Impl>(compute, store, max_rows, max_experts, max_top_k)) {}

MoeOperation::~MoeOperation() = default;

void MoeOperation::run(const MoeLayer& layer, const Tensor& x, const Tensor& out) {
  impl_->check(layer, x, out);
  const LayerEntries* entries = impl_->store.map().find(layer.layer);
  if (entries == nullptr || entries->n_expert != layer.router.shape[1])
    fail("layer {}: its router has {} experts, the store {}", layer.layer, layer.router.shape[1],
         entries == nullptr ? 0 : entries->n_expert);
  impl_->route(layer, x);
  impl_->meters.picks += static_cast<uint64_t>(impl_->n_picks);
  if (impl_->observer != nullptr) {
    const auto n = static_cast<size_t>(impl_->n_picks);
    impl_->compute.download(impl_->call_weights, impl_->host_weights.data());
    impl_->observer(impl_->observer_user, layer.layer, std::span(impl_->host_ids.data(), n),
                    std::span(impl_->host_weights.data(), n), impl_->rows);
  }
  impl_->group_picks(layer);
  impl_->run_experts(layer, *entries, x, out);
}

void MoeOperation::observe(PickObserver observer, void* user) {
  impl_->observer = observer;
  impl_->observer_user = user;
}

const MoeOperation::Meters& MoeOperation::meters() const {
  return impl_->meters;
}

void MoeOperation::reset_meters() {
  impl_->meters = {};
}

uint64_t MoeOperation::scratch_bytes() const {
  const Impl& i = *impl_;
  return i.logits->bytes() + i.ids->bytes() + i.weights->bytes() + i.host_ids.size() * sizeof(int32_t) +
         i.host_weights.size() * sizeof(float) + i.places.size() * sizeof(PickPlace);
}

}  // namespace moetier
