#include "model/weights.h"

#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <span>

#include "base/error.h"
#include "base/log.h"
#include "model/survey.h"
#include "quant/codec.h"

namespace moetier {
namespace {

std::string shape_text(const std::array<int64_t, 4>& shape) {
  size_t dims = shape.size();
  while (dims > 1 && shape[dims - 1] == 1) --dims;
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.begin() + static_cast<ptrdiff_t>(dims), ", "));
}

constexpr std::string_view kWeight = ".weight", kScale = ".scale", kInputScale = ".input_scale";

/// The name of a weight's companion.
std::string companion_name(std::string_view weight, std::string_view ending) {
  return fmt::format("{}{}", weight.substr(0, weight.size() - kWeight.size()), ending);
}

/// What the first byte of a type's data must be aligned to for whole numbers to be read there.
size_t element_alignment(TensorType type) {
  switch (type) {
    case TensorType::f32:
    case TensorType::i32:
      return sizeof(float);
    case TensorType::f16:
    case TensorType::bf16:
      return sizeof(uint16_t);
    default:
      return 1;
  }
}

}  // namespace

WeightBinder::WeightBinder(const GgufFile& file, Compute& compute)
    : file_(file), compute_(compute), architecture_(file.need_string("general.architecture")) {
  end_survey_of_keys();
}

std::string WeightBinder::problem(const std::string& name, const std::array<int64_t, 4>& shape,
                                  bool whole_numbers) const {
  const TensorInfo* info = file_.find_tensor(name);
  if (info == nullptr)
    return fmt::format("{}: tensor {} is missing; {} needs it with shape {}", file_.path(), name, architecture_,
                       shape_text(shape));
  const std::string& path = file_.shards()[static_cast<size_t>(info->shard)].path;
  if (info->shape != shape)
    return fmt::format("{}: tensor {} has shape {}, but {} needs {}", path, name, shape_text(info->shape),
                       architecture_, shape_text(shape));
  if (whole_numbers && info->type != TensorType::i32)
    return fmt::format("{}: tensor {} is of type {}, but {} needs i32", path, name, type_name(info->type),
                       architecture_);
  if (!whole_numbers && !type_info(info->type).computable)
    return fmt::format("{}: tensor {} is of type {}, which cannot be computed with", path, name, type_name(info->type));
  if (reinterpret_cast<uintptr_t>(file_.data(*info).data()) % element_alignment(info->type) != 0)
    return fmt::format(
        "{}: the data of tensor {} begins at byte {}, where {} cannot be read; write the file with an alignment of 32",
        path, name, info->offset, type_name(info->type));
  return "";
}

const TensorInfo* WeightBinder::checked(const std::string& name, const std::array<int64_t, 4>& shape,
                                        bool whole_numbers) {
  used_.insert(name);
  const std::string wrong = problem(name, shape, whole_numbers);
  if (wrong.empty()) return file_.find_tensor(name);
  fail_or_note(wrong);
  return nullptr;
}

Tensor WeightBinder::stand_in(std::array<int64_t, 4> shape) {
  dense_.buffers.push_back(compute_.allocate(sizeof(float)));
  return Tensor::packed(dense_.buffers.back().get(), 0, TensorType::f32, shape);
}

Tensor WeightBinder::bind_in_place(const TensorInfo& info) {
  const std::span<const std::byte> data = file_.data(info);
  dense_.buffers.push_back(compute_.wrap(data.data(), data.size()));
  dense_.bytes += info.bytes;
  return Tensor::packed(dense_.buffers.back().get(), 0, info.type, info.shape);
}

Tensor WeightBinder::matrix(const std::string& name, int64_t columns, int64_t rows) {
  return bind(name, {columns, rows, 1, 1});
}

Tensor WeightBinder::bind(const std::string& name, const std::array<int64_t, 4>& shape) {
  const TensorInfo* info = checked(name, shape);
  return info == nullptr ? stand_in(shape) : bind_in_place(*info);
}

Tensor WeightBinder::table(const std::string& name, int64_t columns, int64_t rows, int32_t most) {
  const TensorInfo* info = checked(name, {columns, rows, 1, 1}, true);
  if (info == nullptr) return stand_in({columns, rows, 1, 1});
  std::vector<int32_t> values(static_cast<size_t>(columns * rows));
  std::memcpy(values.data(), file_.data(*info).data(), values.size() * sizeof(int32_t));
  for (const int32_t value : values) {
    if (value < 0 || value > most)
      fail("{}: tensor {} holds {}, but its numbers are from 0 to {}", file_.path(), name, value, most);
  }
  return bind_in_place(*info);
}

