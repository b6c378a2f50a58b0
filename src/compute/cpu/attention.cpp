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
/// From this many queries on, widening an f16 block once beats widening it for each.
constexpr int64_t kWidenUsers = 3;

int64_t round_up8(int64_t n) {
  return (n + 7) / 8 * 8;
}

template <typename T>
void grow(std::vector<T>& v, int64_t n) {
  if (v.size() < static_cast<size_t>(n)) v.resize(static_cast<size_t>(n));
}

struct Visible {
  int first, last;  ///< positions [first, last) of a block
};

}  // namespace

struct Attention::Call {
  Call(const Tensor& q_in, const BatchRows& rows, const KvLayer& kv, const AttentionParams& params_in,
       const Tensor& out_in);

  int64_t first_position(int64_t row) const {
    const int64_t position = batch.position(row);
    return params.window > 0 ? std::max<int64_t>(0, position - params.window + 1) : 0;
  }
  int64_t first_block(int64_t row) const { return first_position(row) / kPagePositions; }
  int64_t last_block(int64_t row) const { return batch.position(row) / kPagePositions; }
  bool sees(int64_t row, int64_t block) const { return first_block(row) <= block && block <= last_block(row); }
  Visible visible(int64_t row, int64_t block) const {
    const int64_t start = block * kPagePositions;
    return {static_cast<int>(std::max<int64_t>(0, first_position(row) - start)),
            static_cast<int>(std::min(kPagePositions, batch.position(row) + 1 - start))};
  }
  int64_t items() const { return tiles * kv_heads * parts; }

  BatchView batch;
  AttentionParams params;
  Pages<const std::byte> keys, values;
  FloatsIn q;
  FloatsOut out;
  int64_t heads = 0, kv_heads = 0, group = 0;  ///< group: query heads per KV head
  int64_t key_width = 0, value_width = 0;      ///< rounded up to 8
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
  if (params.window < 0) fail("{}: a window of {} positions is not possible", op, params.window);
  group = heads / kv_heads;
  key_width = round_up8(keys.width);
  value_width = round_up8(values.width);
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
    const int64_t per_block = call.batch.count * call.heads * call.value_width;
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
  const int64_t per_thread = kPagePositions * (call.key_width + call.value_width) + call.key_width + call.value_width;
  scratch_stride_ = static_cast<size_t>((per_thread + 15) / 16 * 16);
  grow(scratch_, static_cast<int64_t>(scratch_stride_) * pool_.size());
  if (call.split) {
    run_split(call);
  } else {
    run_whole(call);
  }
}

/// Positions [first, last) of a block for the kernels: in place, or widened and padded to a multiple of 8 in scratch.
BlockRows Attention::load_rows(const Pages<const std::byte>& pages, int64_t page, int64_t head, int first, int last,
                               bool widen, float* scratch) const {
  const std::byte* from = pages.rows(page, head);
  const int64_t padded = round_up8(pages.width);
  if (padded == pages.width && !(pages.half && widen)) return {from, pages.stride, padded, pages.half};
  for (int j = first; j < last; ++j) {
    const std::byte* row = from + static_cast<size_t>(j) * pages.stride;
    float* to = scratch + j * padded;
    if (pages.half) {
      row_ops_.from_f16(reinterpret_cast<const uint16_t*>(row), pages.width, to);
    } else {
      std::memcpy(to, row, static_cast<size_t>(pages.width) * sizeof(float));
    }
    std::fill(to + pages.width, to + padded, 0.0f);
  }
  return {reinterpret_cast<const std::byte*>(scratch), static_cast<size_t>(padded) * sizeof(float), padded, false};
}

Attention::KeysAndValues Attention::load_block(const Call& call, const Item& item, int64_t block, int thread) {
  const int64_t page = call.batch.page(call.batch.sequence(item.tile.first), block, call.keys.count);
  int first = static_cast<int>(kPagePositions), last = 0;
  int64_t users = 0;
  for (int64_t r = item.tile.first; r < item.tile.first + item.tile.count; ++r) {
    if (!call.sees(r, block)) continue;
    const Visible seen = call.visible(r, block);
    first = std::min(first, seen.first);
    last = std::max(last, seen.last);
    users += item.head_count;
  }
  const bool widen = users >= kWidenUsers;
  float* keys = thread_scratch(thread);
  float* values = keys + kPagePositions * call.key_width;
  return {load_rows(call.keys, page, item.kv_head, first, last, widen, keys),
          load_rows(call.values, page, item.kv_head, first, last, widen, values)};
}

/// The query of a (row, head) pair, padded if the kernels need it.
const float* Attention::query(const Call& call, int64_t pair, int thread) {
  const float* q = call.q.row(pair);
  if (call.key_width == call.q.columns) return q;
  float* padded = thread_scratch(thread) + kPagePositions * (call.key_width + call.value_width);
  std::copy_n(q, call.q.columns, padded);
  std::fill(padded + call.q.columns, padded + call.key_width, 0.0f);
  return padded;
}

void Attention::finish(const Call& call, const AttentionState& state, int64_t pair) const {
  ops_.finish(state, call.out.columns, call.out.row(pair));
}

