// Routing traces: what the router chose, token by token. Reads the two formats of docs/formats.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace moetier {

/// One token's picks in one MoE layer, best first.
struct Routing {
  int32_t token = 0;    ///< counts from 0 through the trace; a CSV's turns are numbered through
  int32_t layer = 0;    ///< as the file numbers layers
  bool prompt = false;  ///< false: decoded
  uint32_t first = 0;   ///< its picks are [first, first + count) of RoutingTrace::ids and weights
  uint32_t count = 0;   ///< at least 1; its ids are distinct
};

/// A whole trace. Its routings lie token by token, and a token's by ascending layer, at most one for each; a token need
/// not have one in every layer. (A CSV has a prompt layer by layer, all its tokens through one layer before the next,
/// and may hold only the prompt's last token in the last layer. To replay a prompt as it was run, walk its routings by
/// layer first.) The picks in `ids` lie as in the file, so read them through picks().
struct RoutingTrace {
  std::string model;  ///< as the file says; may be empty
  std::string arch;   ///< as the file says; may be empty
  int n_layer = 0;    ///< as the file says, or 1 + the highest layer number
  int n_expert = 0;   ///< as the file says, or 1 + the highest id
  bool told = false;  ///< the file says n_expert
  int top_k = 0;      ///< most picks of a routing
  int64_t tokens = 0;
  std::vector<uint64_t> entry_bytes;  ///< per layer, 0 where not told; empty where the format does not tell
  std::vector<uint64_t> dense_bytes;  ///< likewise
  std::vector<Routing> routings;
  std::vector<int32_t> ids;
  std::vector<float> weights;  ///< 0 where unknown
  /// CSV only, per pick: 0 miss, 1 hit, 2 speculative hit, -1 dropped (chosen, and not computed); else empty.
  std::vector<int8_t> residency;
  std::span<const int32_t> picks(const Routing& r) const { return {ids.data() + r.first, r.count}; }
  std::span<const float> pick_weights(const Routing& r) const { return {weights.data() + r.first, r.count}; }
};

/// Reads either format, told apart by its first bytes. A file is hostile: errors name the file, the line or the byte,
/// and what is wrong (ids and layers out of range, an expert picked twice, numbers that are none, a file cut short, one
/// without any routing, more than kMaxTraceBytes). `prompt_tokens`: how many of a binary trace's tokens are prompt,
/// which it does not tell itself. Memory: 9 to 13 bytes per pick and 20 per routing.
RoutingTrace read_trace(const std::string& path, int64_t prompt_tokens = 0);
/// The same from memory; `name` stands for the file in errors.
RoutingTrace parse_trace(std::span<const std::byte> bytes, const std::string& name, int64_t prompt_tokens = 0);
inline constexpr uint64_t kMaxTraceBytes = uint64_t{1} << 32;
inline constexpr int kMaxTraceLayers = 1 << 16;   ///< layer numbers lie below
inline constexpr int kMaxTraceExperts = 1 << 16;  ///< ids lie below

}  // namespace moetier
