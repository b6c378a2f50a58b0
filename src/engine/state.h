// What a sequence remembers: KV in reference-counted pages, the states of recurrent layers in reference-counted slots,
// with fork, truncate, checkpoint, rollback, save and load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compute/compute.h"
#include "engine/state_slots.h"
#include "model/hparams.h"

namespace moetier {

/// Pages of kPagePositions positions, each holding keys and values of all layers, and the slots of recurrent layers. A
/// page id names the same place in every layer's tensors. Memory is reserved at once and touched page by page. One
/// thread at a time, the sequences' calls included.
class KvPool {
 public:
  /// type: f16, q8_0 (heads of a multiple of 32) or f32. n_pages: capacity; n_slots: likewise, where the model has
  /// recurrent layers. Any other type, a model without attention, or a size past the address space is an error.
  KvPool(Compute& compute, const HParams& hparams, TensorType type, int32_t n_pages,
         int32_t n_slots = kSlotsPerSequence);
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  const std::vector<KvLayer>& layers() const;  ///< of layers that keep none, empty tensors
  /// What pages keep, in the order of layers: keys, values where they are not a part of the keys, keys of blocks of
  /// positions, and those by which blocks are chosen.
  const std::vector<Tensor>& stored() const;
  /// How many rows of a stored tensor the first `positions` positions of a sequence's page fill.
  int64_t rows_held(size_t side, int64_t page, int64_t positions) const;
  TensorType type() const;
  int32_t capacity() const;  ///< pages
  int32_t free_pages() const;
  uint64_t page_bytes() const;      ///< of one page over all layers, K and V; 0 without attention layers
  uint64_t used_bytes() const;      ///< of pages and slots that someone holds
  uint64_t reserved_bytes() const;  ///< of all pages and slots
  /// Tells models apart whose states have the same shape: a hash of what the hyperparameters say.
  uint64_t fingerprint() const;

  int32_t acquire();  ///< a free page with one reference; an error that says so if none is left
  void retain(int32_t page);
  void release(int32_t page);
  int references(int32_t page) const;
  void copy(int32_t from, int32_t to);  ///< all layers
  /// A page's bytes: of each stored() tensor its [width, 64 (or blocks), kv heads].
  void download(int32_t page, std::vector<std::byte>& out) const;
  void upload(int32_t page, std::span<const std::byte> bytes);

  /// The states of recurrent layers; none in models without.
  StateSlots& states();
  const StateSlots& states() const;

  /// Bytes that `model` needs per page, without making a pool: for sizing.
  static uint64_t page_bytes(const HParams& model, TensorType type);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Pages that hold `positions` positions.
constexpr int64_t pages_for(int64_t positions) {
  return positions / kPagePositions + (positions % kPagePositions != 0);
}

/// One sequence. Copying is fork(); pages are shared until written (a shared partial page is copied before it is
/// appended to). The pool must outlive its sequences and checkpoints. Every operation that fails leaves the sequence as
/// it was.
class SequenceState {
 public:
  explicit SequenceState(KvPool& pool) : pool_(&pool) {}
  ~SequenceState();
  SequenceState(SequenceState&& other) noexcept;
  SequenceState& operator=(SequenceState&& other) noexcept;
  SequenceState(const SequenceState&) = delete;
  SequenceState& operator=(const SequenceState&) = delete;

  const KvPool& pool() const { return *pool_; }
  int64_t length() const { return length_; }  ///< positions held
  std::span<const int32_t> pages() const { return pages_; }
  SequenceState fork() const;
  /// Keeps the first `length` positions, or fewer; tells how many. Fewer only in models with recurrent layers: these go
  /// back to a position whose state was kept. Such are 0, the position before the last append, and those where the last
  /// appends of several rows (prompts) ended.
  int64_t truncate(int64_t length);
  /// Makes room for n more positions and returns the first of them; pages become writable. All or nothing: an error
  /// says how many pages are missing.
  int64_t append(int64_t n);
  /// The slot of the state after the last position, which is computed by whoever appended it; -1 before the first, or
  /// without recurrent layers.
  int32_t slot() const { return slot_; }

  /// A point to return to; holding one keeps its pages alive.
  struct Checkpoint;
  std::shared_ptr<const Checkpoint> checkpoint() const;
  /// An error if the point is of another pool.
  void rollback(const std::shared_ptr<const Checkpoint>& point);

  /// Bytes that load() accepts on a pool of the same model and type; little-endian. They depend on nothing but what the
  /// positions hold, so saving what was loaded gives the same bytes. The layout stands in state_io.cpp.
  std::string save() const;
  /// The same in pieces, in order: for a file, with no more memory than a page takes. What `write` throws ends it.
  void save(const std::function<void(std::string_view)>& write) const;
  uint64_t saved_bytes() const;  ///< how many save() gives
  /// Replaces what the sequence holds. Old and new pages exist together for a moment; truncate(0) first where the pool
  /// is too small for that. Anything that does not fit (another model, type or version; truncated or altered bytes) is
  /// an error that says what.
  void load(std::string_view bytes);
  /// The same of `bytes` bytes that `read` brings, each time the next ones, into all of what it is given.
  void load(uint64_t bytes, const std::function<void(std::span<std::byte>)>& read);

 private:
  /// A state to which the sequence can be cut back.
  struct Kept {
    int64_t length = 0;
    int32_t slot = -1;
    bool after_prompt = false;  ///< after an append of several rows
  };
  static constexpr size_t kKeptPrompts = 2;

  void clear() noexcept;
  void drop_kept(size_t index) noexcept;
  void check_slot();
  void next_slot(int64_t rows);
  int64_t cut_state(int64_t length) noexcept;
  KvPool* pool_;
  std::vector<int32_t> pages_;
  int64_t length_ = 0;
  int32_t slot_ = -1;
  bool after_prompt_ = false;  ///< of the last position
  std::vector<Kept> kept_;     ///< ascending
};

}  // namespace moetier
