#include "moe/moe.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "moe/next_router.h"

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
        if (ffn.gated && !ffn.fused && same(slice, ffn.gate_type, ffn.columns, ffn.width)) order.gate = at;
        break;
      case Projection::up:
        if (!ffn.fused && up_form) (ffn.gated ? order.up : order.gate) = at;
        break;
      case Projection::down:
        if (same(slice, ffn.down_type, ffn.width, ffn.columns)) order.down = at;
        break;
    }
  }
  if (order.gate < 0 || order.down < 0 || (order.up < 0) != (ffn.fused || !ffn.gated))
    fail("the experts of layer {} in the store do not have the types and shapes that the model describes", layer.layer);
  return order;
}

}  // namespace

struct MoeOperation::Impl {
  Impl(Compute& compute_in, ExpertStore& store_in, int64_t most_rows, int most_experts, int most_picks)
      : compute(compute_in), store(store_in), max_experts(most_experts), max_top_k(most_picks) {
    if (max_top_k < 1 || max_top_k > max_experts || max_experts > kMaxExperts)
      fail("a MoE operation cannot be sized for {} experts and {} picks", max_experts, max_top_k);
    reserve(most_rows);
    first_place.resize(static_cast<size_t>(max_experts) + 1);
    begun.resize(static_cast<size_t>(max_experts));
    for (std::vector<ExpertGroup>* list : {&whole, &first, &last}) list->reserve(static_cast<size_t>(max_experts));
    done.reserve(static_cast<size_t>(max_experts));
    cold.reserve(static_cast<size_t>(max_top_k));
    kept_ids.reserve(static_cast<size_t>(max_top_k));
  }

  void reserve(int64_t rows_wanted) {
    if (rows_wanted < 1 || rows_wanted > kMaxRows) fail("a MoE operation cannot be sized for {} rows", rows_wanted);
    if (rows_wanted <= max_rows) return;
    const auto picks = static_cast<size_t>(rows_wanted * max_top_k);
    logits = compute.allocate(static_cast<size_t>(rows_wanted * max_experts) * sizeof(float));
    ids = compute.allocate(picks * sizeof(int32_t));
    weights = compute.allocate(picks * sizeof(float));
    host_ids.resize(picks);
    host_weights.resize(picks);
    places.resize(picks);
    max_rows = rows_wanted;  // last: an allocation may fail, and the request with it
  }

  void check(const MoeLayer& layer, const Tensor& x, const Tensor& router_in, const Tensor& out) const;
  void route(const MoeLayer& layer, const Tensor& x, const Tensor& chosen);
  void group_picks(const MoeLayer& layer);
  ExpertGroup group(const MoeLayer& layer, const FetchedEntry& entry, const SliceOrder& order) const;
  void change_picks(const MoeLayer& layer);
  bool find_cold_picks(const MoeLayer& layer);
  void drop_cold_picks();
  void run_experts(const MoeLayer& layer, const LayerEntries& entries, const Tensor& x, const Tensor& out);
  void take(const MoeLayer& layer, const Lease& lease, const SliceOrder& order, Ready ready);

  Compute& compute;
  ExpertStore& store;
  int64_t max_rows = 0;
  int max_experts, max_top_k;
  PickSource source = nullptr;
  void* source_user = nullptr;
  float drop_share = 0;
  const std::atomic<bool>* cancel = nullptr;
  PickObserver observer = nullptr;
  void* observer_user = nullptr;
  UseObserver use_observer = nullptr;
  void* use_observer_user = nullptr;
  Meters meters;
  std::unique_ptr<NextRouter> next_router;

