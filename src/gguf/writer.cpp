#include "gguf/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "gguf/cursor.h"
#include "gguf/parse.h"
#include "gguf/split.h"

namespace moetier {
namespace {

constexpr uint32_t kVersion = 3;
constexpr uint32_t kDefaultAlignment = 32;
constexpr int kMaxShards = 65535;  // split.count is a u16

uint64_t round_up(uint64_t n, uint64_t alignment) {
  return (n + alignment - 1) / alignment * alignment;
}

template <typename T>
void put(std::string& out, T number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof(T));
}

void put_string(std::string& out, std::string_view text) {
  put(out, static_cast<uint64_t>(text.size()));
  out.append(text);
}

void put_array(std::string& out, const GgufArray& array, int depth) {
  if (depth > kMaxArrayDepth) fail("cannot write a GGUF array nested deeper than {} arrays", kMaxArrayDepth);
  if (array.elements.index() != static_cast<size_t>(array.element_type)) {
    fail("cannot write a GGUF array whose element type {} is not that of its elements",
         gguf_type_name(array.element_type));
  }
  put(out, static_cast<uint32_t>(array.element_type));
  put(out, array.size());
  std::visit(
      [&](const auto& elements) {
        using Element = typename std::decay_t<decltype(elements)>::value_type;
        for (const auto& element : elements) {
          if constexpr (std::is_same_v<Element, std::string>) {
            put_string(out, element);
          } else if constexpr (std::is_same_v<Element, bool>) {
            put(out, static_cast<uint8_t>(element ? 1 : 0));
          } else if constexpr (std::is_arithmetic_v<Element>) {
            put(out, element);
          } else {
            put_array(out, *element, depth + 1);
          }
        }
      },
      array.elements);
}

void put_value(std::string& out, const GgufValue& value) {
  put(out, static_cast<uint32_t>(gguf_type(value)));
  std::visit(
      [&](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::string>) {
          put_string(out, v);
        } else if constexpr (std::is_same_v<T, bool>) {
          put(out, static_cast<uint8_t>(v ? 1 : 0));
        } else if constexpr (std::is_arithmetic_v<T>) {
          put(out, v);
        } else {
          put_array(out, *v, 1);
        }
      },
      value);
}

template <typename T>
GgufValue array_of(GgufType type, std::vector<T> values) {
  auto array = std::make_shared<GgufArray>();
  array->element_type = type;
  array->elements = std::move(values);
  return std::shared_ptr<const GgufArray>(std::move(array));
}

/// Bytes of a tensor of that shape; what a reader would refuse is an error.
uint64_t checked_bytes(const std::string& name, TensorType type, const std::vector<int64_t>& shape) {
  const TypeInfo& info = type_info(type);
  if (shape.empty() || shape.size() > 4)
    fail("cannot write tensor {}: it has {} dimensions, and 1 to 4 are allowed", quote(name), shape.size());
  int64_t elements = 1;
  for (const int64_t size : shape) {
    if (size < 1 || __builtin_mul_overflow(elements, size, &elements)) {
      fail("cannot write tensor {}: its shape ({}) is not of positive sizes that this machine can count", quote(name),
           fmt::join(shape, ", "));
    }
  }
  if (shape[0] % info.block_length != 0) {
    fail("cannot write tensor {} as {}: its row length {} is not a multiple of {}", quote(name), info.name, shape[0],
         info.block_length);
  }
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(elements / info.block_length),
                             static_cast<uint64_t>(info.block_bytes), &bytes)) {
    fail("cannot write tensor {}: its shape ({}) has more bytes than this machine can count", quote(name),
         fmt::join(shape, ", "));
  }
  return bytes;
}

void check_room(const std::string& path, uint64_t bytes) {
  std::error_code error;
  const auto folder = std::filesystem::absolute(path, error).parent_path();
  const auto space = std::filesystem::space(folder, error);
  if (error || space.available >= bytes) return;  // an error shows when the file is made
  fail("cannot write {}: it needs {}, and its file system has {} left", path, format_bytes(bytes),
       format_bytes(space.available));
}

}  // namespace

GgufWriter::GgufWriter(uint32_t alignment) : alignment_(alignment) {
  if (!std::has_single_bit(alignment))
    fail("cannot write a GGUF file with alignment {}: it must be a power of two", alignment);
}

void GgufWriter::set(const std::string& key, GgufValue value) {
  if (key.empty() || key.size() > kMaxKeyBytes)
    fail("cannot write a metadata key of {} bytes: 1 to {} are allowed", key.size(), kMaxKeyBytes);
  if (key.starts_with("split.")) return;
  if (key == "general.alignment") {
    const uint32_t* alignment = std::get_if<uint32_t>(&value);
    if (alignment == nullptr || !std::has_single_bit(*alignment))
      fail("cannot write general.alignment: it must be a u32 and a power of two");
    alignment_ = *alignment;
    return;
  }
  const auto at = std::ranges::find(metadata_, key, &std::pair<std::string, GgufValue>::first);
  if (at == metadata_.end()) {
    metadata_.emplace_back(key, std::move(value));
  } else {
    at->second = std::move(value);
  }
}

void GgufWriter::set_strings(const std::string& key, std::vector<std::string> values) {
  set(key, array_of(GgufType::string, std::move(values)));
}

void GgufWriter::set_ints(const std::string& key, std::vector<int32_t> values) {
  set(key, array_of(GgufType::i32, std::move(values)));
}

void GgufWriter::set_floats(const std::string& key, std::vector<float> values) {
  set(key, array_of(GgufType::f32, std::move(values)));
}

