#include "compute/cpu/experts.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/error.h"
#include "compute/cpu/activation_rows.h"
#include "compute/cpu/dot.h"
#include "compute/cpu/expert_activation.h"
#include "compute/cpu/math.h"
#include "compute/cpu/operand.h"
#include "compute/cpu/share.h"
#include "compute/op_profile.h"

namespace moetier {
namespace {

using cpu::ActivationKinds;
using cpu::ActivationRows;
using cpu::ceil_div;
using cpu::FloatsIn;
using cpu::FloatsOut;
using cpu::IntsIn;

/// A chunk is some weight rows of one expert times all its picks, computed by so many rows at a time at most.
constexpr int64_t kMaxBlockRows = 64;
/// Groups of one call are taken together until they have this many picks: enough to keep all threads busy, and a bound
/// for the scratch between gate/up and down. A group with more picks is cut.
constexpr int64_t kBatchPicks = 512;
/// From so many picks an expert on, chunks are up to kMostTimes as long, as long as each thread has kChunksPerThread.
constexpr int64_t kManyPicks = 8, kMostTimes = 8, kChunksPerThread = 8;
/// Columns of a chunk when a batch is added to the sums.
constexpr int64_t kSumColumns = 128;

/// One projection's matrix for all experts of the pass, but for the address.
struct Projection {
  TensorType type = TensorType::f32;
  ActivationKind kind = ActivationKind::floats;
  DotFn dot = nullptr;
  int64_t columns = 0, rows = 0;
  size_t row_bytes = 0;

  /// `then`: what is read after it.
  WeightMatrix matrix(const std::byte* data, const std::byte* then) const {
    return {data, row_bytes, columns, rows, then};
  }
};

Projection make_projection(TensorType type, int64_t columns, int64_t rows, const DotTable& dots, const char* name) {
  if (!has_dot(type)) fail("experts: {} weights of type {} cannot be computed", name, type_name(type));
  if (columns % type_info(type).block_length != 0) {
    fail("experts: {} columns of {} are not whole blocks of {}", columns, name, type_name(type));
  }
  return {type, activation_kind(type), dots.of(type), columns, rows, row_bytes(type, columns)};
}

/// The address of a slice, checked.
const std::byte* slice(const std::byte* data, Layout layout, const Projection& projection, int32_t expert,
                       const char* name) {
  if (data == nullptr) fail("experts: expert {} has no {} weights", expert, name);
  if (layout != Layout::file) fail("experts: the {} weights of expert {} are in an unknown layout", name, expert);
  const size_t alignment =
      projection.kind == ActivationKind::floats ? type_info(projection.type).block_bytes : size_t{1};
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0) {
    fail("experts: the {} weights of expert {} do not begin at a multiple of {} bytes", name, expert, alignment);
  }
  return data;
}

}  // namespace

struct CpuExperts::Impl {
  Impl(ThreadPool& p, Isa i, int64_t chunk)
      : pool(p), rows_at_once(chunk), dots(dot_table(i)), ops(cpu::expert_ops(i)), inputs(p, i), hidden(p, i) {}

  /// An expert of the batch: where its weights and, in the order of all picks of the batch, its picks are.
  struct Group {
    const std::byte *gate, *up, *down;
    float gate_scale, up_scale, down_scale;
    std::span<const PickPlace> picks;
    int64_t first_pick;
    int32_t expert;
  };

