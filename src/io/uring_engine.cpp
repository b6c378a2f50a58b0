// Reads by io_uring(7): no thread, one system call for many reads, memory that the kernel knows already.
#include <fmt/core.h>
#include <liburing.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "io/read_parts.h"
#include "io/ring.h"

namespace moetier {
namespace {

constexpr uint64_t kMostRegion = uint64_t{1} << 30;  // bytes that the kernel takes as one buffer
constexpr size_t kMostRegions = 1 << 14;             // buffers that the kernel takes

/// An io_uring, torn down with it.
class RingHandle {
 public:
  RingHandle() = default;
  ~RingHandle() {
    if (open_) io_uring_queue_exit(&ring_);
  }
  RingHandle(const RingHandle&) = delete;
  RingHandle& operator=(const RingHandle&) = delete;

  /// Empty, or why it cannot be.
  std::string open(unsigned depth) {
    io_uring_params params{};
    const int error = io_uring_queue_init_params(depth, &ring_, &params);
    if (error != 0) return std::strerror(-error);
    open_ = true;
    io_uring_probe* const probe = io_uring_get_probe_ring(&ring_);
    const bool reads = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                       io_uring_opcode_supported(probe, IORING_OP_READ_FIXED) != 0;
    if (probe != nullptr) io_uring_free_probe(probe);
    return reads ? "" : "this kernel's cannot read; Linux 5.6 can";
  }
  bool is_open() const { return open_; }
  io_uring* get() { return &ring_; }

 private:
  io_uring ring_{};
  bool open_ = false;
};

class UringEngine final : public ReadEngine {
 public:
  UringEngine(int depth, std::span<const ReadFile> files, std::string* why) : files_(files), depth_(depth) {
    *why = handle_.open(static_cast<unsigned>(depth));
    if (!why->empty()) return;
    parts_.resize(static_cast<size_t>(depth));
    for (int i = depth; i-- > 0;) free_.push_back(i);
    retry_.reserve(static_cast<size_t>(depth));
    std::vector<int> descriptors;
    for (const ReadFile& file : files) descriptors.push_back(file.fd());
    // Where it is refused (many files, a small RLIMIT_NOFILE) the descriptors are looked up read by read.
    fixed_files_ = !descriptors.empty() &&
                   io_uring_register_files(ring(), descriptors.data(), static_cast<unsigned>(descriptors.size())) == 0;
  }

  ~UringEngine() override {
    if (!handle_.is_open()) return;
    // What cannot be handed to the kernel is no reason to wait; the handle takes the ring down.
    wanted_.clear();
    retry_.clear();
    try {
      while (in_kernel() > 0) {
        await_one();
        reap(false);
        retry_.clear();
      }
    } catch (const Error& e) {
      log::warn("{}", e.what());
    }
    // By itself the kernel would let go of the memory some time after the ring is gone.
    if (!buffers_.empty()) io_uring_unregister_buffers(ring());
  }

  std::string_view name() const override { return "io_uring"; }
  int depth() const override { return depth_; }
  size_t outstanding() const override { return wanted_.size() + in_flight() + finished_.size(); }

  void submit(std::span<const ReadRequest> requests) override {
    for (const ReadRequest& request : requests) check_request(request, files_.size());
    finished_.reserve(outstanding() + requests.size());
    wanted_.reserve(wanted_.size() + requests.size());
    for (const ReadRequest& request : requests) wanted_.push(request);
    reap(true);
    issue();
  }

  size_t poll(std::span<ReadResult> results) override {
    if (reap(true) || io_uring_sq_ready(ring()) > 0) issue();
    return give(results);
  }

  size_t wait(std::span<ReadResult> results) override {
    if (outstanding() == 0 || results.empty()) return 0;
    reap(true);
    issue();
    while (finished_.empty()) {
      await_one();
      reap(true);
      issue();
    }
    return give(results);
  }

  void cancel() override {
    wanted_.clear();
    settle(false);
    finished_.clear();
  }