  std::unique_ptr<Buffer> logits, ids, weights;
  // Of the call in progress: views of the above, and the picks on the host.
  Tensor call_ids, call_weights;
  int64_t rows = 0, n_picks = 0;
  std::vector<int32_t> host_ids;
  std::vector<float> host_weights;   ///< filled where somebody looks at them
  std::vector<uint8_t> cold;         ///< of a row's picks: 1 = dropped
  std::vector<int32_t> kept_ids;     ///< of a row with dropped picks: the others
  std::vector<PickPlace> places;     ///< grouped by expert, rows ascending
  std::vector<int32_t> first_place;  ///< expert e's places are [first_place[e], first_place[e + 1])
  // What is ready now, by stage.
  std::vector<ExpertGroup> whole, first, last;
  std::vector<uint8_t> begun;  ///< by place in the lease: the first stage was computed
  std::vector<int> done;
};

void MoeOperation::Impl::check(const MoeLayer& layer, const Tensor& x, const Tensor& router_in,
                               const Tensor& out) const {
  const int64_t experts = layer.router.shape[1];
  if (x.rows() > max_rows || experts > max_experts || layer.route.top_k > max_top_k)
    fail("layer {}: {} rows, {} experts and {} picks are more than this MoE operation was sized for ({}, {}, {})",
         layer.layer, x.rows(), experts, layer.route.top_k, max_rows, max_experts, max_top_k);
  if (layer.route.top_k < 1 || layer.route.top_k > experts)
    fail("layer {}: cannot pick {} of {} experts", layer.layer, layer.route.top_k, experts);
  for (const std::vector<float>* scales : {&layer.scales.gate, &layer.scales.up, &layer.scales.down}) {
    if (!scales->empty() && scales->size() != static_cast<size_t>(experts))
      fail("layer {}: {} scales do not fit {} experts", layer.layer, scales->size(), experts);
  }
  if (x.shape[0] != layer.ffn.columns || out.shape[0] != layer.ffn.columns || out.rows() != x.rows())
    fail("layer {}: the input [{}, {}] and output [{}, {}] of the MoE operation do not match a width of {}",
         layer.layer, x.shape[0], x.rows(), out.shape[0], out.rows(), layer.ffn.columns);
  if (router_in.shape[0] != layer.router.shape[0] || router_in.rows() != x.rows())
    fail("layer {}: the router's input [{}, {}] does not match {} rows and its width of {}", layer.layer,
         router_in.shape[0], router_in.rows(), x.rows(), layer.router.shape[0]);
}

void MoeOperation::Impl::route(const MoeLayer& layer, const Tensor& x, const Tensor& chosen) {
  const int64_t experts = layer.router.shape[1];
  const int64_t top_k = layer.route.top_k;
  rows = x.rows();
  n_picks = rows * top_k;
  const Tensor scores = Tensor::packed(logits.get(), 0, TensorType::f32, {experts, rows, 1, 1});
  call_ids = Tensor::packed(ids.get(), 0, TensorType::i32, {top_k, rows, 1, 1});
  call_weights = Tensor::packed(weights.get(), 0, TensorType::f32, {top_k, rows, 1, 1});
  const MatmulTerm term{layer.router, scores, layer.router_bias};
  compute.matmul(x, std::span(&term, 1));
  RouteParams params = layer.route;
  params.chosen = chosen;
  compute.route(scores, layer.selection_bias, params, call_ids, call_weights);
  compute.download(call_ids, host_ids.data());
  for (int64_t i = 0; i < n_picks; ++i) {
    const int32_t id = host_ids[static_cast<size_t>(i)];
    if (id < 0 || id >= experts)
      fail("layer {}: the router picked expert {} of {}; its logits are not numbers", layer.layer, id, experts);
  }
  change_picks(layer);
}