  /// Takes an expert into batches, and computes those that are full.
  void add_group(const ExpertGroup& group, ExpertStage stage) {
    const ExpertWeights& w = group.weights;
    Group out{};
    out.expert = group.expert;
    if (has_biases && (group.expert < 0 || group.expert >= bias_experts))
      fail("experts: expert {} has no bias among {}", group.expert, bias_experts);
    if (stage != ExpertStage::last) {
      out.gate = slice(w.gate, w.gate_layout, gate, group.expert, ffn.fused ? "gate_up" : "gate");
      if (ffn.fused) out.up = out.gate + static_cast<size_t>(ffn.width) * gate.row_bytes;
      if (ffn.gated && !ffn.fused) out.up = slice(w.up, w.up_layout, up, group.expert, "up");
    }
    if (stage != ExpertStage::first) out.down = slice(w.down, w.down_layout, down, group.expert, "down");
    out.gate_scale = w.gate_scale;
    out.up_scale = w.up_scale;
    out.down_scale = w.down_scale;
    if (summing) {
      if (group.expert <= last_expert) {
        fail("experts: expert {} came after expert {}, but their sums need ascending order", group.expert, last_expert);
      }
      last_expert = group.expert;
    }
    for (const PickPlace& pick : group.picks) {
      if (pick.row < 0 || pick.row >= rows || pick.slot < 0 || pick.slot / top_k != pick.row) {
        fail("experts: expert {} has a pick of row {} in slot {}, outside {} rows of {} picks", group.expert, pick.row,
             pick.slot, rows, top_k);
      }
    }
    for (size_t begin = 0; begin < group.picks.size();) {
      const size_t room = static_cast<size_t>(kBatchPicks - batch_picks);
      out.picks = group.picks.subspan(begin, std::min(room, group.picks.size() - begin));
      out.first_pick = batch_picks;
      begin += out.picks.size();
      batch_picks += static_cast<int64_t>(out.picks.size());
      batch.push_back(out);
      if (batch_picks == kBatchPicks) run_batch(stage);
    }
  }

  /// Weight rows in a chunk. With many picks an expert, several times `rows_at_once`: its picks then stay in the cache
  /// from one block of weight rows to the next. Yet every thread shall find some chunks.
  int64_t chunk_rows(int64_t weight_rows) const {
    if (rows_at_once == 0) return std::clamp<int64_t>(ceil_div(weight_rows, pool.size()), 1, weight_rows);
    const auto groups = static_cast<int64_t>(batch.size());
    int64_t times = 1;
    if (batch_picks >= kManyPicks * groups) {
      times = weight_rows * groups / (rows_at_once * kChunksPerThread * pool.size());
    }
    return std::clamp<int64_t>(rows_at_once * std::clamp<int64_t>(times, 1, kMostTimes), 1, weight_rows);
  }

  void run_batch(ExpertStage stage) {
    if (batch_picks > 0) {
      if (stage != ExpertStage::last) {
        grow(h, batch_picks * ffn.width);
        const int terms = ffn.gated ? 2 : 1;
        const OpTimer timer(profile, {"experts gate, up", gate.type, ffn.columns, terms * ffn.width, terms},
                            ffn.gated ? batch_bytes(gate, up) : batch_bytes(gate));
        share_rows(ffn.width, [&](size_t g, int64_t first, int64_t last, int thread) {
          const bool ends = g >= last_group(thread);
          const std::byte* down_first = stage == ExpertStage::whole ? first_down(thread) : nullptr;
          gate_up(batch[g], ends ? Next{down_first, nullptr} : Next{batch[g + 1].gate, batch[g + 1].up}, first, last);
        });
      }
      if (stage == ExpertStage::first) {
        for_kept_rows([](float* kept, float* here, size_t n) { std::copy_n(here, n, kept); });
      } else {
        if (stage == ExpertStage::last) {
          grow(h, batch_picks * ffn.width);
          for_kept_rows([](const float* kept, float* here, size_t n) { std::copy_n(kept, n, here); });
        }
        run_down();
      }
    }
    batch.clear();
    batch_picks = 0;
  }

  void run_down() {
    const auto* bytes = reinterpret_cast<const std::byte*>(h.data());
    const FloatsIn h_rows{bytes, ffn.width, batch_picks, static_cast<size_t>(ffn.width) * sizeof(float)};
    ActivationKinds kinds;
    kinds.add(down.kind);
    hidden.encode(h_rows, kinds);
    picks_run += batch_picks;
    if (summing) grow(y, batch_picks * ffn.columns);
    const OpTimer timer(profile, {"experts down", down.type, ffn.width, ffn.columns, 1}, batch_bytes(down));
    share_rows(ffn.columns, [this](size_t g, int64_t first, int64_t last, int thread) {
      project_down(batch[g], g >= last_group(thread) ? nullptr : batch[g + 1].down, first, last);
    });
    if (summing) add_batch();
  }