  std::string register_memory(std::span<const std::span<std::byte>> regions) override {
    unregister_memory();
    if (regions.empty()) return "";
    if (regions.size() > kMostRegions) {
      return fmt::format("{} pieces of memory cannot be registered with io_uring, which takes {}: reads go on without",
                         regions.size(), kMostRegions);
    }
    std::vector<iovec> buffers;
    uint64_t sum = 0;
    for (const std::span<std::byte> region : regions) {
      if (region.size() > kMostRegion) {
        return fmt::format("{} cannot be registered with io_uring, which takes {} at once: reads go on without",
                           format_bytes(region.size()), format_bytes(kMostRegion));
      }
      buffers.push_back({region.data(), region.size()});
      sum += region.size();
    }
    std::sort(buffers.begin(), buffers.end(),
              [](const iovec& a, const iovec& b) { return std::less<>()(a.iov_base, b.iov_base); });
    settle(true);
    const int error = io_uring_register_buffers(ring(), buffers.data(), static_cast<unsigned>(buffers.size()));
    if (error != 0) return refusal(sum, -error);
    buffers_ = std::move(buffers);
    return "";
  }

  void unregister_memory() override {
    if (buffers_.empty()) return;
    settle(true);
    io_uring_unregister_buffers(ring());
    buffers_.clear();
  }

  ReadMeters meters() const override {
    ReadMeters meters = meters_;
    meters.busy_seconds = busy_.seconds();
    return meters;
  }

 private:
  io_uring* ring() { return handle_.get(); }
  size_t in_flight() const { return parts_.size() - free_.size(); }
  /// Reads that the kernel has been told of and has not answered.
  size_t in_kernel() { return in_flight() - retry_.size() - io_uring_sq_ready(ring()); }

  static std::string refusal(uint64_t bytes, int error) {
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    const std::string allowed =
        limit.rlim_cur == RLIM_INFINITY ? "no limit" : "a limit of " + format_bytes(limit.rlim_cur);
    return fmt::format(
        "{} cannot be registered with io_uring ({}; this process has {} for locked memory, ulimit -l): "
        "reads go on without",
        format_bytes(bytes), std::strerror(error), allowed);
  }

  /// Hands as many reads to the kernel as the depth allows.
  void issue() {
    while (!retry_.empty()) prepare(retry_.pop());
    while (!wanted_.empty() && !free_.empty()) {
      const int slot = free_.back();
      free_.pop_back();
      parts_[static_cast<size_t>(slot)] = ReadPart{.request = wanted_.pop()};
      busy_.begin();
      prepare(slot);
    }
    while (io_uring_sq_ready(ring()) > 0) {
      const int n = io_uring_submit(ring());
      if (n == -EINTR) continue;
      if (n == -EAGAIN || n == -EBUSY || n == 0) return;  // short of memory: tried again by the next call
      if (n < 0) fail("io_uring takes no more reads: {}", std::strerror(-n));
    }
  }

  void prepare(int slot) {
    ReadPart& part = parts_[static_cast<size_t>(slot)];
    const ReadRequest& request = part.request;
    io_uring_sqe* const sqe = io_uring_get_sqe(ring());
    if (sqe == nullptr) fail("io_uring has no room for {} reads", depth_);  // it was made with that many
    std::byte* const to = request.to + part.from;
    const auto bytes = static_cast<unsigned>(part.next_bytes());
    const uint64_t offset = request.offset + part.from;
    const int file = fixed_files_ ? request.file : files_[static_cast<size_t>(request.file)].fd();
    const int buffer = buffer_of(to, bytes);
    part.registered = buffer >= 0;
    if (part.registered) {
      io_uring_prep_read_fixed(sqe, file, to, bytes, offset, buffer);
    } else {
      io_uring_prep_read(sqe, file, to, bytes, offset);
    }
    if (fixed_files_) io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data64(sqe, static_cast<uint64_t>(slot));
  }

  /// The registered buffer that [to, to + bytes) lies in, or -1.
  int buffer_of(const std::byte* to, uint64_t bytes) const {
    auto above = std::upper_bound(buffers_.begin(), buffers_.end(), to, [](const std::byte* at, const iovec& buffer) {
      return std::less<>()(at, static_cast<const std::byte*>(buffer.iov_base));
    });
    if (above == buffers_.begin()) return -1;
    --above;
    const auto begin = static_cast<uint64_t>(to - static_cast<const std::byte*>(above->iov_base));
    if (begin > above->iov_len || bytes > above->iov_len - begin) return -1;
    return static_cast<int>(above - buffers_.begin());
  }

