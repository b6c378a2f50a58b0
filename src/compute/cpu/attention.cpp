#include "compute/cpu/attention.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "compute/cpu/share.h"

namespace moetier::cpu {
namespace {

/// States of an item at most: rows of its tile times heads.
constexpr int64_t kItemStates = 32;
constexpr int64_t kTileRows = 16;
/// Floats of partial sums in a wave of split blocks: 8 MiB.
constexpr int64_t kWaveFloats = int64_t{2} << 20;
/// Split blocks that there is room for from the start, where waves may be so long.
constexpr int64_t kRoomBlocks = 32;
/// From this many queries on, widening f16 rows once beats widening them in every kernel.
constexpr int64_t kWidenQueries = 12;
/// Positions that are widened together: few enough to stay in the nearest cache beside queries and sums.
constexpr int kWidenPositions = 16;
/// Queries that are merged together in a split call.
constexpr int64_t kMergeHeads = 4;

constexpr int64_t padded(int64_t width) {
  return ceil_div(width, kWidthStep) * kWidthStep;
}

template <typename T>
void grow(std::vector<T>& v, int64_t n) {
  if (v.size() < static_cast<size_t>(n)) v.resize(static_cast<size_t>(n));
}

/// Positions [first, last) of a block; {0, 0} if there are none.
struct Visible {
  int first = 0, last = 0;
  bool operator==(const Visible&) const = default;
  bool none() const { return first >= last; }
  Visible within(int from, int to) const {
    const Visible part{std::max(first, from), std::min(last, to)};
    return part.none() ? Visible{} : part;
  }
};

/// Calls body(first, last, value) for each longest run [first, last) of indices below n with one value.
template <typename ValueOf, typename Body>
void for_runs(int64_t n, ValueOf value_of, Body body) {
  for (int64_t first = 0; first < n;) {
    const auto value = value_of(first);
    int64_t last = first + 1;
    while (last < n && value_of(last) == value) ++last;
    body(first, last, value);
    first = last;
  }
}

/// States laid out as all m, all l, all o.
AttentionStates states_at(float* at, int64_t n) {
  return {at, at + n, at + 2 * n};
}
AttentionStates from_query(const AttentionStates& states, int64_t query, int64_t width) {
  return {states.m + query, states.l + query, states.o + query * width};
}
void copy_states(const AttentionStates& from, const AttentionStates& to, int64_t n, int64_t width) {
  std::copy_n(from.m, n, to.m);
  std::copy_n(from.l, n, to.l);
  std::copy_n(from.o, n * width, to.o);
}

}  // namespace

struct Attention::Call {
  Call(const Tensor& q_in, const BatchRows& rows, const KvLayer& kv, const AttentionParams& params_in,
       const Tensor& out_in);

  int64_t first_position(int64_t row) const {
    const int64_t position = batch.position(row);
    if (params.chunk > 0) return position / params.chunk * params.chunk;
    return params.window > 0 ? std::max<int64_t>(0, position - params.window + 1) : 0;
  }
  int64_t first_block(int64_t row) const { return first_position(row) / kPagePositions; }
  int64_t last_block(int64_t row) const { return batch.position(row) / kPagePositions; }
  bool sees(int64_t row, int64_t block) const { return first_block(row) <= block && block <= last_block(row); }
  Visible visible(int64_t row, int64_t block) const {
    if (!sees(row, block)) return {};
    const int64_t start = block * kPagePositions;
    return {static_cast<int>(std::max<int64_t>(0, first_position(row) - start)),
            static_cast<int>(std::min(kPagePositions, batch.position(row) + 1 - start))};
  }
  int64_t items() const { return tiles * kv_heads * parts; }
  int64_t states() const { return rows_per_tile * heads_per_item; }  ///< of an item, at most
  int64_t state_floats() const { return states() * (value_width + 2); }