  /// Bytes of weights that the batch reads.
  template <typename... P>
  uint64_t batch_bytes(const P&... projections) const {
    return batch.size() * (... + (projections.row_bytes * static_cast<uint64_t>(projections.rows)));
  }

  static void grow(std::vector<float>& scratch, int64_t floats) {
    if (scratch.size() < static_cast<size_t>(floats)) scratch.resize(static_cast<size_t>(floats));
  }

  /// Calls copy(kept, here, n) for the row of every pick of the batch, between the two stages.
  template <typename Copy>
  void for_kept_rows(Copy copy) {
    const auto n = static_cast<size_t>(ffn.width);
    for (const Group& group : batch) {
      for (size_t t = 0; t < group.picks.size(); ++t) {
        copy(kept_h.data() + static_cast<size_t>(group.picks[t].slot) * n,
             h.data() + (static_cast<size_t>(group.first_pick) + t) * n, n);
      }
    }
  }

  /// Adds the batch to the sums: experts and rows in ascending order, columns shared out.
  void add_batch() {
    pool.run(ceil_div(ffn.columns, kSumColumns), [&](int64_t chunk, int) {
      const int64_t first = chunk * kSumColumns, n = std::min(kSumColumns, ffn.columns - first);
      for (const Group& group : batch) {
        for (size_t t = 0; t < group.picks.size(); ++t) {
          const PickPlace pick = group.picks[t];
          const float weight = ffn.weigh_input ? 1.0f : weights.row(pick.row)[pick.slot % top_k];
          const float* from = y.data() + (group.first_pick + static_cast<int64_t>(t)) * ffn.columns + first;
          ops.add_weighted(weight, from, sums.row(pick.row) + first, n);
        }
      }
    });
  }

  /// The group in which a thread's share of a batch ends. It can only take later ones over from another.
  size_t last_group(int thread) const {
    const auto threads = static_cast<size_t>(pool.size());
    return (batch.size() * (static_cast<size_t>(thread) + 1) - 1) / threads;
  }
  /// Where a thread's share of down begins.
  const std::byte* first_down(int thread) const {
    const auto threads = static_cast<size_t>(pool.size()), at = batch.size() * static_cast<size_t>(thread);
    const size_t row = at % threads * static_cast<size_t>(ffn.columns) / threads;
    return batch[at / threads].down + row * down.row_bytes;
  }

  /// Calls body(group, first, last, thread) for chunks of `weight_rows` rows of every group in the batch.
  template <typename Body>
  void share_rows(int64_t weight_rows, Body body) {
    const int64_t per_chunk = chunk_rows(weight_rows);
    const int64_t chunks = ceil_div(weight_rows, per_chunk);
    pool.run(chunks * static_cast<int64_t>(batch.size()), [&](int64_t index, int thread) {
      const auto group = static_cast<size_t>(index / chunks);
      const int64_t begin = index % chunks * per_chunk, end = std::min(begin + per_chunk, weight_rows);
      for (int64_t row = begin; row < end; row += kMaxBlockRows)
        body(group, row, std::min(row + kMaxBlockRows, end), thread);
    });
  }

  /// What is read after an expert's gate and up; nullptr: not known.
  struct Next {
    const std::byte *gate, *up;
  };

