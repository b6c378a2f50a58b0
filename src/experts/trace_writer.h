// Writes routing traces of both kinds (docs/formats.md).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace moetier {

/// What the preamble of a CSV trace tells.
struct TraceHead {
  std::string model, arch;  ///< model: the file's name without its folder
  int n_layer = 0, n_expert = 0, top_k = 0;
  std::vector<uint64_t> entry_bytes, dense_bytes;  ///< [n_layer], or empty: left out
};

/// One token's picks in one MoE layer; the spans have one element per pick, best first.
struct TracedRouting {
  bool prompt = false;
  int64_t step = 0;  ///< the token's number within its turn
  int layer = 0;     ///< the model's layer number
  std::span<const int32_t> ids;
  std::span<const float> weights;
  std::span<const int8_t> residency = {};  ///< 0 miss, 1 hit, 2 speculative hit, -1 dropped; empty: all misses
  std::span<const uint64_t> bytes = {};    ///< read for it, by the pick that caused the read only; empty: none
};

/// A CSV trace, written straight to its place and handed to the system at every flush(): a long run that is killed
/// leaves what it had seen by then. Errors name the file and the reason (no space left, ...).
class CsvTraceWriter {
 public:
  /// With `dropped`, a further column tells dropped picks; without it they read as misses without bytes.
  CsvTraceWriter(const std::string& path, const TraceHead& head, bool dropped = false);
  ~CsvTraceWriter();  ///< flushes what it can
  CsvTraceWriter(const CsvTraceWriter&) = delete;
  CsvTraceWriter& operator=(const CsvTraceWriter&) = delete;
  /// Begins the next turn. Steps may begin anew; within a turn no step and layer may come twice.
  void next_turn();
  void add(const TracedRouting& routing);
  void flush();

 private:
  std::string path_, buffer_;
  int fd_ = -1;
  int turn_ = 0;
  bool dropped_;
};

/// A binary trace, which is of use only when it is whole: it appears at commit(), and without that not at all. Routings
/// must come token by token, and a token's by ascending layer.
class BinaryTraceWriter {
 public:
  explicit BinaryTraceWriter(const std::string& path);
  void add(int layer, std::span<const int32_t> ids, std::span<const float> weights);
  void commit();

 private:
  AtomicFile file_;
};

}  // namespace moetier