  /// Takes the answers that are there, without a system call; true if there were any. Those that are no end are kept in
  /// retry_, or forgotten with `keep_on` false.
  bool reap(bool keep_on) {
    io_uring_cqe* cqe = nullptr;
    bool any = false;
    while (io_uring_cq_ready(ring()) > 0 && io_uring_peek_cqe(ring(), &cqe) == 0) {
      any = true;
      const auto slot = static_cast<int>(cqe->user_data);
      const int answer = cqe->res;
      io_uring_cqe_seen(ring(), cqe);
      ReadPart& part = parts_[static_cast<size_t>(slot)];
      int error = 0;
      if (!part.take(answer, files_[static_cast<size_t>(part.request.file)].direct(), &error) && keep_on) {
        retry_.push(slot);
        continue;
      }
      (error == 0 ? meters_.reads : meters_.errors) += 1;
      meters_.bytes += part.got;
      if (error == 0 && part.registered) ++meters_.registered;
      if (keep_on) finished_.push({part.request.tag, error});
      release(slot);
    }
    return any;
  }

  void release(int slot) {
    free_.push_back(slot);
    busy_.end();
  }

  /// Sleeps until the kernel answers a read, or for a moment if it had no memory to take one.
  void await_one() {
    constexpr int kMostStalls = 10000;
    if (in_kernel() == 0) {
      if (++stalls_ > kMostStalls) fail("io_uring takes no more reads: the kernel is out of memory");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    stalls_ = 0;
    io_uring_cqe* cqe = nullptr;
    for (;;) {
      const int error = io_uring_wait_cqe(ring(), &cqe);
      if (error == 0) return;
      if (error != -EINTR && error != -EAGAIN) fail("io_uring cannot be waited for: {}", std::strerror(-error));
    }
  }

  /// Until nothing is in flight: what was begun ends, what waits goes on waiting. With `keep_on` false its results are
  /// forgotten.
  void settle(bool keep_on) {
    reap(keep_on);
    while (in_flight() > 0) {
      if (!keep_on) {
        while (!retry_.empty()) release(retry_.pop());
      }
      issue_begun();
      if (in_flight() > 0) await_one();
      reap(keep_on);
    }
  }

  /// As issue(), without beginning reads.
  void issue_begun() {
    while (!retry_.empty()) prepare(retry_.pop());
    int n = 0;
    while (io_uring_sq_ready(ring()) > 0 && ((n = io_uring_submit(ring())) > 0 || n == -EINTR)) {
    }
    if (n < 0 && n != -EINTR && n != -EAGAIN && n != -EBUSY)
      fail("io_uring takes no more reads: {}", std::strerror(-n));
  }

  size_t give(std::span<ReadResult> results) {
    size_t n = 0;
    while (n < results.size() && !finished_.empty()) results[n++] = finished_.pop();
    return n;
  }

  const std::span<const ReadFile> files_;
  const int depth_;
  RingHandle handle_;
  bool fixed_files_ = false;
  std::vector<iovec> buffers_;   ///< registered, by address
  std::vector<ReadPart> parts_;  ///< by slot; a slot is what a completion names
  std::vector<int> free_;        ///< slots
  Ring<int> retry_;              ///< slots whose reads go on with another system call
  Ring<ReadRequest> wanted_;     ///< beyond the depth
  Ring<ReadResult> finished_;
  int stalls_ = 0;  ///< milliseconds waited for the kernel to take a read
  ReadMeters meters_;
  BusyTime busy_;
};

}  // namespace

std::unique_ptr<ReadEngine> make_uring_engine(int depth, std::span<const ReadFile> files, std::string* why) {
  auto engine = std::make_unique<UringEngine>(depth, files, why);
  if (!why->empty()) return nullptr;
  return engine;
}

}  // namespace moetier