  /// h of rows [first, last) (at most kMaxBlockRows) of gate and up, for all picks of the group.
  void gate_up(const Group& group, Next next, int64_t first, int64_t last) {
    const auto picks = static_cast<int64_t>(group.picks.size());
    float up_sums[kDotTile][kMaxBlockRows];
    for (int64_t begin = 0; begin < picks; begin += kDotTile) {
      const auto n = static_cast<int>(std::min<int64_t>(kDotTile, picks - begin));
      const std::byte *gate_x[kDotTile] = {}, *up_x[kDotTile] = {};
      float *gate_out[kDotTile] = {}, *up_out[kDotTile] = {};
      for (int t = 0; t < n; ++t) {
        const PickPlace pick = group.picks[static_cast<size_t>(begin + t)];
        const int32_t row = ffn.weigh_input ? pick.slot : pick.row;
        gate_x[t] = inputs.row(gate.kind, row);
        up_x[t] = inputs.row(up.kind, row);
        gate_out[t] = h.data() + (group.first_pick + begin + t) * ffn.width + first;
        up_out[t] = up_sums[t];
      }
      gate.dot(gate.matrix(group.gate, next.gate), first, last, gate_x, gate_out, n);
      if (ffn.gated) up.dot(up.matrix(group.up, next.up), first, last, up_x, up_out, n);
      for (int t = 0; t < n; ++t) {
        if (group.gate_scale != 1.0f) cpu::scale_row(group.gate_scale, gate_out[t], last - first);
        add_bias(gate_bias, group.expert, first, last, gate_out[t]);
        if (!ffn.gated) {
          activate(gate_out[t], gate_out[t], gate_out[t], last - first);
          continue;
        }
        if (group.up_scale != 1.0f) cpu::scale_row(group.up_scale, up_sums[t], last - first);
        add_bias(up_bias, group.expert, first, last, up_out[t]);
        if (ffn.limit > 0.0f) limit(gate_out[t], up_sums[t], last - first);
        activate(gate_out[t], up_sums[t], gate_out[t], last - first);
      }
    }
  }

  void limit(float* gate_row, float* up_row, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) {
      gate_row[i] = num::at_most(ffn.limit, gate_row[i]);
      up_row[i] = num::within(ffn.limit, up_row[i]);
    }
  }

  /// y of rows [first, last) of down, for all picks of the group.
  void project_down(const Group& group, const std::byte* next, int64_t first, int64_t last) {
    const auto picks = static_cast<int64_t>(group.picks.size());
    for (int64_t begin = 0; begin < picks; begin += kDotTile) {
      const auto n = static_cast<int>(std::min<int64_t>(kDotTile, picks - begin));
      const std::byte* x[kDotTile] = {};
      float* out[kDotTile] = {};
      for (int t = 0; t < n; ++t) {
        x[t] = hidden.row(down.kind, group.first_pick + begin + t);
        const int64_t place = summing ? group.first_pick + begin + t : group.picks[static_cast<size_t>(begin + t)].slot;
        out[t] = y.data() + place * ffn.columns + first;
      }
      down.dot(down.matrix(group.down, next), first, last, x, out, n);
      for (int t = 0; t < n; ++t) {
        if (group.down_scale != 1.0f) cpu::scale_row(group.down_scale, out[t], last - first);
        add_bias(down_bias, group.expert, first, last, out[t]);
      }
    }
  }

  /// out += flush(rows [first, last) of the expert's bias), if there is one.
  void add_bias(const FloatsIn& bias, int32_t expert, int64_t first, int64_t last, float* out) const {
    if (bias.rows > 0) ops.add_weighted(1.0f, bias.row(expert) + first, out, last - first);
  }

  /// What each pick's expert is given where the weights multiply it: a row for each slot.
  FloatsIn weigh(const FloatsIn& input) {
    grow(weighed, rows * top_k * ffn.columns);
    const auto columns = static_cast<size_t>(ffn.columns);
    cpu::share(pool, rows * top_k, 2 * ffn.columns, [&](int64_t first, int64_t last, int) {
      for (int64_t slot = first; slot < last; ++slot) {
        const float* x = input.row(slot / top_k);
        const float weight = weights.row(slot / top_k)[slot % top_k];
        float* to = weighed.data() + static_cast<size_t>(slot) * columns;
        for (size_t c = 0; c < columns; ++c) to[c] = num::flush(weight * x[c]);
      }
    });
    return {reinterpret_cast<const std::byte*>(weighed.data()), ffn.columns, rows * top_k, columns * sizeof(float)};
  }

  /// An optional bias [length, experts].
  FloatsIn take_bias(const Tensor& bias, int64_t length, const char* name) {
    if (bias.empty()) return {};
    const FloatsIn in = cpu::floats_in(bias, {"experts", name});
    if (in.columns != length || (has_biases && in.rows != bias_experts))
      fail("experts: the {} of {} by {} does not fit {} experts of {}", name, in.columns, in.rows,
           has_biases ? bias_experts : in.rows, length);
    has_biases = true;
    bias_experts = in.rows;
    return in;
  }

  /// The weighted sum of one row over columns [first, last).
  void sum_row(const IntsIn& ids, int64_t row, float* out) const {
    std::fill_n(out, ffn.columns, 0.0f);
    const int32_t* experts = ids.row(row);
    const float* factors = weights.row(row);
    // The next pick is the one with the lowest (id, rank) above the last; top_k is small.
    int64_t last = -1;
    for (int64_t i = 0; i < top_k; ++i) {
      int64_t next = -1;
      for (int64_t rank = 0; rank < top_k; ++rank) {
        const bool later = last < 0 || experts[rank] > experts[last] || (experts[rank] == experts[last] && rank > last);
        if (later && (next < 0 || experts[rank] < experts[next])) next = rank;
      }
      ops.add_weighted(ffn.weigh_input ? 1.0f : factors[next], y.data() + (row * top_k + next) * ffn.columns, out,
                       ffn.columns);
      last = next;
    }
  }

  ThreadPool& pool;
  const int64_t rows_at_once;  ///< weight rows; 0 = an equal share for each thread
  OpProfile* profile = nullptr;
  const DotTable& dots;
  const cpu::ExpertOps& ops;
  ActivationRows inputs, hidden;

  // The pass.
  bool running = false;
  ExpertFfn ffn;
  Projection gate, up, down;
  cpu::ExpertActivationFn activate = nullptr;
  FloatsIn weights;
  FloatsIn gate_bias, up_bias, down_bias;  ///< without rows: none
  bool has_biases = false;
  int64_t bias_experts = 0;
  int64_t rows = 0, top_k = 0;
  bool summing = false;  ///< experts come in ascending order and are added to `sums`
  int32_t last_expert = -1;
  FloatsOut sums;
  std::vector<float> y;       ///< the experts' outputs: per slot, or when summing per pick of the batch
  int64_t picks_run = 0;      ///< whole, or in their last stage
  std::vector<float> kept_h;  ///< per slot, what goes into down, between the stages

  // The groups being computed.
  std::vector<Group> batch;
  int64_t batch_picks = 0;
  std::vector<float> h;        ///< per pick of the batch, what goes into down
  std::vector<float> weighed;  ///< per slot, the input times the pick's weight
};

