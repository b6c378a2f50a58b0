#include "engine/state_slots.h"

#include <limits>

#include "base/error.h"

namespace moetier {
namespace {

constexpr uint64_t kAlignment = 64;  // of each tensor in the buffer

uint64_t bytes_for(int64_t floats, int32_t slots) {
  const uint64_t bytes = static_cast<uint64_t>(floats) * static_cast<uint64_t>(slots) * sizeof(float);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t input_floats(const RecurrentShape& shape) {
  return shape.channels * shape.inputs;
}
int64_t state_floats(const RecurrentShape& shape) {
  return shape.state_width * shape.state_rows * shape.heads;
}

/// Calls visit(one slot of a tensor) for all tensors, in the order of layers.
template <typename Visit>
void for_each_part(const std::vector<RecurrentLayer>& layers, int32_t slot, Visit visit) {
  for (const RecurrentLayer& layer : layers) {
    for (const auto& [tensor, axis] : {std::pair{layer.inputs, size_t{2}}, std::pair{layer.state, size_t{3}}}) {
      if (tensor.empty()) continue;
      Tensor one = tensor;
      one.shape[axis] = 1;
      one.offset += static_cast<size_t>(slot) * one.bytes();
      visit(one);
    }
  }
}

}  // namespace

uint64_t StateSlots::bytes_of(const HParams& model) {
  uint64_t bytes = 0;
  for (const RecurrentShape& shape : model.recurrent) bytes += static_cast<uint64_t>(shape.floats()) * sizeof(float);
  return bytes;
}

StateSlots::StateSlots(Compute& compute, const HParams& hparams, int32_t capacity)
    : compute_(compute), layers_(static_cast<size_t>(hparams.layers)), bytes_(bytes_of(hparams)) {
  if (bytes_ == 0) return;
  if (capacity < 1)
    fail("{} slots for the states of recurrent layers are not enough: one or more are needed", capacity);
  if (static_cast<uint64_t>(capacity) > std::numeric_limits<size_t>::max() / 2 / bytes_)
    fail("{} states of recurrent layers of {} bytes are larger than any memory: choose fewer sequences", capacity,
         bytes_);
  uint64_t all = 0;
  for (const RecurrentShape& shape : hparams.recurrent)
    all += bytes_for(input_floats(shape), capacity) + bytes_for(state_floats(shape), capacity);
  buffer_ = compute.allocate(all);
  size_t offset = 0;
  const auto place = [&](int64_t floats, std::array<int64_t, 4> shape) {
    if (floats == 0) return Tensor{};
    const Tensor tensor = Tensor::packed(buffer_.get(), offset, TensorType::f32, shape);
    offset += bytes_for(floats, capacity);
    return tensor;
  };
  for (size_t i = 0; i < hparams.recurrent.size(); ++i) {
    const RecurrentShape& s = hparams.recurrent[i];
    layers_[i].inputs = place(input_floats(s), {s.channels, s.inputs, capacity, 1});
    layers_[i].state = place(state_floats(s), {s.state_width, s.state_rows, s.heads, capacity});
  }
  references_.assign(static_cast<size_t>(capacity), 0);
  free_.reserve(references_.size());
  for (int32_t slot = capacity - 1; slot >= 0; --slot) free_.push_back(slot);
}

void StateSlots::check(int32_t slot) const {
  if (slot < 0 || slot >= capacity()) fail("state slot {} does not exist: there are {}", slot, capacity());
  if (references_[static_cast<size_t>(slot)] == 0) fail("state slot {} is used after it was released", slot);
}

int32_t StateSlots::acquire() {
  if (free_.empty()) fail("there is no room for the state of recurrent layers: all {} slots are in use", capacity());
  const int32_t slot = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(slot)] = 1;
  return slot;
}

void StateSlots::retain(int32_t slot) {
  check(slot);
  ++references_[static_cast<size_t>(slot)];
}

void StateSlots::release(int32_t slot) {
  check(slot);
  if (--references_[static_cast<size_t>(slot)] == 0) free_.push_back(slot);
}

int StateSlots::references(int32_t slot) const {
  if (slot < 0 || slot >= capacity()) fail("state slot {} does not exist: there are {}", slot, capacity());
  return references_[static_cast<size_t>(slot)];
}

void StateSlots::download(int32_t slot, std::byte* to) const {
  check(slot);
  for_each_part(layers_, slot, [&](const Tensor& part) {
    compute_.download(part, to);
    to += part.bytes();
  });
}

void StateSlots::upload(int32_t slot, const std::byte* from) {
  check(slot);
  for_each_part(layers_, slot, [&](const Tensor& part) {
    compute_.upload(part, from);
    from += part.bytes();
  });
}

}  // namespace moetier