/// What others want of the picks: to replace them, to drop some, to look at them.
void MoeOperation::Impl::change_picks(const MoeLayer& layer) {
  if (source == nullptr && observer == nullptr && use_observer == nullptr && !(drop_share > 0)) return;
  const auto n = static_cast<size_t>(n_picks);
  const std::span<int32_t> host(host_ids.data(), n);
  const std::span<float> factors(host_weights.data(), n);
  compute.download(call_weights, factors.data());
  if (source != nullptr) {
    source(source_user, layer.layer, host, factors, rows);
    for (const int32_t id : host) {
      if (id < 0 || id >= layer.router.shape[1])
        fail("layer {}: expert {} was to be replayed, but there are {}", layer.layer, id, layer.router.shape[1]);
    }
  }
  const bool dropped = drop_share > 0 && rows == 1 && find_cold_picks(layer);
  if (observer != nullptr) {
    observer(observer_user,
             {layer.layer, rows, host, factors, dropped ? std::span<const uint8_t>(cold) : std::span<const uint8_t>()});
  }
  if (dropped) drop_cold_picks();
  if (use_observer != nullptr) use_observer(use_observer_user, layer.layer, dropped ? std::span(kept_ids) : host);
  if (source == nullptr && !dropped) return;
  compute.upload(call_ids, host.data());
  compute.upload(call_weights, factors.data());
}

/// Marks the picks to drop. True if there is one.
bool MoeOperation::Impl::find_cold_picks(const MoeLayer& layer) {
  const auto n = static_cast<size_t>(n_picks);
  const std::span<const float> factors(host_weights.data(), n);
  const auto heaviest = static_cast<size_t>(std::max_element(factors.begin(), factors.end()) - factors.begin());
  float sum = 0;
  for (const float w : factors) sum += w;
  const float least = drop_share * sum / static_cast<float>(n);
  cold.assign(n, 0);
  uint64_t dropped = 0;
  for (size_t i = 0; i < n; ++i) {
    if (i == heaviest || factors[i] >= least || store.holds(layer.layer, host_ids[i])) continue;
    cold[i] = 1;
    ++dropped;
  }
  meters.dropped += dropped;
  return dropped > 0;
}

/// A dropped pick counts for the heaviest one, with a weight of 0.
void MoeOperation::Impl::drop_cold_picks() {
  const auto n = static_cast<size_t>(n_picks);
  const std::span<int32_t> host(host_ids.data(), n);
  const std::span<float> factors(host_weights.data(), n);
  const auto heaviest = static_cast<size_t>(std::max_element(factors.begin(), factors.end()) - factors.begin());
  float sum = 0, kept = 0;
  for (const float w : factors) sum += w;
  kept_ids.clear();
  for (size_t i = 0; i < n; ++i) {
    if (cold[i] != 0) {
      host[i] = host[heaviest];
      factors[i] = 0;
    } else {
      kept_ids.push_back(host[i]);
    }
    kept += factors[i];
  }
  for (float& w : factors) w *= sum / kept;
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

ExpertGroup MoeOperation::Impl::group(const MoeLayer& layer, const FetchedEntry& entry, const SliceOrder& order) const {
  const auto slice = [&](int index) { return index < 0 ? nullptr : entry.slices[static_cast<size_t>(index)]; };
  const auto expert = static_cast<size_t>(entry.expert);
  const auto begin = static_cast<size_t>(first_place[expert]);
  const auto end = static_cast<size_t>(first_place[expert + 1]);
  ExpertGroup result;
  result.expert = entry.expert;
  result.weights.gate = slice(order.gate);
  result.weights.up = slice(order.up);
  result.weights.down = slice(order.down);
  const auto scale = [expert](const std::vector<float>& of) { return of.empty() ? 1.0f : of[expert]; };
  result.weights.gate_scale = scale(layer.scales.gate);
  result.weights.up_scale = scale(layer.scales.up);
  result.weights.down_scale = scale(layer.scales.down);
  result.picks = std::span(places).subspan(begin, end - begin);
  return result;
}

/// Puts what is ready into the list of its stage.
void MoeOperation::Impl::take(const MoeLayer& layer, const Lease& lease, const SliceOrder& order, Ready ready) {
  const auto i = static_cast<size_t>(ready.index);
  const ExpertGroup ready_group = group(layer, lease.entries()[i], order);
  if (!ready.complete) {
    first.push_back(ready_group);
    begun[i] = 1;
    return;
  }
  (begun[i] != 0 ? last : whole).push_back(ready_group);
  done.push_back(ready.index);
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
  // Few rows are computed as entries come and summed at the end; many walk the experts in order and are summed at once.
  const bool few = rows <= kSmallRows;
  Lease lease = store.fetch(layer.layer, std::span(host_ids.data(), static_cast<size_t>(n_picks)), rows,
                            few ? FetchOrder::any : FetchOrder::ascending);
  std::fill_n(begun.begin(), lease.entries().size(), uint8_t{0});
  lap(meters.wait_seconds);
  compute.experts_begin(layer.ffn, x, call_weights, few ? Tensor{} : out);
  lap(meters.compute_seconds);
  for (Ready ready = lease.next_ready(); ready; ready = lease.next_ready()) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) throw Cancelled();  // the lease ends the reads
    whole.clear();
    first.clear();
    last.clear();
    done.clear();
    for (; ready; ready = lease.try_ready()) take(layer, lease, order, ready);
    lap(meters.wait_seconds);
    if (!whole.empty()) compute.experts_run(whole, ExpertStage::whole);
    if (!first.empty()) compute.experts_run(first, ExpertStage::first);
    if (!last.empty()) compute.experts_run(last, ExpertStage::last);
    lap(meters.compute_seconds);
    for (const int index : done) lease.done(index);
  }
  lap(meters.wait_seconds);
  compute.experts_finish(call_ids, out);
  lap(meters.compute_seconds);
}

