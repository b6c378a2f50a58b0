#include "compute/cpu/blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "compute/cpu/math.h"
#include "compute/cpu/share.h"

namespace moetier::cpu {
namespace {

/// Heads of an item at most.
constexpr int64_t kItemHeads = 32;
/// Entries that are widened together: few enough to stay in the nearest cache.
constexpr int kWidened = 16;
/// Scores that a wave of rows may have: 4 MiB.
constexpr int64_t kWaveScores = int64_t{1} << 20;
/// Blocks whose scores a thread takes at once.
constexpr int64_t kScored = 256;

constexpr int64_t padded(int64_t width) {
  return ceil_div(width, kWidthStep) * kWidthStep;
}

template <typename T>
void grow(std::vector<T>& v, int64_t n) {
  if (v.size() < static_cast<size_t>(n)) v.resize(static_cast<size_t>(n));
}

void load_queries(const FloatsIn& q, int64_t first, int64_t n, int64_t width, float* to) {
  for (int64_t i = 0; i < n; ++i, to += width)
    std::fill(std::copy_n(q.row(first + i), q.columns, to), to + width, 0.0f);
}

/// Where the entry of a block stands.
const std::byte* entry_at(const BatchView& batch, const Pages<const std::byte>& pages, int64_t sequence, int64_t ratio,
                          int64_t entry) {
  const int64_t last_position = entry * ratio + ratio - 1;
  const int64_t page = batch.page(sequence, last_position / kPagePositions, pages.count);
  return pages.rows(page, 0) + static_cast<size_t>(entry % pages.positions) * pages.stride;
}

}  // namespace

struct BlockAttention::Work {
  float* queries = nullptr;
  float* scores = nullptr;
  float* widened = nullptr;
  AttentionStates block, running;
  const std::byte** places = nullptr;  ///< [kPagePositions]
};

struct BlockAttention::Attend {
  Attend(const Tensor& q_in, const BatchRows& rows, const KvLayer& kv, const AttentionParams& params_in,
         const Tensor& out_in);

  int64_t whole_blocks(int64_t row) const { return (batch.position(row) + 1) / params.ratio; }

  BatchView batch;
  AttentionParams params;
  Pages<const std::byte> window, blocks;
  FloatsIn q;
  FloatsOut out;
  IntsIn picks;
  bool picked = false;
  const float* sinks = nullptr;
  int64_t heads = 0, width = 0;  ///< width: padded
};

BlockAttention::Attend::Attend(const Tensor& q_in, const BatchRows& rows, const KvLayer& kv,
                               const AttentionParams& params_in, const Tensor& out_in)
    : batch(rows, "attention"), params(params_in) {
  const char* op = "attention";
  check_ratio(params.ratio, op);
  window = pages_in(kv.k, {op, "the layer's k"});
  blocks = pages_in(kv.blocks, {op, "the layer's blocks"}, entries_per_page(params.ratio));
  q = floats_in(q_in, {op, "q"});
  out = floats_out(out_in, {op, "out"});
  heads = q_in.shape[1];
  if (window.heads != 1 || blocks.heads != 1 || blocks.width != window.width)
    fail("{}: with blocks, positions and blocks have one key head of one width", op);
  require_shape(kv.v, kv.k.shape, {op, "the layer's v"});
  if (kv.v.buffer != kv.k.buffer || kv.v.offset != kv.k.offset) fail("{}: with blocks, values are the keys", op);
  require_shape(q_in, {window.width, heads, batch.count, 1}, {op, "q"});
  require_shape(out_in, q_in.shape, {op, "out"});
  if (params.window < 1 || params.chunk != 0) fail("{}: blocks are seen beside a window", op);
  picked = !params.picks.empty();
  if (picked) {
    picks = ints_in(params.picks, {op, "picks"});
    require_shape(params.picks, {params.picks.shape[0], batch.count, 1, 1}, {op, "picks"});
  }
  if (!params.sinks.empty()) {
    require_shape(params.sinks, {heads, 1, 1, 1}, {op, "sinks"});
    sinks = floats_in(params.sinks, {op, "sinks"}).row(0);
  }
  width = padded(window.width);
}

void BlockAttention::attend(const Tensor& q, const BatchRows& rows, const KvLayer& kv, const AttentionParams& params,
                            const Tensor& out) {
  const Attend call(q, rows, kv, params, out);
  if (call.batch.count == 0) return;
  const int64_t heads_per_item = std::min(kItemHeads, ceil_div(call.heads, call.batch.count < 4 ? pool_.size() : 1));
  const int64_t parts = ceil_div(call.heads, heads_per_item);
  const int64_t states = heads_per_item * (call.width + 2);
  const int64_t floats = padded(heads_per_item * (call.width + kPagePositions) + kWidened * call.width + 2 * states);
  grow(scratch_, floats * pool_.size());
  grow(places_, kPagePositions * pool_.size());
  int64_t seen = 0;
  for (int64_t r = 0; r < call.batch.count; ++r) {
    seen += std::min<int64_t>(params.window, call.batch.position(r) + 1);
    seen += call.picked ? std::min(call.picks.columns, call.whole_blocks(r)) : call.whole_blocks(r);
  }
  const int64_t cost = seen / call.batch.count * heads_per_item * call.width;
  share(pool_, call.batch.count * parts, cost, [&](int64_t first, int64_t last, int thread) {
    Work work;
    work.queries = scratch_.data() + static_cast<size_t>(floats * thread);
    work.scores = work.queries + heads_per_item * call.width;
    work.widened = work.scores + heads_per_item * kPagePositions;
    float* at = work.widened + kWidened * call.width;
    work.block = {at, at + heads_per_item, at + 2 * heads_per_item};
    at += states;
    work.running = {at, at + heads_per_item, at + 2 * heads_per_item};
    work.places = places_.data() + kPagePositions * thread;
    // The last rows see the most: they go first.
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = call.batch.count - 1 - i / parts, head = i % parts * heads_per_item;
      attend_item(call, row, head, std::min(heads_per_item, call.heads - head), work);
    }
  });
}

