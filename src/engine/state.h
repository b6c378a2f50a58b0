// What a sequence remembers: KV in reference-counted pages, with fork, truncate, checkpoint, rollback, save and load.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compute/compute.h"
#include "model/hparams.h"

namespace moetier {

/// Pages of kPagePositions positions, each holding keys and values of all layers. A page id names the same place in every layer's
/// tensors. Memory is reserved at once and touched page by page.
class KvPool {
 public:
  /// type: f16 or f32. n_pages: capacity.
  KvPool(Compute& compute, const HParams& hparams, TensorType type, int32_t n_pages);
  ~KvPool();

  const std::vector<KvLayer>& layers() const;
  int32_t capacity() const;
  int32_t free_pages() const;
  uint64_t page_bytes() const;  ///< of one page over all layers, K and V
  uint64_t used_bytes() const;

  int32_t acquire();            ///< a free page with one reference; an error that says so if none is left
  void retain(int32_t page);
  void release(int32_t page);
  int references(int32_t page) const;
  void copy(int32_t from, int32_t to);  ///< all layers
  void download(int32_t page, std::vector<std::byte>& out) const;
  void upload(int32_t page, std::span<const std::byte> bytes);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// One sequence. Copying is fork(); pages are shared until written (a shared partial page is copied before it is appended to).
class SequenceState {
 public:
  explicit SequenceState(KvPool& pool) : pool_(&pool) {}
  ~SequenceState();
  SequenceState(SequenceState&& other) noexcept;
  SequenceState& operator=(SequenceState&& other) noexcept;
  SequenceState(const SequenceState&) = delete;
  SequenceState& operator=(const SequenceState&) = delete;

  int64_t length() const { return length_; }                  ///< positions held
  std::span<const int32_t> pages() const { return pages_; }
  SequenceState fork() const;
  void truncate(int64_t length);                              ///< keeps the first `length` positions
  /// Makes room for n more positions and returns the first of them; pages become writable. All or nothing.
  int64_t append(int64_t n);

  /// A point to return to; holding one keeps its pages alive.
  struct Checkpoint;
  std::shared_ptr<const Checkpoint> checkpoint() const;
  void rollback(const std::shared_ptr<const Checkpoint>& point);

  /// Bytes that load() accepts on a pool of the same model and type; little-endian. Bit-equal after load.
  std::string save() const;
  void load(std::string_view bytes);  ///< an error on anything that does not fit

 private:
  void clear();
  KvPool* pool_;
  std::vector<int32_t> pages_;
  int64_t length_ = 0;
};

}  // namespace moetier
