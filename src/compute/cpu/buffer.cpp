#include "compute/cpu/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <typeinfo>

#include "base/error.h"
#include "base/units.h"

namespace moetier::cpu {
namespace {

/// From this size on a buffer asks for huge pages: a long KV cache is read whole for every token, and with small pages
/// the address translations no longer fit in their cache (attention at 32768 positions took 12 to 48 % longer in four
/// noisy pairs).
constexpr size_t kHugeFrom = size_t{32} << 20;

class OwnedBuffer final : public Buffer {
 public:
  explicit OwnedBuffer(size_t bytes) : bytes_(bytes), mapped_(std::max<size_t>(bytes, 1)) {
    // NORESERVE: a KV pool is reserved whole and touched page by page.
    void* at = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
      fail("cannot reserve {} of memory ({}); use a smaller context, batch or cache, or raise the process's limits",
           format_bytes(bytes), std::strerror(errno));
    }
    host_ = static_cast<std::byte*>(at);
    if (mapped_ >= kHugeFrom) madvise(at, mapped_, MADV_HUGEPAGE);  // a wish: not every system has them
  }
  ~OwnedBuffer() override { munmap(host_, mapped_); }
  OwnedBuffer(const OwnedBuffer&) = delete;
  OwnedBuffer& operator=(const OwnedBuffer&) = delete;

  size_t bytes() const override { return bytes_; }
  std::byte* host() const override { return host_; }

 private:
  size_t bytes_, mapped_;
  std::byte* host_ = nullptr;
};

class WrappedBuffer final : public Buffer {
 public:
  WrappedBuffer(const void* host, size_t bytes)
      : bytes_(bytes), host_(const_cast<std::byte*>(static_cast<const std::byte*>(host))) {}
  size_t bytes() const override { return bytes_; }
  std::byte* host() const override { return host_; }

 private:
  size_t bytes_;
  std::byte* host_;
};

}  // namespace

std::unique_ptr<Buffer> allocate_buffer(size_t bytes) {
  return std::make_unique<OwnedBuffer>(bytes);
}

std::unique_ptr<Buffer> wrap_buffer(const void* host, size_t bytes) {
  return std::make_unique<WrappedBuffer>(host, bytes);
}

bool writable(const Buffer& buffer) {
  return typeid(buffer) == typeid(OwnedBuffer);
}

}  // namespace moetier::cpu