/// Blocks of 64 positions of the window, ascending, then the entries in groups of 64, then the sink.
void BlockAttention::attend_item(const Attend& call, int64_t row, int64_t first_head, int64_t heads,
                                 const Work& work) const {
  const int64_t position = call.batch.position(row), sequence = call.batch.sequence(row);
  load_queries(call.q, row * call.heads + first_head, heads, call.width, work.queries);
  bool begun = false;
  const auto take = [&](int first, int last) {
    one_block(call, work, heads, first, last);
    if (begun) {
      ops_.merge(work.running, work.block, heads, call.width);
    } else {
      std::copy_n(work.block.m, heads, work.running.m);
      std::copy_n(work.block.l, heads, work.running.l);
      std::copy_n(work.block.o, heads * call.width, work.running.o);
    }
    begun = true;
  };
  const int64_t oldest = std::max<int64_t>(0, position - call.params.window + 1);
  for (int64_t block = oldest / kPagePositions; block <= position / kPagePositions; ++block) {
    const int64_t start = block * kPagePositions;
    const std::byte* page = call.window.rows(call.batch.page(sequence, block, call.window.count), 0);
    const int64_t first = std::max<int64_t>(0, oldest - start), last = std::min(kPagePositions, position + 1 - start);
    for (int64_t j = first; j < last; ++j) work.places[j] = page + static_cast<size_t>(j) * call.window.stride;
    take(static_cast<int>(first), static_cast<int>(last));
  }
  const int64_t whole = call.whole_blocks(row), most = call.picked ? call.picks.columns : whole;
  const int32_t* picks = call.picked ? call.picks.row(row) : nullptr;
  int n = 0;
  for (int64_t i = 0; i < most; ++i) {
    const int64_t entry = picks == nullptr ? i : picks[i];
    if (entry < 0) break;
    if (entry >= whole)
      fail("attention: row {} at position {} picks block {}, of which it sees {}", row, position, entry, whole);
    work.places[n++] = entry_at(call.batch, call.blocks, sequence, call.params.ratio, entry);
    if (n < kPagePositions) continue;
    take(0, n);
    n = 0;
  }
  if (n > 0) take(0, n);
  if (call.sinks != nullptr) {
    std::copy_n(call.sinks + first_head, heads, work.block.m);
    std::fill_n(work.block.l, heads, 1.0f);
    std::fill_n(work.block.o, heads * call.width, 0.0f);
    ops_.merge(work.running, work.block, heads, call.width);
  }
  for (int64_t h = 0; h < heads; ++h)
    ops_.finish(work.running.o + h * call.width, work.running.l[h], call.out.columns,
                call.out.row(row * call.heads + first_head + h));
}

/// The states of the rows at work.places[first, last) alone.
void BlockAttention::one_block(const Attend& call, const Work& work, int64_t heads, int first, int last) const {
  const auto in_pieces = [&](auto body) {
    for (int from = first; from < last; from += kWidened) {
      const int to = std::min(last, from + kWidened);
      float* at = work.widened;
      for (int j = from; j < to; ++j, at += call.width)
        widen_row(row_ops_, call.window, work.places[j], call.width, at);
      body(BlockRows{reinterpret_cast<const std::byte*>(work.widened), static_cast<size_t>(call.width) * sizeof(float),
                     call.width, false},
           from, to);
    }
  };
  in_pieces([&](const BlockRows& keys, int from, int to) {
    ops_.scores(work.queries, heads, keys, from, to, call.params.scale, work.scores);
  });
  ops_.softmax(work.scores, heads, first, last, work.block.m, work.block.l);
  std::fill_n(work.block.o, heads * call.width, 0.0f);
  in_pieces([&](const BlockRows& values, int from, int to) {
    ops_.weigh(work.scores, heads, values, from, to, work.block.o);
  });
}

// --- the choice ---

