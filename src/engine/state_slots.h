// The states of recurrent layers in reference-counted slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "compute/compute.h"
#include "model/hparams.h"

namespace moetier {

/// Slots that one sequence can use: the state that is being computed, the one before, and two that it can be cut back
/// to.
inline constexpr int32_t kSlotsPerSequence = 4;

/// Slots, each holding the state of all recurrent layers after some position of some sequence. A slot's number names
/// the same place in every layer's tensors. Memory is reserved at once and touched slot by slot. One thread at a time.
class StateSlots {
 public:
  /// A model without recurrent layers has no slots. A size past the address space is an error.
  StateSlots(Compute& compute, const HParams& hparams, int32_t capacity);

  const std::vector<RecurrentLayer>& layers() const { return layers_; }  ///< of other layers, empty tensors
  bool none() const { return references_.empty(); }
  int32_t capacity() const { return static_cast<int32_t>(references_.size()); }
  int32_t free() const { return static_cast<int32_t>(free_.size()); }
  uint64_t bytes() const { return bytes_; }  ///< of one slot over all layers

  int32_t acquire();  ///< a free slot with one reference, whose content is undefined; an error if none is left
  void retain(int32_t slot);
  void release(int32_t slot);
  int references(int32_t slot) const;
  /// A slot's bytes: layer by layer the inputs [channels, taps - 1] and the state [width, rows, heads].
  void download(int32_t slot, std::byte* to) const;
  void upload(int32_t slot, const std::byte* from);

  /// Bytes of one slot of `model`, without making any: for sizing.
  static uint64_t bytes_of(const HParams& model);

 private:
  void check(int32_t slot) const;
  Compute& compute_;
  std::unique_ptr<Buffer> buffer_;
  std::vector<RecurrentLayer> layers_;
  std::vector<int32_t> references_, free_;
  uint64_t bytes_ = 0;
};

}  // namespace moetier