  BatchView batch;
  AttentionParams params;
  Pages<const std::byte> keys, values;
  FloatsIn q;
  FloatsOut out;
  const float* sinks = nullptr;
  int64_t heads = 0, kv_heads = 0, group = 0;  ///< group: query heads per KV head
  int64_t key_width = 0, value_width = 0;      ///< padded
  int64_t cost = 0;                            ///< of the whole call, in share()'s measure
  int64_t first = 0, last = 0;                 ///< blocks that any row sees
  // The cut.
  int64_t heads_per_item = 1, parts = 1, rows_per_tile = 1, tiles = 0;
  bool split = false;
  int64_t wave_blocks = 0;
};

struct Attention::Item {
  Tile tile;
  int64_t kv_head = 0;
  int64_t first_head = 0, head_count = 0;  ///< query heads
};

Attention::Call::Call(const Tensor& q_in, const BatchRows& rows, const KvLayer& kv, const AttentionParams& params_in,
                      const Tensor& out_in)
    : batch(rows, "attention"), params(params_in) {
  const char* op = "attention";
  keys = pages_in(kv.k, {op, "the layer's k"});
  values = pages_in(kv.v, {op, "the layer's v"});
  require_shape(kv.v, {values.width, kPagePositions, keys.heads, keys.count}, {op, "the layer's v"});
  q = floats_in(q_in, {op, "q"});
  out = floats_out(out_in, {op, "out"});
  heads = q_in.shape[1];
  kv_heads = keys.heads;
  require_shape(q_in, {keys.width, heads, batch.count, 1}, {op, "q"});
  require_shape(out_in, {values.width, heads, batch.count, 1}, {op, "out"});
  if (kv_heads < 1 || heads < 1 || heads % kv_heads != 0 || keys.width < 1 || values.width < 1) {
    fail("{}: {} query heads of {} cannot share {} KV heads of {} and {}", op, heads, q.columns, kv_heads, keys.width,
         values.width);
  }
  if (!params.sinks.empty()) {
    require_shape(params.sinks, {heads, 1, 1, 1}, {op, "sinks"});
    sinks = floats_in(params.sinks, {op, "sinks"}).row(0);
  }
  if (params.window < 0) fail("{}: a window of {} positions is not possible", op, params.window);
  if (params.chunk < 0 || (params.chunk > 0 && params.window > 0))
    fail("{}: chunks of {} positions are not possible with a window of {}", op, params.chunk, params.window);
  group = heads / kv_heads;
  key_width = padded(keys.width);
  value_width = padded(values.width);
  first = batch.count > 0 ? first_block(0) : 0;
  for (int64_t r = 0; r < batch.count; ++r) {
    first = std::min(first, first_block(r));
    last = std::max(last, last_block(r));
    cost += (batch.position(r) + 1 - first_position(r)) * heads * (key_width + value_width) / 2;
  }
}

/// Tiles of neighbouring rows that belong to one sequence.
void Attention::make_tiles(Call& call) {
  tiles_.clear();
  for (int64_t r = 0; r < call.batch.count; ++r) {
    const bool joins = !tiles_.empty() && tiles_.back().count < call.rows_per_tile &&
                       call.batch.sequence(r) == call.batch.sequence(tiles_.back().first);
    if (!joins) tiles_.push_back({r, 0, call.first_block(r), call.last_block(r)});
    Tile& tile = tiles_.back();
    ++tile.count;
    tile.first_block = std::min(tile.first_block, call.first_block(r));
    tile.last_block = std::max(tile.last_block, call.last_block(r));
  }
  call.tiles = static_cast<int64_t>(tiles_.size());
}

void Attention::cut(Call& call) {
  const int64_t wanted = 2 * pool_.size();
  call.heads_per_item = std::min(call.group, kItemStates);
  call.rows_per_tile = std::clamp<int64_t>(kItemStates / call.heads_per_item, 1, kTileRows);
  make_tiles(call);
  call.parts = (call.group + call.heads_per_item - 1) / call.heads_per_item;
  if (pool_.size() == 1 || call.cost <= 2 * kChunkCost || call.items() >= wanted) return;
  const int64_t blocks = call.last - call.first + 1;
  if (blocks >= 4) {
    call.split = true;
    const int64_t per_block = call.items() * call.state_floats();
    call.wave_blocks = std::clamp<int64_t>(kWaveFloats / per_block, 1, blocks);
    return;
  }
  // A short context and few rows: each item takes fewer rows, then fewer heads.
  call.rows_per_tile = std::max<int64_t>(1, call.rows_per_tile * call.items() / wanted);
  make_tiles(call);
  if (call.items() >= wanted) return;
  call.heads_per_item = std::max<int64_t>(1, call.heads_per_item * call.items() / wanted);
  call.parts = (call.group + call.heads_per_item - 1) / call.heads_per_item;
}

Attention::Item Attention::item_at(const Call& call, int64_t index) const {
  // The last tiles see the most: they go first, so that no thread is left with one at the end.
  const int64_t per_tile = call.kv_heads * call.parts;
  Item item;
  item.tile = tiles_[static_cast<size_t>(call.tiles - 1 - index / per_tile)];
  item.kv_head = index % per_tile / call.parts;
  const int64_t skipped = index % call.parts * call.heads_per_item;
  item.first_head = item.kv_head * call.group + skipped;
  item.head_count = std::min(call.heads_per_item, call.group - skipped);
  return item;
}

void Attention::run(const Tensor& q, const BatchRows& rows, const KvLayer& kv, const AttentionParams& params,
                    const Tensor& out) {
  Call call(q, rows, kv, params, out);
  if (call.batch.count == 0) return;
  cut(call);
  make_scratch(call);
  if (call.split) {
    run_split(call);
  } else {
    run_whole(call);
  }
}

void Attention::make_scratch(const Call& call) {
  const int64_t per_query = call.key_width + kPagePositions + 2 * (call.value_width + 2);
  const int64_t floats = call.states() * per_query + kWidenPositions * std::max(call.key_width, call.value_width);
  scratch_stride_ = static_cast<size_t>(padded(floats));
  grow(scratch_, static_cast<int64_t>(scratch_stride_) * pool_.size());
  if (call.sinks == nullptr) return;
  grow(sink_, call.heads * (call.value_width + 2));
  const AttentionStates sink = states_at(sink_.data(), call.heads);
  std::copy_n(call.sinks, call.heads, sink.m);
  std::fill_n(sink.l, call.heads, 1.0f);
  std::fill_n(sink.o, call.heads * call.value_width, 0.0f);
}

Attention::Work Attention::work_of(const Call& call, int thread) {
  const int64_t n = call.states();
  Work work;
  work.queries = scratch_.data() + static_cast<size_t>(thread) * scratch_stride_;
  work.scores = work.queries + n * call.key_width;
  work.widened = work.scores + n * kPagePositions;
  float* states = work.widened + kWidenPositions * std::max(call.key_width, call.value_width);
  work.block = states_at(states, n);
  work.running = states_at(states + call.state_floats(), n);
  return work;
}

void Attention::load_queries(const Call& call, const Item& item, float* to) const {
  for (int64_t i = 0; i < item.tile.count; ++i) {
    for (int64_t h = 0; h < item.head_count; ++h, to += call.key_width) {
      const float* q = call.q.row((item.tile.first + i) * call.heads + item.first_head + h);
      std::fill(std::copy_n(q, call.q.columns, to), to + call.key_width, 0.0f);
    }
  }
}

/// Positions [first, last) of a head's rows in a page: in place, or widened and padded in scratch.
BlockRows Attention::load_rows(const Pages<const std::byte>& pages, const std::byte* page, int first, int last,
                               bool widen, float* scratch) const {
  const std::byte* from = page + static_cast<size_t>(first) * pages.stride;
  if (!widen) return {from, pages.stride, pages.width, pages.form == KvForm::f16};
  const int64_t width = padded(pages.width);
  float* to = scratch;
  for (int j = first; j < last; ++j, from += pages.stride, to += width) {
    if (pages.form == KvForm::f16) {
      row_ops_.from_f16(reinterpret_cast<const uint16_t*>(from), pages.width, to);
    } else if (pages.form == KvForm::q8_0) {
      row_ops_.from_q8_0(from, pages.width, to);
    } else {
      std::memcpy(to, from, static_cast<size_t>(pages.width) * sizeof(float));
    }
    std::fill(to + pages.width, to + width, 0.0f);
  }
  return {reinterpret_cast<const std::byte*>(scratch), static_cast<size_t>(width) * sizeof(float), width, false};
}

/// The states of one block alone for an item's queries; those of rows that do not see the block are left undefined.
void Attention::one_block(const Call& call, const Item& item, int64_t block, const Work& work,
                          const AttentionStates& states) const {
  const int64_t page = call.batch.page(call.batch.sequence(item.tile.first), block, call.keys.count);
  const int64_t heads = item.head_count, rows = item.tile.count, queries = rows * heads;
  const auto visible = [&](int64_t i) { return call.visible(item.tile.first + i, block); };
  Visible any{static_cast<int>(kPagePositions), 0};
  for (int64_t i = 0; i < rows; ++i) {
    const Visible seen = visible(i);
    if (!seen.none()) any = {std::min(any.first, seen.first), std::max(any.last, seen.last)};
  }
  // body(rows of keys or values, first, last) for all positions that any row sees.
  const auto in_pieces = [&](const Pages<const std::byte>& pages, auto body) {
    const bool widen = pages.width % kWidthStep != 0 || pages.form == KvForm::q8_0 ||
                       (pages.form == KvForm::f16 && queries >= kWidenQueries);
    const int step = widen ? kWidenPositions : static_cast<int>(kPagePositions);
    const std::byte* from = pages.rows(page, item.kv_head);
    for (int first = any.first; first < any.last; first += step) {
      const int last = std::min(any.last, first + step);
      body(load_rows(pages, from, first, last, widen, work.widened), first, last);
    }
  };
  in_pieces(call.keys, [&](const BlockRows& keys, int first, int last) {
    ops_.scores(work.queries, queries, keys, first, last, call.params.scale, work.scores);
  });
  for_runs(rows, visible, [&](int64_t from, int64_t to, Visible seen) {
    if (seen.none()) return;
    const AttentionStates own = from_query(states, from * heads, call.value_width);
    ops_.softmax(work.scores + from * heads * kPagePositions, (to - from) * heads, seen.first, seen.last, own.m, own.l);
  });
  std::fill_n(states.o, queries * call.value_width, 0.0f);
  in_pieces(call.values, [&](const BlockRows& values, int first, int last) {
    const auto part = [&](int64_t i) { return visible(i).within(first, last); };
    for_runs(rows, part, [&](int64_t from, int64_t to, Visible seen) {
      if (seen.none()) return;
      BlockRows rest = values;
      rest.first += static_cast<size_t>(seen.first - first) * values.stride;
      ops_.weigh(work.scores + from * heads * kPagePositions, (to - from) * heads, rest, seen.first, seen.last,
                 states.o + from * heads * call.value_width);
    });
  });
}

/// Results of `heads` heads of a row from `first_head` on. A sink is one block more, after all others.
void Attention::finish(const Call& call, const AttentionStates& states, int64_t row, int64_t first_head,
                       int64_t heads) {
  if (call.sinks != nullptr) {
    const AttentionStates sink = states_at(sink_.data(), call.heads);
    ops_.merge(states, from_query(sink, first_head, call.value_width), heads, call.value_width);
  }
  for (int64_t h = 0; h < heads; ++h) {
    ops_.finish(states.o + h * call.value_width, states.l[h], call.out.columns,
                call.out.row(row * call.heads + first_head + h));
  }
}

void Attention::run_whole(const Call& call) {
  const int64_t items = call.items();
  share(pool_, items, call.cost / items, [&](int64_t first, int64_t last, int thread) {
    for (int64_t i = first; i < last; ++i) whole_item(call, item_at(call, i), thread);
  });
}

void Attention::whole_item(const Call& call, const Item& item, int thread) {
  const Work work = work_of(call, thread);
  const int64_t heads = item.head_count, width = call.value_width;
  enum class Part : uint8_t { none, first, later };
  load_queries(call, item, work.queries);
  for (int64_t block = item.tile.first_block; block <= item.tile.last_block; ++block) {
    const auto part = [&](int64_t i) {
      const int64_t row = item.tile.first + i;
      if (!call.sees(row, block)) return Part::none;
      return block == call.first_block(row) ? Part::first : Part::later;
    };
    one_block(call, item, block, work, work.block);
    for_runs(item.tile.count, part, [&](int64_t from, int64_t to, Part which) {
      const AttentionStates running = from_query(work.running, from * heads, width);
      const AttentionStates next = from_query(work.block, from * heads, width);
      if (which == Part::first) copy_states(next, running, (to - from) * heads, width);
      if (which == Part::later) ops_.merge(running, next, (to - from) * heads, width);
    });
  }
  for (int64_t i = 0; i < item.tile.count; ++i) {
    finish(call, from_query(work.running, i * heads, width), item.tile.first + i, item.first_head, heads);
  }
}

void Attention::run_split(const Call& call) {
  const int64_t items = call.items();
  grow(running_, items * call.state_floats());
  // Room for a longer context at once, so that not every page's border needs more.
  const int64_t per_block = items * call.state_floats();
  grow(partials_, per_block * std::max(call.wave_blocks, std::min(kRoomBlocks, kWaveFloats / per_block)));
  const int64_t wanted_chunks = ceil_div(4 * pool_.size(), items);
  const int64_t chunk_blocks = ceil_div(call.wave_blocks, wanted_chunks);
  const int64_t block_cost = call.cost / (items * (call.last - call.first + 1));
  const int64_t units = items * call.rows_per_tile * ceil_div(call.heads_per_item, kMergeHeads);
  for (int64_t wave = call.first; wave <= call.last; wave += call.wave_blocks) {
    const int64_t wave_last = std::min(call.last, wave + call.wave_blocks - 1);
    const int64_t chunks = ceil_div(wave_last - wave + 1, chunk_blocks);
    share(pool_, items * chunks, block_cost * chunk_blocks, [&](int64_t first, int64_t last, int thread) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t from = wave + i % chunks * chunk_blocks;
        split_item(call, i / chunks, from, std::min(wave_last, from + chunk_blocks - 1), wave, thread);
      }
    });
    share(pool_, units, (wave_last - wave + 1) * kMergeHeads * call.value_width, [&](int64_t first, int64_t last, int) {
      for (int64_t unit = first; unit < last; ++unit) merge_wave(call, unit, wave, wave_last);
    });
  }
}

