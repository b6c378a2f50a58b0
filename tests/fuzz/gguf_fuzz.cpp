// libFuzzer: whatever the bytes, a GGUF file is read or refused with an Error.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "experts/entry_map.h"
#include "gguf/check.h"
#include "gguf/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moetier;
  const auto ignoring_errors = [](auto action) {
    try {
      action();
    } catch (const Error&) {
    }
  };
  ignoring_errors([&] {
    const GgufFile file = GgufFile::parse({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
    for (const auto& pair : file.metadata()) {
      const std::string& key = pair.first;
      ignoring_errors([&] { (void)file.get_int(key); });
      ignoring_errors([&] { (void)file.get_float(key); });
      ignoring_errors([&] { (void)file.get_bool(key); });
      ignoring_errors([&] { (void)file.get_string(key); });
      ignoring_errors([&] { (void)file.get_ints(key); });
      ignoring_errors([&] { (void)file.get_floats(key); });
      ignoring_errors([&] { (void)file.get_strings(key); });
    }
    for (const TensorInfo& tensor : file.tensors()) {
      // Stands for the reader's promise: every tensor it answers for lies in the file.
      if (file.find_tensor(tensor.name) != &tensor || file.data(tensor).size() != tensor.bytes) __builtin_trap();
    }
    ignoring_errors([&] { check_tensor_data(file); });
    const EntryMap map = EntryMap::from_gguf(file, 2);
    if (map.token_cycle_bytes() > map.total_bytes() || map.total_bytes() > size) __builtin_trap();
  });
  return 0;
}
