#include <algorithm>
#include <limits>

#include "base/error.h"
#include "engine/state.h"

namespace moetier {
namespace {

constexpr size_t kAlignment = 64;  // of each tensor in the pool's buffer

uint64_t round_up(uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// One tensor that a layer stores in each page.
struct Side {
  int64_t length = 0;  ///< of a row
  int64_t ratio = 1;   ///< positions that a row stands for
  int64_t rows() const { return entries_per_page(ratio); }
};

/// Keys, values if they are not a part of the keys, keys of blocks, and those by which blocks are chosen.
std::vector<Side> stored_sides(const KvShape& shape) {
  if (shape.heads == 0) return {};
  std::vector<Side> sides{{shape.key_length}};
  if (!shape.latent) sides.push_back({shape.value_length});
  if (shape.ratio > 0) sides.push_back({shape.key_length, shape.ratio});
  if (shape.index_length > 0) sides.push_back({shape.index_length, shape.ratio});
  return sides;
}

/// Its bytes in one page.
uint64_t side_bytes(const KvShape& shape, TensorType type, const Side& side) {
  return static_cast<uint64_t>(row_bytes(type, side.length)) * static_cast<uint64_t>(side.rows()) *
         static_cast<uint64_t>(shape.heads);
}

class Fnv {
 public:
  void add(uint64_t value) {
    for (int i = 0; i < 8; ++i) byte(static_cast<uint8_t>(value >> (8 * i)));
  }
  void add(std::string_view text) {
    add(static_cast<uint64_t>(text.size()));
    for (const char c : text) byte(static_cast<uint8_t>(c));
  }
  uint64_t value() const { return hash_; }

 private:
  void byte(uint8_t b) { hash_ = (hash_ ^ b) * 0x100000001b3ull; }
  uint64_t hash_ = 0xcbf29ce484222325ull;
};

uint64_t fingerprint_of(const HParams& h) {
  Fnv fnv;
  fnv.add(h.architecture);
  fnv.add(h.name);
  for (const int64_t n :
       {h.width, static_cast<int64_t>(h.layers), h.vocab, h.ffn_width, static_cast<int64_t>(h.heads),
        static_cast<int64_t>(h.kv_heads), h.key_length, h.value_length, h.rope.dims, static_cast<int64_t>(h.experts),
        static_cast<int64_t>(h.top_k), h.expert_width, h.shared_width}) {
    fnv.add(static_cast<uint64_t>(n));
  }
  for (const KvShape& shape : h.kv_shapes) {
    for (const int64_t n : {shape.heads, shape.key_length, shape.value_length}) fnv.add(static_cast<uint64_t>(n));
    if (shape.latent) fnv.add(uint64_t{1});
    if (shape.ratio > 0) fnv.add(static_cast<uint64_t>(shape.ratio));
    if (shape.index_length > 0) fnv.add(static_cast<uint64_t>(shape.index_length));
  }
  for (const RecurrentShape& shape : h.recurrent) {
    for (const int64_t n : {shape.channels, shape.inputs, shape.state_width, shape.state_rows, shape.heads})
      fnv.add(static_cast<uint64_t>(n));
  }
  return fnv.value();
}

/// One page of a layer's tensor.
Tensor page_view(const Tensor& all, int32_t page) {
  Tensor one = all;
  one.shape[3] = 1;
  one.offset += static_cast<size_t>(page) * one.bytes();
  return one;
}

}  // namespace

struct KvPool::Impl {
  Compute* compute = nullptr;
  TensorType type = TensorType::f16;
  std::unique_ptr<Buffer> buffer;
  std::vector<KvLayer> layers;
  std::vector<Tensor> stored;
  std::vector<int64_t> ratios;
  std::vector<int32_t> references;  // by page
  std::vector<int32_t> free;        // the last is given next
  std::vector<std::byte> staging;   // one page of one tensor, for copy()
  uint64_t page_bytes = 0, fingerprint = 0;
  std::unique_ptr<StateSlots> states;