Tensor WeightBinder::vector(const std::string& name, int64_t length) {
  return floats(name, length, 1);
}

Tensor WeightBinder::floats(const std::string& name, int64_t columns, int64_t rows) {
  const TensorInfo* info = checked(name, {columns, rows, 1, 1});
  if (info == nullptr) return stand_in({columns, rows, 1, 1});
  if (info->type == TensorType::f32) return bind_in_place(*info);
  std::vector<float> values(static_cast<size_t>(columns * rows));
  decode(info->type, file_.data(*info).data(), values.data(), columns * rows);
  dense_.bytes += info->bytes;
  return own(info->shape, values);
}

Tensor WeightBinder::own(std::array<int64_t, 4> shape, const std::vector<float>& values) {
  dense_.buffers.push_back(compute_.allocate(values.size() * sizeof(float)));
  const Tensor tensor = Tensor::packed(dense_.buffers.back().get(), 0, TensorType::f32, shape);
  compute_.upload(tensor, values.data());
  return tensor;
}

Tensor WeightBinder::transposed(const std::string& name, int64_t columns, int64_t rows, bool apart) {
  const TensorInfo* info =
      checked(name, apart ? std::array<int64_t, 4>{columns, 1, rows, 1} : std::array<int64_t, 4>{columns, rows, 1, 1});
  if (info == nullptr) return stand_in({rows, columns, 1, 1});
  std::vector<float> values(static_cast<size_t>(columns * rows)), turned(values.size());
  decode(info->type, file_.data(*info).data(), values.data(), columns * rows);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto column = i % static_cast<size_t>(columns), row = i / static_cast<size_t>(columns);
    turned[column * static_cast<size_t>(rows) + row] = values[i];
  }
  dense_.bytes += info->bytes;
  return own({rows, columns, 1, 1}, turned);
}

Tensor WeightBinder::constant(int64_t n, float value) {
  return own({n, 1, 1, 1}, std::vector<float>(static_cast<size_t>(n), value));
}

Tensor WeightBinder::matrix_if(const std::string& name, int64_t columns, int64_t rows) {
  return has(name) ? matrix(name, columns, rows) : Tensor{};
}

Tensor WeightBinder::vector_if(const std::string& name, int64_t length) {
  return has(name) ? vector(name, length) : Tensor{};
}

Tensor WeightBinder::stack(const std::string& name, int64_t columns, int64_t rows, int64_t count) {
  return bind(name, {columns, rows, count, 1});
}

TensorType WeightBinder::expert_stack(const std::string& name, int64_t columns, int64_t rows, int64_t experts) {
  const TensorInfo* info = checked(name, {columns, rows, experts, 1});
  return info == nullptr ? TensorType::f32 : info->type;
}

std::vector<float> WeightBinder::companion(std::string_view weight, int64_t length) {
  const std::string name = companion_name(weight, kScale);
  if (!has(name)) return {};
  const TensorInfo* info = checked(name, {length, 1, 1, 1});
  if (info == nullptr) return {};
  std::vector<float> values(static_cast<size_t>(length));
  decode(info->type, file_.data(*info).data(), values.data(), length);
  for (const float value : values) {
    if (!std::isfinite(value)) fail("{}: tensor {} holds {}, which is no scale", file_.path(), name, value);
  }
  return values;
}

float WeightBinder::scale(std::string_view weight) {
  const std::vector<float> values = companion(weight, 1);
  return values.empty() ? 1.0f : values[0];
}

std::vector<float> WeightBinder::expert_scales(std::string_view weight, int64_t experts) {
  return companion(weight, experts);
}

void WeightBinder::warn_unused(int layers) const {
  size_t unused = 0;
  std::string first;
  const auto is_companion = [this](std::string_view name, std::string_view ending) {
    if (!name.ends_with(ending)) return false;
    return used_.contains(fmt::format("{}{}", name.substr(0, name.size() - ending.size()), kWeight));
  };
  for (const TensorInfo& info : file_.tensors()) {
    if (used_.contains(info.name) || block_number(info.name) >= layers) continue;
    if (is_companion(info.name, kInputScale)) continue;  // for activations of 4 bits, which are not used here
    if (is_companion(info.name, kScale)) {
      fail_or_note(
          fmt::format("{}: tensor {} scales a weight; {} has no place for it", file_.path(), info.name, architecture_));
      continue;
    }
    if (note_ignored(info.name)) continue;
    if (unused++ == 0) first = info.name;
  }
  if (unused > 0)
    log::warn("{}: {} tensor(s) are not part of the {} graph and are ignored, the first is {}", file_.path(), unused,
              architecture_, first);
}

}  // namespace moetier