MoeOperation::MoeOperation(Compute& compute, ExpertStore& store, int64_t max_rows, int max_experts, int max_top_k)
    : impl_(std::make_unique<Impl>(compute, store, max_rows, max_experts, max_top_k)) {}

MoeOperation::~MoeOperation() = default;

void MoeOperation::run(const MoeLayer& layer, const Tensor& x, const Tensor& router_in, const Tensor& out,
                       const Tensor& chosen) {
  impl_->check(layer, x, router_in, out);
  const LayerEntries* entries = impl_->store.map().find(layer.layer);
  if (entries == nullptr || entries->n_expert != layer.router.shape[1])
    fail("layer {}: its router has {} experts, the store {}", layer.layer, layer.router.shape[1],
         entries == nullptr ? 0 : entries->n_expert);
  impl_->route(layer, router_in, chosen);
  if (impl_->next_router != nullptr) impl_->next_router->look(layer, router_in);
  impl_->meters.picks += static_cast<uint64_t>(impl_->n_picks);
  impl_->group_picks(layer);
  impl_->run_experts(layer, *entries, x, out);
}

void MoeOperation::cancel_on(const std::atomic<bool>* flag) {
  impl_->cancel = flag;
}

void MoeOperation::observe(PickObserver observer, void* user) {
  impl_->observer = observer;
  impl_->observer_user = user;
}

void MoeOperation::observe_use(UseObserver observer, void* user) {
  impl_->use_observer = observer;
  impl_->use_observer_user = user;
}

void MoeOperation::reserve(int64_t max_rows) {
  impl_->reserve(max_rows);
}

void MoeOperation::replace_picks(PickSource source, void* user) {
  impl_->source = source;
  impl_->source_user = user;
}

void MoeOperation::observe_guesses(GuessObserver observer, void* user, int width) {
  impl_->next_router =
      observer == nullptr ? nullptr : std::make_unique<NextRouter>(impl_->compute, observer, user, width);
}

void MoeOperation::drop_cold(float share) {
  if (!(share >= 0 && share <= 1)) fail("cold experts can be dropped below a share from 0 to 1, not {}", share);
  impl_->drop_share = share;
}

float MoeOperation::drop_share() const {
  return impl_->drop_share;
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
