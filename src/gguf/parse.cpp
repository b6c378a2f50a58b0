#include "gguf/parse.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "base/error.h"
#include "gguf/cursor.h"

namespace moetier {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian and read in place");

constexpr uint64_t kDefaultAlignment = 32;
// The least a record can take. Metadata: length and one byte of key, type, one byte of value. Tensor: length and one
// byte of name, dimension count, one dimension, type, offset.
constexpr uint64_t kMinMetadataRecord = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorRecord = 8 + 1 + 4 + 8 + 4 + 8;

void check_magic(Cursor& cursor) {
  const auto magic = cursor.number<std::array<char, 4>>("magic");
  if (std::memcmp(magic.data(), "GGUF", 4) == 0) return;
  const std::string_view seen(magic.data(), 4);
  if (seen == "vers")
    cursor.refuse("magic", 0, "is \"vers\": this looks like a Git LFS pointer, fetch the model itself");
  cursor.refuse("magic", 0, fmt::format("is {} and not \"GGUF\": this is not a GGUF file", quote(seen)));
}

uint32_t read_version(Cursor& cursor) {
  const uint64_t at = cursor.offset();
  const auto version = cursor.number<uint32_t>("version");
  if (version != 0 && (version & 0xffffu) == 0) {
    cursor.refuse("version", at,
                  "is big-endian: files made for big-endian machines are not supported, convert the model again");
  }
  if (version == 1)
    cursor.refuse("version", at, "is 1: files of version 1 (2023) are no longer read, convert the model again");
  if (version < 2 || version > 3) {
    cursor.refuse("version", at, fmt::format("is {}, and only versions 2 and 3 are known", version));
  }
  return version;
}

GgufType read_type(Cursor& cursor, std::string_view field) {
  const uint64_t at = cursor.offset();
  const auto id = cursor.number<uint32_t>(field);
  const auto type = static_cast<GgufType>(id);
  if (gguf_type_min_bytes(type) == 0) cursor.refuse(field, at, fmt::format("is {}, which is no value type", id));
  return type;
}

bool read_bool(Cursor& cursor) {
  const uint64_t at = cursor.offset();
  const auto byte = cursor.number<uint8_t>("bool");
  if (byte > 1) cursor.refuse("bool", at, fmt::format("is {}, and only 0 and 1 are allowed", byte));
  return byte == 1;
}

template <typename T>
std::vector<T> read_numbers(Cursor& cursor, uint64_t count) {
  std::vector<T> values(count);
  cursor.copy(values.data(), count * sizeof(T), "array elements");
  return values;
}

/// `depth` counts the arrays around this one, itself included.
std::shared_ptr<const GgufArray> read_array(Cursor& cursor, int depth) {
  if (depth > kMaxArrayDepth) {
    cursor.refuse("array", cursor.offset(), fmt::format("is nested deeper than {} arrays", kMaxArrayDepth));
  }
  auto array = std::make_shared<GgufArray>();
  array->element_type = read_type(cursor, "element type");
  const uint64_t count = cursor.count("element count", gguf_type_min_bytes(array->element_type));
  switch (array->element_type) {
    case GgufType::u8:
      array->elements = read_numbers<uint8_t>(cursor, count);
      break;
    case GgufType::i8:
      array->elements = read_numbers<int8_t>(cursor, count);
      break;
    case GgufType::u16:
      array->elements = read_numbers<uint16_t>(cursor, count);
      break;
    case GgufType::i16:
      array->elements = read_numbers<int16_t>(cursor, count);
      break;
    case GgufType::u32:
      array->elements = read_numbers<uint32_t>(cursor, count);
      break;
    case GgufType::i32:
      array->elements = read_numbers<int32_t>(cursor, count);
      break;
    case GgufType::f32:
      array->elements = read_numbers<float>(cursor, count);
      break;
    case GgufType::u64:
      array->elements = read_numbers<uint64_t>(cursor, count);
      break;
    case GgufType::i64:
      array->elements = read_numbers<int64_t>(cursor, count);
      break;
    case GgufType::f64:
      array->elements = read_numbers<double>(cursor, count);
      break;
    case GgufType::boolean: {
      std::vector<bool> values(count);
      for (uint64_t i = 0; i < count; ++i) values[i] = read_bool(cursor);
      array->elements = std::move(values);
      break;
    }
    case GgufType::string: {
      std::vector<std::string> values;
      values.reserve(count);
      for (uint64_t i = 0; i < count; ++i) values.emplace_back(cursor.string("array string", UINT64_MAX));
      array->elements = std::move(values);
      break;
    }
    case GgufType::array: {
      std::vector<std::shared_ptr<const GgufArray>> values;
      values.reserve(count);
      for (uint64_t i = 0; i < count; ++i) values.push_back(read_array(cursor, depth + 1));
      array->elements = std::move(values);
      break;
    }
  }
  return array;
}

GgufValue read_value(Cursor& cursor, GgufType type) {
  switch (type) {
    case GgufType::u8:
      return cursor.number<uint8_t>("value");
    case GgufType::i8:
      return cursor.number<int8_t>("value");
    case GgufType::u16:
      return cursor.number<uint16_t>("value");
    case GgufType::i16:
      return cursor.number<int16_t>("value");
    case GgufType::u32:
      return cursor.number<uint32_t>("value");
    case GgufType::i32:
      return cursor.number<int32_t>("value");
    case GgufType::f32:
      return cursor.number<float>("value");
    case GgufType::boolean:
      return read_bool(cursor);
    case GgufType::string:
      return std::string(cursor.string("string value", UINT64_MAX));
    case GgufType::array:
      return read_array(cursor, 1);
    case GgufType::u64:
      return cursor.number<uint64_t>("value");
    case GgufType::i64:
      return cursor.number<int64_t>("value");
    case GgufType::f64:
      return cursor.number<double>("value");
  }
  fail("{}: internal: value type {} passed its check", cursor.file(), static_cast<uint32_t>(type));
}

/// Bytes to which tensor data and offsets are aligned.
uint64_t read_alignment(Cursor& cursor, const GgufValue& value, uint64_t at) {
  const uint32_t* alignment = std::get_if<uint32_t>(&value);
  if (alignment == nullptr) {
    cursor.refuse("alignment", at, fmt::format("has type {} and must have type u32", gguf_type_name(gguf_type(value))));
  }
  if (!std::has_single_bit(*alignment)) {
    cursor.refuse("alignment", at, fmt::format("is {} and must be a power of two", *alignment));
  }
  return *alignment;
}

/// Fills parsed.metadata; the alignment is the result.
uint64_t read_metadata(Cursor& cursor, uint64_t count, ParsedGguf& parsed) {
  uint64_t alignment = kDefaultAlignment;
  std::vector<uint64_t> offsets;
  offsets.reserve(count);
  parsed.metadata.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    cursor.set_subject(fmt::format("metadata record {}", i));
    const uint64_t at = cursor.offset();
    const std::string_view key = cursor.string("key", kMaxKeyBytes);
    if (key.empty()) cursor.refuse("key", at, "is empty");
    cursor.set_subject(fmt::format("key {}", quote(key)));
    const GgufType type = read_type(cursor, "value type");
    const uint64_t value_at = cursor.offset();
    GgufValue value = read_value(cursor, type);
    if (key == "general.alignment") alignment = read_alignment(cursor, value, value_at);
    offsets.push_back(at);
    parsed.metadata.emplace_back(key, std::move(value));
  }
  const auto order = order_by_name(parsed.metadata, [](const auto& pair) -> const std::string& { return pair.first; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (parsed.metadata[order[i]].first != parsed.metadata[order[i - 1]].first) continue;
    cursor.set_subject(fmt::format("key {}", quote(parsed.metadata[order[i]].first)));
    cursor.refuse("key", offsets[order[i]], fmt::format("is there twice, first at byte {}", offsets[order[i - 1]]));
  }
  return alignment;
}

bool is_retired(int32_t id) {
  return id == 4 || id == 5 || (id >= 31 && id <= 33) || (id >= 36 && id <= 38);
}

void read_shape(Cursor& cursor, TensorInfo& tensor) {
  const uint64_t at = cursor.offset();
  const auto n_dims = cursor.number<uint32_t>("dimension count");
  if (n_dims < 1 || n_dims > 4) {
    cursor.refuse("dimension count", at, fmt::format("is {} and must be 1 to 4", n_dims));
  }
  tensor.n_dims = static_cast<int>(n_dims);
  int64_t elements = 1;
  for (uint32_t d = 0; d < n_dims; ++d) {
    const uint64_t dim_at = cursor.offset();
    const auto size = cursor.number<int64_t>("dimension");
    if (size < 1)
      cursor.refuse(fmt::format("dimension {}", d), dim_at, fmt::format("is {} and must be at least 1", size));
    if (__builtin_mul_overflow(elements, size, &elements)) {
      cursor.refuse(fmt::format("dimension {}", d), dim_at,
                    fmt::format("is {}: the number of elements overflows", size));
    }
    tensor.shape[d] = size;
  }
}

void read_tensor_type(Cursor& cursor, TensorInfo& tensor) {
  const uint64_t at = cursor.offset();
  const auto id = cursor.number<int32_t>("type");
  if (is_retired(id)) cursor.refuse("type", at, fmt::format("is {}, a retired one: convert the model again", id));
  const TypeInfo* type = find_type(id);
  if (type == nullptr)
    cursor.refuse("type", at, fmt::format("is {}, which is not known: the file may need a newer Moetier", id));
  tensor.type = type->type;
  if (tensor.shape[0] % type->block_length != 0) {
    cursor.refuse("type", at,
                  fmt::format("is {}, whose rows are multiples of {}, but dimension 0 is {}", type->name,
                              type->block_length, tensor.shape[0]));
  }
  const auto blocks = static_cast<uint64_t>(tensor.elements() / type->block_length);
  if (__builtin_mul_overflow(blocks, static_cast<uint64_t>(type->block_bytes), &tensor.bytes)) {
    cursor.refuse("type", at, fmt::format("is {}: the number of bytes overflows", type->name));
  }
}

/// Fills parsed.tensors, offsets still relative to the data. `offsets` gets where each record's offset field lies.
void read_tensors(Cursor& cursor, uint64_t count, uint64_t alignment, ParsedGguf& parsed,
                  std::vector<uint64_t>& offsets) {
  std::vector<uint64_t> starts;
  starts.reserve(count);
  offsets.reserve(count);
  parsed.tensors.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    cursor.set_subject(fmt::format("tensor record {}", i));
    starts.push_back(cursor.offset());
    TensorInfo tensor;
    tensor.name = cursor.string("name", kMaxTensorNameBytes);
    if (tensor.name.empty()) cursor.refuse("name", starts.back(), "is empty");
    cursor.set_subject(fmt::format("tensor {}", quote(tensor.name)));
    read_shape(cursor, tensor);
    read_tensor_type(cursor, tensor);
    offsets.push_back(cursor.offset());
    tensor.offset = cursor.number<uint64_t>("offset");
    if (tensor.offset % alignment != 0) {
      cursor.refuse("offset", offsets.back(),
                    fmt::format("is {} and must be a multiple of the alignment {}", tensor.offset, alignment));
    }
    parsed.tensors.push_back(std::move(tensor));
  }
  const auto order = order_by_name(parsed.tensors, [](const TensorInfo& t) -> const std::string& { return t.name; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (parsed.tensors[order[i]].name != parsed.tensors[order[i - 1]].name) continue;
    cursor.set_subject(fmt::format("tensor {}", quote(parsed.tensors[order[i]].name)));
    cursor.refuse("name", starts[order[i]], fmt::format("is there twice, first at byte {}", starts[order[i - 1]]));
  }
}

/// Every tensor must lie in the file and apart from the others; then offsets are made to count from the file's start.
void place_tensors(Cursor& cursor, uint64_t file_bytes, const std::vector<uint64_t>& offsets, ParsedGguf& parsed) {
  const uint64_t room = file_bytes - parsed.data_offset;
  for (size_t i = 0; i < parsed.tensors.size(); ++i) {
    TensorInfo& tensor = parsed.tensors[i];
    if (tensor.offset > room || tensor.bytes > room - tensor.offset) {
      cursor.set_subject(fmt::format("tensor {}", quote(tensor.name)));
      cursor.refuse("offset", offsets[i],
                    fmt::format("is {}: its {} bytes would end beyond the {} bytes of tensor data; the file is cut "
                                "short or damaged, fetch it again",
                                tensor.offset, tensor.bytes, room));
    }
    tensor.offset += parsed.data_offset;
  }
  std::vector<uint32_t> order(parsed.tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint32_t>(i);
  std::ranges::sort(order, {}, [&](uint32_t i) { return std::pair(parsed.tensors[i].offset, i); });
  for (size_t i = 1; i < order.size(); ++i) {
    const TensorInfo& before = parsed.tensors[order[i - 1]];
    const TensorInfo& tensor = parsed.tensors[order[i]];
    if (before.offset + before.bytes <= tensor.offset) continue;
    cursor.set_subject(fmt::format("tensor {}", quote(tensor.name)));
    cursor.refuse(
        "offset", offsets[order[i]],
        fmt::format("is {}: its data overlaps that of tensor {}, which ends at {}", tensor.offset - parsed.data_offset,
                    quote(before.name), before.offset + before.bytes - parsed.data_offset));
  }
}

}  // namespace

std::optional<int64_t> integer_of(const GgufValue& value) {
  return std::visit(
      [](const auto& v) -> std::optional<int64_t> {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
          if (std::in_range<int64_t>(v)) return static_cast<int64_t>(v);
        }
        return std::nullopt;
      },
      value);
}

ParsedGguf parse_gguf(std::span<const std::byte> bytes, const std::string& file) {
  if (bytes.empty()) fail("{}: the file is empty", file);
  ParsedGguf parsed;
  Cursor cursor(bytes, file);
  check_magic(cursor);
  parsed.version = read_version(cursor);
  // Counts are i64 in the format; as unsigned numbers, negative ones are merely too large.
  const uint64_t n_tensors = cursor.count("tensor count", kMinTensorRecord);
  const uint64_t n_metadata = cursor.count("metadata count", kMinMetadataRecord);
  const uint64_t alignment = read_metadata(cursor, n_metadata, parsed);
  std::vector<uint64_t> offsets;
  read_tensors(cursor, n_tensors, alignment, parsed, offsets);
  const uint64_t data = (cursor.offset() + alignment - 1) / alignment * alignment;
  parsed.data_offset = data < bytes.size() ? data : bytes.size();
  place_tensors(cursor, bytes.size(), offsets, parsed);
  return parsed;
}

}  // namespace moetier
