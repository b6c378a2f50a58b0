#include "gguf/value.h"

namespace moetier {

// The alternatives of GgufValue stand in the order of the ids, so that index and id are one.
static_assert(std::is_same_v<std::variant_alternative_t<static_cast<size_t>(GgufType::boolean), GgufValue>, bool>);
static_assert(std::is_same_v<std::variant_alternative_t<static_cast<size_t>(GgufType::f64), GgufValue>, double>);
static_assert(std::variant_size_v<GgufValue> == static_cast<size_t>(GgufType::f64) + 1);

GgufType gguf_type(const GgufValue& value) {
  return static_cast<GgufType>(value.index());
}

std::string_view gguf_type_name(GgufType type) {
  switch (type) {
    case GgufType::u8:
      return "u8";
    case GgufType::i8:
      return "i8";
    case GgufType::u16:
      return "u16";
    case GgufType::i16:
      return "i16";
    case GgufType::u32:
      return "u32";
    case GgufType::i32:
      return "i32";
    case GgufType::f32:
      return "f32";
    case GgufType::boolean:
      return "bool";
    case GgufType::string:
      return "string";
    case GgufType::array:
      return "array";
    case GgufType::u64:
      return "u64";
    case GgufType::i64:
      return "i64";
    case GgufType::f64:
      return "f64";
  }
  return "unknown";
}

uint64_t gguf_type_min_bytes(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
    case GgufType::string:
      return 8;
    case GgufType::array:
      return 12;
  }
  return 0;
}

}  // namespace moetier