void Attention::run_whole(const Call& call) {
  const int64_t states = call.rows_per_tile * call.heads_per_item;
  grow(states_, states * pool_.size());
  grow(sums_, states * pool_.size() * call.value_width);
  for (int64_t i = 0; i < states * pool_.size(); ++i) {
    states_[static_cast<size_t>(i)].o = sums_.data() + i * call.value_width;
  }
  const int64_t items = call.items();
  share(pool_, items, call.cost / items, [&](int64_t first, int64_t last, int thread) {
    for (int64_t i = first; i < last; ++i) whole_item(call, item_at(call, i), thread);
  });
}

void Attention::whole_item(const Call& call, const Item& item, int thread) {
  AttentionState* states = states_.data() + thread * call.rows_per_tile * call.heads_per_item;
  AttentionState next;
  next.o = thread_scratch(thread) + kPagePositions * (call.key_width + call.value_width) + call.key_width;
  for (int64_t block = item.tile.first_block; block <= item.tile.last_block; ++block) {
    const KeysAndValues kv = load_block(call, item, block, thread);
    for (int64_t i = 0; i < item.tile.count; ++i) {
      const int64_t row = item.tile.first + i;
      if (!call.sees(row, block)) continue;
      const Visible seen = call.visible(row, block);
      for (int64_t h = 0; h < item.head_count; ++h) {
        AttentionState& state = states[i * item.head_count + h];
        const bool starts = block == call.first_block(row);
        const float* q = query(call, row * call.heads + item.first_head + h, thread);
        ops_.block(q, kv.keys, kv.values, seen.first, seen.last, call.params.scale, starts ? state : next);
        if (!starts) ops_.merge(state, next, call.value_width);
      }
    }
  }
  for (int64_t i = 0; i < item.tile.count; ++i) {
    for (int64_t h = 0; h < item.head_count; ++h) {
      finish(call, states[i * item.head_count + h], (item.tile.first + i) * call.heads + item.first_head + h);
    }
  }
}

void Attention::run_split(const Call& call) {
  const int64_t pairs = call.batch.count * call.heads, width = call.value_width;
  grow(states_, pairs);
  grow(sums_, pairs * width);
  grow(partials_, pairs * call.wave_blocks);
  grow(partial_sums_, pairs * call.wave_blocks * width);
  for (int64_t i = 0; i < pairs; ++i) states_[static_cast<size_t>(i)].o = sums_.data() + i * width;
  for (int64_t i = 0; i < pairs * call.wave_blocks; ++i) {
    partials_[static_cast<size_t>(i)].o = partial_sums_.data() + i * width;
  }
  const int64_t items = call.items();
  const int64_t wanted_chunks = ceil_div(4 * pool_.size(), items);
  const int64_t chunk_blocks = ceil_div(call.wave_blocks, wanted_chunks);
  const int64_t block_cost = call.cost / (items * (call.last - call.first + 1));
  for (int64_t wave = call.first; wave <= call.last; wave += call.wave_blocks) {
    const int64_t wave_last = std::min(call.last, wave + call.wave_blocks - 1);
    const int64_t chunks = ceil_div(wave_last - wave + 1, chunk_blocks);
    share(pool_, items * chunks, block_cost * chunk_blocks, [&](int64_t first, int64_t last, int thread) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t from = wave + i % chunks * chunk_blocks;
        split_item(call, item_at(call, i / chunks), from, std::min(wave_last, from + chunk_blocks - 1), wave, thread);
      }
    });
    share(pool_, pairs, (wave_last - wave + 1) * width, [&](int64_t first, int64_t last, int) {
      for (int64_t pair = first; pair < last; ++pair) merge_wave(call, pair, wave, wave_last);
    });
  }
}

void Attention::split_item(const Call& call, const Item& item, int64_t first_block, int64_t last_block,
                           int64_t wave_first, int thread) {
  const int64_t from = std::max(first_block, item.tile.first_block), to = std::min(last_block, item.tile.last_block);
  for (int64_t block = from; block <= to; ++block) {
    const KeysAndValues kv = load_block(call, item, block, thread);
    for (int64_t row = item.tile.first; row < item.tile.first + item.tile.count; ++row) {
      if (!call.sees(row, block)) continue;
      const Visible seen = call.visible(row, block);
      for (int64_t h = 0; h < item.head_count; ++h) {
        const int64_t pair = row * call.heads + item.first_head + h;
        AttentionState& state = partials_[static_cast<size_t>(pair * call.wave_blocks + block - wave_first)];
        ops_.block(query(call, pair, thread), kv.keys, kv.values, seen.first, seen.last, call.params.scale, state);
      }
    }
  }
}

void Attention::merge_wave(const Call& call, int64_t pair, int64_t wave_first, int64_t wave_last) {
  const int64_t row = pair / call.heads;
  const int64_t from = std::max(wave_first, call.first_block(row)), to = std::min(wave_last, call.last_block(row));
  AttentionState& state = states_[static_cast<size_t>(pair)];
  for (int64_t block = from; block <= to; ++block) {
    const AttentionState& next = partials_[static_cast<size_t>(pair * call.wave_blocks + block - wave_first)];
    if (block == call.first_block(row)) {
      state.m = next.m;
      state.l = next.l;
      std::copy_n(next.o, call.value_width, state.o);
    } else {
      ops_.merge(state, next, call.value_width);
    }
  }
  if (wave_first <= call.last_block(row) && call.last_block(row) <= wave_last) finish(call, state, pair);
}

}  // namespace moetier::cpu