CpuExperts::CpuExperts(ThreadPool& pool, Isa isa, int64_t chunk) : impl_(std::make_unique<Impl>(pool, isa, chunk)) {
  if (chunk < 0) usage_error("{} rows of an expert cannot be taken at once; choose 0 or more", chunk);
}
CpuExperts::~CpuExperts() = default;

void CpuExperts::begin(const ExpertFfn& ffn, const Tensor& x, const Tensor& weights, const Tensor& sums) {
  Impl& impl = *impl_;
  impl.running = false;
  impl.batch.clear();
  impl.batch_picks = 0;
  const FloatsIn input = cpu::floats_in(x, {"experts", "x"});
  impl.weights = cpu::floats_in(weights, {"experts", "the weights of picks"});
  if (ffn.columns < 1 || ffn.width < 1 || ffn.width > std::numeric_limits<int32_t>::max()) {
    fail("experts: {} columns and a width of {} are not possible", ffn.columns, ffn.width);
  }
  if (input.columns != ffn.columns) {
    fail("experts: x has {} columns, but the experts have {}", input.columns, ffn.columns);
  }
  if (impl.weights.rows != input.rows || impl.weights.columns < 1) {
    fail("experts: {} by {} weights of picks do not fit {} rows", impl.weights.columns, impl.weights.rows, input.rows);
  }
  impl.ffn = ffn;
  impl.rows = input.rows;
  impl.top_k = impl.weights.columns;
  impl.gate = make_projection(ffn.gate_type, ffn.columns, ffn.fused ? 2 * ffn.width : ffn.width, impl.dots, "gate");
  impl.up = ffn.fused || !ffn.gated ? impl.gate : make_projection(ffn.up_type, ffn.columns, ffn.width, impl.dots, "up");
  // Fused, up begins in the middle of the matrix: a slice of its own with `width` rows.
  if (ffn.fused) impl.gate.rows = impl.up.rows = ffn.width;
  impl.down = make_projection(ffn.down_type, ffn.width, ffn.columns, impl.dots, "down");
  impl.activate = impl.ops.of(ffn.activation);
  if (impl.activate == nullptr) fail("experts: the activation is not one of experts");
  if (ffn.limit > 0.0f && !ffn.gated) fail("experts: without a gate there is no limit");
  if (ffn.fused && !ffn.gated) fail("experts: without a gate there is nothing that it could be fused with");
  impl.has_biases = false;
  impl.gate_bias = impl.take_bias(ffn.gate_bias, ffn.width, "gate bias");
  impl.up_bias = impl.take_bias(ffn.up_bias, ffn.width, "up bias");
  impl.down_bias = impl.take_bias(ffn.down_bias, ffn.columns, "down bias");
  ActivationKinds kinds;
  kinds.add(impl.gate.kind);
  kinds.add(impl.up.kind);
  impl.inputs.encode(ffn.weigh_input ? impl.weigh(input) : input, kinds);
  impl.summing = !sums.empty();
  if (impl.summing) {
    impl.sums = cpu::floats_out(sums, {"experts", "the sums"});
    if (impl.sums.columns != ffn.columns || impl.sums.rows != impl.rows) {
      fail("experts: sums of {} by {} do not fit {} columns of {} rows", impl.sums.columns, impl.sums.rows, ffn.columns,
           impl.rows);
    }
    for (int64_t row = 0; row < impl.rows; ++row) std::fill_n(impl.sums.row(row), ffn.columns, 0.0f);
    impl.last_expert = -1;
  } else {
    // However the experts come, nothing has to grow later.
    const int64_t picks = impl.rows * impl.top_k;
    const int64_t at_once = std::min(picks, kBatchPicks);
    Impl::grow(impl.y, picks * ffn.columns);
    Impl::grow(impl.kept_h, picks * ffn.width);
    Impl::grow(impl.h, at_once * ffn.width);
    ActivationKinds down;
    down.add(impl.down.kind);
    impl.hidden.reserve(at_once, ffn.width, down);
    impl.batch.reserve(static_cast<size_t>(at_once));
  }
  impl.picks_run = 0;
  impl.running = true;
}

