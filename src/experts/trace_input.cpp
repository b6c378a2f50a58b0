#include "experts/trace_input.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "experts/trace.h"

namespace moetier {

namespace {
constexpr size_t kChunk = size_t{1} << 20;  // bytes
}

TraceInput::TraceInput(const std::string& path) : name_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0) fail("cannot open {}: {}", path, std::strerror(errno));
}

TraceInput::TraceInput(std::span<const std::byte> bytes, const std::string& name)
    : name_(name), left_(reinterpret_cast<const char*>(bytes.data()), bytes.size()), ended_(true) {
  if (bytes.size() > kMaxTraceBytes) fail("cannot read {}: it is larger than {} bytes", name, kMaxTraceBytes);
}

TraceInput::~TraceInput() {
  if (fd_ >= 0) ::close(fd_);
}

void TraceInput::refill(size_t wanted) {
  std::string next;
  next.reserve(std::max(wanted, kChunk));
  next.assign(left_);
  while (!ended_ && next.size() < wanted) {
    const size_t held = next.size();
    next.resize(std::max(wanted, kChunk));
    ssize_t n = 0;
    do n = ::read(fd_, next.data() + held, next.size() - held);
    while (n < 0 && errno == EINTR);
    if (n < 0) fail("cannot read {}: {}", name_, std::strerror(errno));
    next.resize(held + static_cast<size_t>(n));
    ended_ = n == 0;
    read_ += static_cast<uint64_t>(n);
    if (read_ > kMaxTraceBytes) fail("cannot read {}: it is larger than {} bytes", name_, kMaxTraceBytes);
  }
  buffer_ = std::move(next);
  left_ = buffer_;
}

std::string_view TraceInput::peek(size_t bytes) {
  if (left_.size() < bytes && !ended_) refill(bytes);
  return left_.substr(0, bytes);
}

void TraceInput::skip(size_t bytes) {
  left_.remove_prefix(bytes);
  offset_ += bytes;
}

bool TraceInput::line(std::string_view& text) {
  // A short look first: most lines end within it, and what is held already need not be moved.
  size_t end = left_.substr(0, kMaxLine + 1).find('\n');
  if (end == std::string_view::npos) end = peek(kMaxLine + 1).find('\n');
  const std::string_view held = left_.substr(0, kMaxLine + 1);
  if (end == std::string_view::npos && held.empty()) return false;
  ++line_number_;
  if (end == std::string_view::npos && held.size() > kMaxLine) {
    fail("{}: line {} is longer than {} bytes; is this a routing trace?", name_, line_number_, kMaxLine);
  }
  text = held.substr(0, end);
  skip(std::min(held.size(), text.size() + 1));
  if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
  return true;
}

}  // namespace moetier
