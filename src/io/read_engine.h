// Many reads at once from a few files, straight to where their bytes are wanted. Knows no expert and no cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/read_file.h"

namespace moetier {

/// One read. Of a direct file, offset, bytes and `to` are multiples of kReadBlock; `bytes` may reach past the file's
/// end.
struct ReadRequest {
  int file = 0;  ///< index of the files the engine was made with
  uint64_t offset = 0;
  std::byte* to = nullptr;
  uint64_t bytes = 0;
  uint64_t need = 0;  ///< the file ending before this many bytes is an error (ENODATA)
  uint64_t tag = 0;   ///< comes back with the result
};

struct ReadResult {
  uint64_t tag = 0;
  int error = 0;  ///< 0: at least `need` bytes are there; else an errno. ENODATA: the file ends before them
};

struct ReadMeters {
  uint64_t reads = 0, bytes = 0;  ///< that came
  uint64_t registered = 0;        ///< of the reads: into registered memory
  double busy_seconds = 0;        ///< with at least one read in flight; io_uring's last until they are seen
  uint64_t errors = 0;
};

enum class ReadKind : uint8_t { automatic, io_uring, threads };

inline constexpr int kMostDepth = 4096;  ///< of an io_uring
inline constexpr int kMostLanes = 256;

struct ReadEngineOptions {
  ReadKind kind = ReadKind::automatic;  ///< io_uring where the kernel allows it, else threads
  int depth = 32;                       ///< reads in flight at most
  int lanes = 4;                        ///< threads of the thread engine
};

/// Called by one thread. Reads come back in any order. Short reads are continued inside. What exceeds the depth waits
/// inside in the order of submission.
class ReadEngine {
 public:
  virtual ~ReadEngine() = default;            ///< waits for what is in flight
  virtual std::string_view name() const = 0;  ///< "io_uring" or "threads"
  virtual int depth() const = 0;
  /// Queues all and issues as many as the depth allows, with one system call where the kernel can. Never waits for a
  /// read. Allocates nothing in steady state.
  virtual void submit(std::span<const ReadRequest> requests) = 0;
  /// What has come since the last call, without blocking; the number of results.
  virtual size_t poll(std::span<ReadResult> results) = 0;
  /// Blocks until something comes; 0 only if nothing was outstanding.
  virtual size_t wait(std::span<ReadResult> results) = 0;
  virtual size_t outstanding() const = 0;  ///< submitted and not given back
  /// Forgets what is not in flight yet and waits for what is; no result of it is given back.
  virtual void cancel() = 0;

  /// Tells the kernel where reads will land, so that it need not look the pages up each time. Memory that is registered
  /// stays pinned: unregister before it is released. Empty if it was done; else one sentence why not (reads work all
  /// the same). At most 1 GiB a region; what was registered before no longer is. All of it becomes resident, and counts
  /// against RLIMIT_MEMLOCK. Waits for reads in flight. Threads have no use for it: nothing is done, and nothing said.
  virtual std::string register_memory(std::span<const std::span<std::byte>> regions) = 0;
  virtual void unregister_memory() = 0;  ///< waits for reads in flight; their results are still given

  virtual ReadMeters meters() const = 0;
};

/// `files` must outlive the engine. With ReadKind::io_uring, a kernel that refuses it is an error; with automatic it is
/// a warning, said once, and threads.
std::unique_ptr<ReadEngine> make_read_engine(const ReadEngineOptions& options, std::span<const ReadFile> files);

}  // namespace moetier