void CpuExperts::run(std::span<const ExpertGroup> groups, ExpertStage stage) {
  Impl& impl = *impl_;
  if (!impl.running) fail("experts: a group came before a pass was begun");
  if (impl.summing && stage != ExpertStage::whole) fail("experts: a pass with sums has no stages");
  for (const ExpertGroup& group : groups) impl.add_group(group, stage);
  impl.run_batch(stage);
}

void CpuExperts::profile(OpProfile* profile) {
  impl_->profile = profile;
}

void CpuExperts::finish(const Tensor& ids, const Tensor& out) {
  Impl& impl = *impl_;
  if (!impl.running) fail("experts: a pass was finished before it was begun");
  const IntsIn experts = cpu::ints_in(ids, {"experts", "ids"});
  const FloatsOut sums = cpu::floats_out(out, {"experts", "the output"});
  if (experts.columns != impl.top_k || experts.rows != impl.rows) {
    fail("experts: {} by {} ids do not fit {} picks of {} rows", experts.columns, experts.rows, impl.top_k, impl.rows);
  }
  if (sums.columns != impl.ffn.columns || sums.rows != impl.rows) {
    fail("experts: an output of {} by {} does not fit {} columns of {} rows", sums.columns, sums.rows, impl.ffn.columns,
         impl.rows);
  }
  if (impl.picks_run != impl.rows * impl.top_k) {
    fail("experts: a pass was finished with {} of its {} picks computed", impl.picks_run, impl.rows * impl.top_k);
  }
  impl.running = false;
  if (impl.summing) {
    if (sums.row(0) != impl.sums.row(0)) fail("experts: a pass was finished into another tensor than its sums");
    return;
  }
  cpu::share(impl.pool, impl.rows, impl.top_k * impl.ffn.columns, [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) impl.sum_row(experts, row, sums.row(row));
  });
}

}  // namespace moetier
