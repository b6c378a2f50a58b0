#include "server/http/connection.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace moetier::server {
namespace {

constexpr size_t kPiece = size_t{16} << 10;
// Chunk sizes, trailers and the like of a chunked body come on top of the body.
constexpr size_t kFraming = size_t{64} << 10;
constexpr double kLingerSeconds = 2;
// How every answer begins, whatever its status, but for "100 Continue".
constexpr std::string_view kAnswerStart = "HTTP/1.1 ", kContinue = "HTTP/1.1 100 ";
constexpr std::chrono::seconds kFirstProbe{1}, kMostBetweenProbes{15};

}  // namespace

Connection::Connection(int fd, SslHandle tls, const HttpLimits& limits)
    : fd_(fd),
      tls_(std::move(tls)),
      limits_(limits),
      deadline_(Clock::now() + seconds(limits.header_seconds)),
      handshaken_(tls_ == nullptr) {}

Connection::~Connection() {
  if (tls_ != nullptr && handshaken_ && !failed_ && !lingering_) {
    ERR_clear_error();
    SSL_shutdown(tls_.get());
  }
  tls_.reset();
  ::close(fd_);
}

ssize_t Connection::receive(char* out, size_t size) {
  if (tls_ == nullptr) {
    const ssize_t n = ::recv(fd_, out, size, 0);
    if (n >= 0) return n;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? -2 : -1;
  }
  ERR_clear_error();
  const int n = SSL_read(tls_.get(), out, static_cast<int>(std::min(size, kPiece)));
  if (n > 0) return n;
  switch (SSL_get_error(tls_.get(), n)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return -2;
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    default:
      return -1;
  }
}

Connection::Head Connection::pump() {
  if (!handshaken_) {
    ERR_clear_error();
    const int done = SSL_accept(tls_.get());
    if (done != 1) {
      const int why = SSL_get_error(tls_.get(), done);
      wants_write_ = why == SSL_ERROR_WANT_WRITE;
      if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) return Head::incomplete;
      failed_ = true;
      return Head::closed;
    }
    handshaken_ = true;
    wants_write_ = false;
  }
  char piece[4096];
  if (lingering_) {
    for (int i = 0; i < 64; ++i) {  // others want to be looked at, too
      const ssize_t n = ::recv(fd_, piece, sizeof piece, 0);
      if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? Head::incomplete : Head::closed;
    }
    return Head::incomplete;
  }
  for (;;) {
    if (taken_ > 0) {
      input_.erase(0, taken_);
      taken_ = scanned_ = 0;
    }
    if (!input_.empty() && !started_) {
      started_ = true;
      deadline_ = Clock::now() + seconds(limits_.header_seconds);
    }
    const size_t from = scanned_ > 3 ? scanned_ - 3 : 0;
    const size_t end = input_.find("\r\n\r\n", from);
    if (end != std::string::npos) return end + 4 > limits_.header_bytes ? Head::too_large : Head::complete;
    scanned_ = input_.size();
    if (input_.size() > limits_.header_bytes) return Head::too_large;
    const ssize_t n = receive(piece, sizeof piece);
    if (n == -2) return Head::incomplete;
    if (n <= 0) return Head::closed;
    input_.append(piece, static_cast<size_t>(n));
  }
}

std::string_view Connection::head() const {
  const std::string_view rest = std::string_view(input_).substr(taken_);
  const size_t end = rest.find("\r\n\r\n");
  return end == std::string_view::npos ? rest : rest.substr(0, end + 4);
}

void Connection::begin_request() {
  ++requests_;
  started_ = over_limit_ = half_closed_ = answer_begun_ = false;
  sent_ahead_ = 0;
  probe_at_ = {};
  probe_wait_ = kFirstProbe;
  deadline_ = Clock::now() + seconds(limits_.body_seconds);
  read_left_ = limits_.header_bytes + limits_.body_bytes + kFraming;
}

void Connection::end_request() {
  held_.reset();
  deadline_ = Clock::now() + seconds(limits_.idle_seconds);
}