void Attention::split_item(const Call& call, int64_t index, int64_t first_block, int64_t last_block, int64_t wave_first,
                           int thread) {
  const Item item = item_at(call, index);
  const Work work = work_of(call, thread);
  load_queries(call, item, work.queries);
  const int64_t from = std::max(first_block, item.tile.first_block), to = std::min(last_block, item.tile.last_block);
  for (int64_t block = from; block <= to; ++block) {
    float* at = partials_.data() + (index * call.wave_blocks + block - wave_first) * call.state_floats();
    one_block(call, item, block, work, states_at(at, call.states()));
  }
}

/// A unit is some heads of one row of an item.
void Attention::merge_wave(const Call& call, int64_t unit, int64_t wave_first, int64_t wave_last) {
  const int64_t per_row = ceil_div(call.heads_per_item, kMergeHeads), width = call.value_width;
  const int64_t index = unit / (call.rows_per_tile * per_row), i = unit / per_row % call.rows_per_tile;
  const Item item = item_at(call, index);
  const int64_t first_head = unit % per_row * kMergeHeads;
  if (i >= item.tile.count || first_head >= item.head_count) return;
  const int64_t heads = std::min(kMergeHeads, item.head_count - first_head);
  const int64_t row = item.tile.first + i, query = i * item.head_count + first_head;
  const auto states = [&](float* at) { return from_query(states_at(at, call.states()), query, width); };
  const AttentionStates running = states(running_.data() + index * call.state_floats());
  const int64_t from = std::max(wave_first, call.first_block(row)), to = std::min(wave_last, call.last_block(row));
  for (int64_t block = from; block <= to; ++block) {
    const AttentionStates next =
        states(partials_.data() + (index * call.wave_blocks + block - wave_first) * call.state_floats());
    if (block == call.first_block(row)) {
      copy_states(next, running, heads, width);
    } else {
      ops_.merge(running, next, heads, width);
    }
  }
  if (wave_first <= call.last_block(row) && call.last_block(row) <= wave_last) {
    finish(call, running, row, item.first_head + first_head, heads);
  }
}

}  // namespace moetier::cpu
