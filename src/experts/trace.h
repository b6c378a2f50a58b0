// Routing traces: what the router chose, token by token. Reads and writes the two formats of docs/formats.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace moetier {

/// One token's picks in one MoE layer, best first.
struct Routing {
  int32_t token = 0;    ///< counts from 0 through the trace, prompt tokens first (the CSV's step)
  int32_t layer = 0;    ///< as the file numbers layers
  bool prompt = false;  ///< false: decoded
  uint32_t first = 0;   ///< its picks are [first, first + count) of RoutingTrace::ids and weights
  uint32_t count = 0;
};

/// A whole trace, in the order of the file.
struct RoutingTrace {
  std::string model;  ///< as the file says; may be empty
  int n_layer = 0;    ///< 1 + the highest layer number
  int n_expert = 0;   ///< as the file says, or 1 + the highest id
  int top_k = 0;      ///< most picks of a routing
  int64_t tokens = 0;
  std::vector<uint64_t> entry_bytes;  ///< per layer; empty where the format does not tell
  std::vector<Routing> routings;
  std::vector<int32_t> ids;
  std::vector<float> weights;     ///< 0 where unknown
  std::vector<int8_t> residency;  ///< CSV only, per pick: 0 miss, 1 hit, 2 speculative hit; else empty
  std::span<const int32_t> picks(const Routing& r) const { return {ids.data() + r.first, r.count}; }
};

/// Reads either format, told apart by its first bytes. A file is hostile: errors name the file, the line or the byte,
/// and what is wrong (ids and layers out of range, numbers that are none, more than kMaxTraceBytes). `prompt_tokens`:
/// how many of a binary trace's tokens are prompt, which it does not tell itself.
RoutingTrace read_trace(const std::string& path, int64_t prompt_tokens = 0);
inline constexpr uint64_t kMaxTraceBytes = uint64_t{1} << 32;

}  // namespace moetier