void GgufWriter::add_tensor(const std::string& name, TensorType type, std::vector<int64_t> shape,
                            std::function<void(const Sink&)> produce) {
  const uint64_t bytes = checked_bytes(name, type, shape);
  add({name, type, std::move(shape), bytes, std::move(produce)});
}

void GgufWriter::add_tensor(const std::string& name, TensorType type, std::vector<int64_t> shape,
                            std::vector<std::byte> data) {
  const uint64_t bytes = checked_bytes(name, type, shape);
  if (data.size() != bytes)
    fail("cannot write tensor {}: its shape wants {} bytes, and {} were given", quote(name), bytes, data.size());
  add({name, type, std::move(shape), bytes,
       [held = std::move(data)](const Sink& sink) { sink(held.data(), held.size()); }});
}

void GgufWriter::add(Tensor tensor) {
  if (tensor.name.empty() || tensor.name.size() > kMaxTensorNameBytes) {
    fail("cannot write tensor {}: a name has 1 to {} bytes", quote(tensor.name), kMaxTensorNameBytes);
  }
  if (!names_.insert(tensor.name).second) fail("cannot write tensor {} twice", quote(tensor.name));
  tensors_.push_back(std::move(tensor));
}

GgufWriter::Metadata GgufWriter::own_metadata() const {
  Metadata metadata = metadata_;
  if (alignment_ != kDefaultAlignment) metadata.emplace_back("general.alignment", alignment_);
  return metadata;
}

std::string GgufWriter::header(const Metadata& metadata, Range range) const {
  std::string out = "GGUF";
  put(out, kVersion);
  put(out, static_cast<uint64_t>(range.last - range.first));
  put(out, static_cast<uint64_t>(metadata.size()));
  for (const auto& [key, value] : metadata) {
    put_string(out, key);
    put_value(out, value);
  }
  uint64_t offset = 0;
  for (size_t i = range.first; i < range.last; ++i) {
    const Tensor& tensor = tensors_[i];
    put_string(out, tensor.name);
    put(out, static_cast<uint32_t>(tensor.shape.size()));
    for (const int64_t size : tensor.shape) put(out, size);
    put(out, static_cast<int32_t>(tensor.type));
    put(out, offset);
    offset += round_up(tensor.bytes, alignment_);
  }
  out.resize(round_up(out.size(), alignment_), '\0');
  return out;
}

uint64_t GgufWriter::file_bytes() const {
  uint64_t bytes = header(own_metadata(), {0, tensors_.size()}).size();
  for (const Tensor& tensor : tensors_) bytes += round_up(tensor.bytes, alignment_);
  return bytes;
}

void GgufWriter::write_file(const std::string& path, const Metadata& metadata, Range range, uint64_t& done,
                            uint64_t total, const Progress& progress) const {
  AtomicFile file(path);
  file.write(header(metadata, range));
  const std::string padding(alignment_, '\0');
  for (size_t i = range.first; i < range.last; ++i) {
    const Tensor& tensor = tensors_[i];
    uint64_t produced = 0;
    const Sink sink = [&](const void* data, size_t bytes) {
      if (bytes > tensor.bytes - produced)
        fail("cannot write {}: tensor {} was given more than its {} bytes", path, quote(tensor.name), tensor.bytes);
      file.write(data, bytes);
      produced += bytes;
      done += bytes;
      if (progress) progress(done, total);
    };
    tensor.produce(sink);
    if (produced != tensor.bytes) {
      fail("cannot write {}: tensor {} was given {} of its {} bytes", path, quote(tensor.name), produced, tensor.bytes);
    }
    file.write(padding.data(), round_up(tensor.bytes, alignment_) - tensor.bytes);
  }
  file.commit();
}

void GgufWriter::write(const std::string& path, const Progress& progress) const {
  check_room(path, file_bytes());
  uint64_t done = 0, total = 0;
  for (const Tensor& tensor : tensors_) total += tensor.bytes;
  write_file(path, own_metadata(), {0, tensors_.size()}, done, total, progress);
}

void GgufWriter::write_split(const std::string& prefix, int n_shards, const Progress& progress) const {
  if (n_shards < 1 || n_shards > kMaxShards)
    fail("cannot write {} in {} shards: 1 to {} are allowed", prefix, n_shards, kMaxShards);
  check_room(prefix, file_bytes());
  uint64_t done = 0, total = 0;
  for (const Tensor& tensor : tensors_) total += tensor.bytes;

  // Shard k ends where the running sum has reached (k + 1) / n of all bytes.
  std::vector<size_t> ends;
  size_t next = 0;
  uint64_t sum = 0;
  for (int k = 0; k < n_shards; ++k) {
    const double goal = static_cast<double>(total) * (k + 1) / n_shards;
    while (next < tensors_.size() && (k + 1 == n_shards || static_cast<double>(sum) < goal))
      sum += tensors_[next++].bytes;
    ends.push_back(next);
  }
  for (int k = n_shards - 1; k >= 0; --k) {
    Metadata metadata = own_metadata();
    if (k > 0) std::erase_if(metadata, [](const auto& pair) { return pair.first != "general.alignment"; });
    metadata.emplace_back("split.no", static_cast<uint16_t>(k));
    metadata.emplace_back("split.count", static_cast<uint16_t>(n_shards));
    metadata.emplace_back("split.tensors.count", static_cast<int32_t>(tensors_.size()));
    const auto at = static_cast<size_t>(k);
    write_file(split_path(prefix, k + 1, n_shards), metadata, {k == 0 ? 0 : ends[at - 1], ends[at]}, done, total,
               progress);
  }
}

}  // namespace moetier