void Connection::linger() {
  if (tls_ != nullptr) {
    ERR_clear_error();
    SSL_shutdown(tls_.get());
  }
  ::shutdown(fd_, SHUT_WR);
  lingering_ = true;
  wants_write_ = false;
  input_.clear();
  taken_ = scanned_ = 0;
  deadline_ = Clock::now() + seconds(kLingerSeconds);
}

bool Connection::wait(short events, Clock::time_point until) const {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return false;
    pollfd one{fd_, events, 0};
    const int n = ::poll(&one, 1, static_cast<int>(std::min<long long>(left, 60000)));
    if (n > 0) return true;  // an error shows itself in the next call
    if (n < 0 && errno != EINTR) return false;
  }
}

ssize_t Connection::read(char* out, size_t size) {
  if (failed_ || size == 0) return -1;
  size = std::min(size, read_left_);
  if (size == 0) {
    over_limit_ = close_after_ = true;
    return -1;
  }
  ssize_t n = 0;
  if (has_input()) {
    n = static_cast<ssize_t>(std::min(size, input_.size() - taken_));
    std::memcpy(out, input_.data() + taken_, static_cast<size_t>(n));
    taken_ += static_cast<size_t>(n);
  } else {
    while ((n = receive(out, size)) == -2) {
      if (!wait(POLLIN, deadline_)) n = -1;
      if (n == -1) break;
    }
  }
  if (n < 0) close_after_ = true;
  if (n > 0) read_left_ -= static_cast<size_t>(n);
  return n;
}

bool Connection::send_some(std::string_view& data, Clock::time_point until) {
  short events = POLLOUT;
  ssize_t n = 0;
  if (tls_ == nullptr) {
    n = ::send(fd_, data.data(), data.size(), MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return false;
  } else {
    ERR_clear_error();
    n = SSL_write(tls_.get(), data.data(), static_cast<int>(data.size()));
    if (n <= 0) {
      const int why = SSL_get_error(tls_.get(), static_cast<int>(n));
      if (why == SSL_ERROR_WANT_READ) {
        events = POLLIN;
      } else if (why != SSL_ERROR_WANT_WRITE) {
        return false;
      }
    }
  }
  if (n > 0) {
    data.remove_prefix(static_cast<size_t>(n));
    return true;
  }
  return wait(events, until);
}

bool Connection::write(std::string_view data) {
  if (!answer_begun_ && !data.starts_with(kContinue)) {
    answer_begun_ = true;
    data.remove_prefix(std::min(sent_ahead_, data.size()));
  }
  return send_all(data);
}

bool Connection::send_all(std::string_view data) {
  while (!data.empty() && !failed_) {
    std::string_view piece = data.substr(0, kPiece);
    data.remove_prefix(piece.size());
    const auto until = Clock::now() + seconds(limits_.write_seconds);
    while (!piece.empty()) {
      if (!send_some(piece, until)) {
        failed_ = true;
        return false;
      }
    }
  }
  return !failed_;
}

bool Connection::peer_gone() {
  if (failed_) return true;
  pollfd one{fd_, POLLRDHUP, 0};
  if (::poll(&one, 1, 0) <= 0) return false;
  if ((one.revents & ~POLLRDHUP) != 0) {
    failed_ = true;
    return true;
  }
  half_closed_ = true;
  if (!answer_begun_ && sent_ahead_ < kAnswerStart.size() && next_probe()) {
    send_all(kAnswerStart.substr(sent_ahead_++, 1));
  }
  return failed_;
}

bool Connection::probe_due() {
  return half_closed_ && answer_begun_ && next_probe();
}

bool Connection::next_probe() {
  const auto now = Clock::now();
  if (now < probe_at_) return false;
  probe_at_ = now + probe_wait_;
  probe_wait_ = std::min<Clock::duration>(probe_wait_ * 2, kMostBetweenProbes);
  return true;
}

void Connection::abort() const {
  ::shutdown(fd_, SHUT_RDWR);
}

}  // namespace moetier::server