  void check(int32_t page) const {
    if (page < 0 || static_cast<size_t>(page) >= references.size()) {
      fail("KV page {} does not exist: the pool has {}", page, references.size());
    }
    if (references[static_cast<size_t>(page)] == 0) fail("KV page {} is used after it was released", page);
  }
};

uint64_t KvPool::page_bytes(const HParams& model, TensorType type) {
  if (type != TensorType::f16 && type != TensorType::f32 && type != TensorType::q8_0) {
    usage_error("the KV cache cannot hold {}: choose f16, q8_0 or f32", type_name(type));
  }
  if (model.layers < 1 || model.kv_heads < 1 || model.key_length < 1 || model.value_length < 1) {
    fail("the model has no attention layers with keys and values, so it has no KV cache to make");
  }
  const int64_t block = type_info(type).block_length;
  uint64_t bytes = 0;
  for (int i = 0; i < model.layers; ++i) {
    const KvShape shape = model.kv_shape(i);
    if (shape.key_length % block != 0 || shape.value_length % block != 0 || shape.index_length % block != 0) {
      usage_error(
          "a {} KV cache needs heads whose sizes are multiples of {}, and this model's keys have {} and its values "
          "{}: choose f16 or f32",
          type_name(type), block, shape.key_length, shape.value_length);
    }
    for (const Side& side : stored_sides(shape)) bytes += side_bytes(shape, type, side);
  }
  return bytes;
}

KvPool::KvPool(Compute& compute, const HParams& hparams, TensorType type, int32_t n_pages, int32_t n_slots)
    : impl_(std::make_unique<Impl>()) {
  Impl& pool = *impl_;
  pool.page_bytes = page_bytes(hparams, type);
  if (n_pages < 1) usage_error("a KV cache of {} pages cannot hold anything: it needs one or more", n_pages);
  const auto pages = static_cast<uint64_t>(n_pages);
  // Half the address space leaves room for the rounding below. Without attention layers a page has no bytes.
  if (pages > std::numeric_limits<size_t>::max() / 2 / std::max<uint64_t>(pool.page_bytes, 1)) {
    fail("a KV cache of {} pages of {} bytes is larger than any memory: choose a smaller context", pages,
         pool.page_bytes);
  }
  uint64_t all_bytes = 0, largest_page = 0;
  for (int i = 0; i < hparams.layers; ++i) {
    const KvShape shape = hparams.kv_shape(i);
    for (const Side& side : stored_sides(shape)) {
      const uint64_t page = side_bytes(shape, type, side);
      all_bytes += round_up(page * pages);
      largest_page = std::max(largest_page, page);
    }
  }
  pool.compute = &compute;
  pool.type = type;
  pool.fingerprint = fingerprint_of(hparams);
  pool.buffer = compute.allocate(all_bytes);
  size_t offset = 0;
  for (int i = 0; i < hparams.layers; ++i) {
    const KvShape shape = hparams.kv_shape(i);
    const size_t first = pool.stored.size();
    for (const Side& side : stored_sides(shape)) {
      pool.stored.push_back(
          Tensor::packed(pool.buffer.get(), offset, type, {side.length, side.rows(), shape.heads, n_pages}));
      pool.ratios.push_back(side.ratio);
      offset += round_up(side_bytes(shape, type, side) * pages);
    }
    KvLayer& layer = pool.layers.emplace_back();
    if (shape.heads == 0) continue;
    layer.k = pool.stored[first];
    size_t next = first + 1;
    layer.v = shape.latent ? layer.k.slice_columns(0, shape.value_length) : pool.stored[next++];
    if (shape.ratio > 0) layer.blocks = pool.stored[next++];
    if (shape.index_length > 0) layer.block_index = pool.stored[next];
  }
  pool.references.assign(pages, 0);
  pool.free.reserve(pages);
  for (int32_t page = n_pages - 1; page >= 0; --page) pool.free.push_back(page);
  pool.staging.resize(largest_page + kAlignment);
  pool.states = std::make_unique<StateSlots>(compute, hparams, n_slots);
}

KvPool::~KvPool() = default;

const std::vector<KvLayer>& KvPool::layers() const {
  return impl_->layers;
}
const std::vector<Tensor>& KvPool::stored() const {
  return impl_->stored;
}
int64_t KvPool::rows_held(size_t side, int64_t page, int64_t positions) const {
  const int64_t ratio = impl_->ratios[side], start = page * kPagePositions;
  return (start + positions) / ratio - start / ratio;
}
TensorType KvPool::type() const {
  return impl_->type;
}
int32_t KvPool::capacity() const {
  return static_cast<int32_t>(impl_->references.size());
}
int32_t KvPool::free_pages() const {
  return static_cast<int32_t>(impl_->free.size());
}
uint64_t KvPool::page_bytes() const {
  return impl_->page_bytes;
}
uint64_t KvPool::used_bytes() const {
  const StateSlots& states = *impl_->states;
  return static_cast<uint64_t>(capacity() - free_pages()) * impl_->page_bytes +
         static_cast<uint64_t>(states.capacity() - states.free()) * states.bytes();
}
uint64_t KvPool::reserved_bytes() const {
  return static_cast<uint64_t>(capacity()) * impl_->page_bytes +
         static_cast<uint64_t>(impl_->states->capacity()) * impl_->states->bytes();
}
StateSlots& KvPool::states() {
  return *impl_->states;
}
const StateSlots& KvPool::states() const {
  return *impl_->states;
}
uint64_t KvPool::fingerprint() const {
  return impl_->fingerprint;
}

int32_t KvPool::acquire() {
  if (impl_->free.empty())
    fail("the KV cache is full: all {} pages of {} positions are in use", capacity(), kPagePositions);
  const int32_t page = impl_->free.back();
  impl_->free.pop_back();
  impl_->references[static_cast<size_t>(page)] = 1;
  return page;
}

void KvPool::retain(int32_t page) {
  impl_->check(page);
  ++impl_->references[static_cast<size_t>(page)];
}

void KvPool::release(int32_t page) {
  impl_->check(page);
  if (--impl_->references[static_cast<size_t>(page)] == 0) impl_->free.push_back(page);
}

int KvPool::references(int32_t page) const {
  if (page < 0 || page >= capacity()) fail("KV page {} does not exist: the pool has {}", page, capacity());
  return impl_->references[static_cast<size_t>(page)];
}

void KvPool::copy(int32_t from, int32_t to) {
  impl_->check(from);
  impl_->check(to);
  for (const Tensor& side : impl_->stored) {
    impl_->compute->download(page_view(side, from), impl_->staging.data());
    impl_->compute->upload(page_view(side, to), impl_->staging.data());
  }
}

void KvPool::download(int32_t page, std::vector<std::byte>& out) const {
  impl_->check(page);
  out.resize(impl_->page_bytes);
  std::byte* to = out.data();
  for (const Tensor& side : impl_->stored) {
    const Tensor view = page_view(side, page);
    impl_->compute->download(view, to);
    to += view.bytes();
  }
}

void KvPool::upload(int32_t page, std::span<const std::byte> bytes) {
  impl_->check(page);
  if (bytes.size() != impl_->page_bytes) {
    fail("a KV page of this model has {} bytes, and {} were given", impl_->page_bytes, bytes.size());
  }
  const std::byte* from = bytes.data();
  for (const Tensor& side : impl_->stored) {
    const Tensor view = page_view(side, page);
    impl_->compute->upload(view, from);
    from += view.bytes();
  }
}

}  // namespace moetier
