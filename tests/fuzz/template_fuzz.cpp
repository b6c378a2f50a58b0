// Compiles and renders any source with a fixed conversation: only Faults may come out, soon and in little memory.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tokenizer/template/fault.h"
#include "tokenizer/template/program.h"

namespace {

const nlohmann::ordered_json& variables() {
  static const auto parsed = nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Gr\u00fc\u00df <dich> \ud83d\ude00"},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": {"a": [1, 2.5, true]}}}]},
      {"role": "tool", "content": [{"type": "text", "text": "4"}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "array"}}}}}],
    "add_generation_prompt": true, "s": "Hello World", "i": 7, "f": 2.5, "l": [3, 1, 2], "d": {"b": 1, "a": 2}, "n": null})");
  return parsed;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  moetier::jinja::Limits limits;
  limits.steps = 100'000;
  limits.memory = size_t{1} << 25;
  limits.text = size_t{1} << 20;
  try {
    const moetier::jinja::Program program({reinterpret_cast<const char*>(data), size}, limits);
    program.render(variables(), limits, std::chrono::system_clock::time_point(std::chrono::seconds(1700000000)));
  } catch (const moetier::jinja::Fault&) {
    // a refusal
  }
  return 0;
}