struct BlockAttention::Choose {
  Choose(const BlockChoice& in_call, const BatchRows& rows, const Tensor& keys_in, const Tensor& picks_out)
      : in(in_call), batch(rows, "choose_blocks") {
    const char* op = "choose_blocks";
    check_ratio(in.ratio, op);
    keys = pages_in(keys_in, {op, "keys"}, entries_per_page(in.ratio));
    query = floats_in(in.query, {op, "query"});
    weights = floats_in(in.weights, {op, "weights"});
    picks = ints_out(picks_out, {op, "picks"});
    heads = in.query.shape[1];
    require_shape(in.query, {keys.width, heads, batch.count, 1}, {op, "query"});
    require_shape(in.weights, {heads, batch.count, 1, 1}, {op, "weights"});
    if (in.top_k < 1 || keys.heads != 1) fail("{}: {} blocks of {} heads cannot be chosen", op, in.top_k, keys.heads);
    require_shape(picks_out, {in.top_k, batch.count, 1, 1}, {op, "picks"});
    width = padded(keys.width);
  }
  int64_t whole_blocks(int64_t row) const { return (batch.position(row) + 1) / in.ratio; }

  const BlockChoice& in;
  BatchView batch;
  Pages<const std::byte> keys;
  FloatsIn query, weights;
  IntsOut picks;
  int64_t heads = 0, width = 0;
};

void BlockAttention::choose(const BlockChoice& in, const BatchRows& rows, const Tensor& keys, const Tensor& picks) {
  const Choose call(in, rows, keys, picks);
  int64_t most = 0;
  for (int64_t r = 0; r < call.batch.count; ++r) most = std::max(most, call.whole_blocks(r));
  most = std::max<int64_t>(most, 1);
  const int64_t wave = std::clamp<int64_t>(kWaveScores / most, 1, std::max<int64_t>(call.batch.count, 1));
  const int64_t parts = ceil_div(most, kScored);
  const int64_t floats = padded(call.heads * (call.width + kPagePositions) + kWidened * call.width);
  grow(scratch_, floats * pool_.size());
  grow(scores_, wave * most);
  grow(order_, most * pool_.size());
  for (int64_t start = 0; start < call.batch.count; start += wave) {
    const int64_t n = std::min(wave, call.batch.count - start);
    share(pool_, n * parts, std::min(most, kScored) * call.heads * call.width,
          [&](int64_t first, int64_t last, int thread) {
            float* queries = scratch_.data() + static_cast<size_t>(floats * thread);
            float* widened = queries + call.heads * call.width;
            float* head_scores = widened + kWidened * call.width;
            for (int64_t i = first; i < last; ++i) {
              const int64_t row = start + i / parts, from = i % parts * kScored, whole = call.whole_blocks(row);
              if (whole <= in.top_k || from >= whole) continue;  // all of them, whatever their scores
              load_queries(call.query, row * call.heads, call.heads, call.width, queries);
              score(call, row, from, std::min(whole, from + kScored), queries, widened, head_scores,
                    scores_.data() + (row - start) * most);
            }
          });
    share(pool_, n, most * 8, [&](int64_t first, int64_t last, int thread) {
      for (int64_t i = first; i < last; ++i)
        pick(call, start + i, scores_.data() + i * most, order_.data() + most * thread, call.picks.row(start + i));
    });
  }
}

/// Scores of entries [first_entry, last_entry) of a row.
void BlockAttention::score(const Choose& call, int64_t row, int64_t first_entry, int64_t last_entry,
                           const float* queries, float* widened, float* scores, float* to) const {
  const float* weights = call.weights.row(row);
  for (int64_t entry = first_entry; entry < last_entry; entry += kWidened) {
    const int64_t n = std::min<int64_t>(kWidened, last_entry - entry);
    for (int64_t j = 0; j < n; ++j)
      widen_row(row_ops_, call.keys,
                entry_at(call.batch, call.keys, call.batch.sequence(row), call.in.ratio, entry + j), call.width,
                widened + j * call.width);
    const BlockRows rows{reinterpret_cast<const std::byte*>(widened), static_cast<size_t>(call.width) * sizeof(float),
                         call.width, false};
    ops_.scores(queries, call.heads, rows, 0, static_cast<int>(n), 1.0f, scores);
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0.0f;
      for (int64_t h = 0; h < call.heads; ++h)
        sum = sum + (weights[h] * call.in.scale) * num::relu(scores[h * kPagePositions + j]);
      to[entry + j] = sum;
    }
  }
}

/// The best entries, ascending. A score that is no number counts as the lowest.
void BlockAttention::pick(const Choose& call, int64_t row, const float* scores, int32_t* order, int32_t* picks) const {
  const int64_t whole = call.whole_blocks(row), n = std::min(whole, call.in.top_k);
  for (int64_t e = 0; e < whole; ++e) order[e] = static_cast<int32_t>(e);
  if (n < whole) {
    const auto value = [&](int32_t e) {
      return std::isnan(scores[e]) ? -std::numeric_limits<float>::infinity() : scores[e];
    };
    std::nth_element(order, order + n, order + whole, [&](int32_t a, int32_t b) {
      const float x = value(a), y = value(b);
      return x > y || (x == y && a < b);
    });
    std::sort(order, order + n);
  }
  std::copy_n(order, n, picks);
  std::fill(picks + n, picks + call.in.top_k, -1);
}

}  // namespace moetier::cpu
