// Shared by the tests of chat templates.
#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tokenizer/template/fault.h"
#include "tokenizer/template/program.h"

namespace moetier::jinja {

/// What strftime_now shows in the tests; tools/compare-templates.py has the same.
inline constexpr auto fixed_time = std::chrono::system_clock::time_point(std::chrono::seconds(1700000000));

inline std::string read_data(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline nlohmann::ordered_json read_json(const std::string& name) {
  return nlohmann::ordered_json::parse(read_data(std::string(MOETIER_TEST_DATA "/template/") + name));
}

/// A rendering, or the fault that ended it.
struct Outcome {
  bool rendered = false;
  std::string text;  ///< what was rendered, or the message
  FaultKind kind{};
  int line = 0;
};

inline Outcome render(const std::string& source, const nlohmann::ordered_json& variables, const Limits& limits = {}) {
  Outcome outcome;
  try {
    outcome.text = Program(source, limits).render(variables, limits, fixed_time);
    outcome.rendered = true;
  } catch (const Fault& fault) {
    outcome.text = fault.message();
    outcome.kind = fault.kind();
    outcome.line = fault.line();
  }
  return outcome;
}

/// FNV-1a, 64 bits, in hexadecimal.
inline std::string fnv(const std::string& data) {
  uint64_t value = 0xCBF29CE484222325u;
  for (const char c : data) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return fmt::format("{:016x}", value);
}

}  // namespace moetier::jinja
