#include "server/http/connection.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace moetier::server {
namespace {

constexpr size_t kPiece = size_t{16} << 10;
constexpr size_t kAtOnce = size_t{256} << 10;
constexpr double kLingerSeconds = 2;
constexpr std::string_view kHeadEnd = "\r\n\r\n", kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
// How every answer begins, whatever its status.
constexpr std::string_view kAnswerStart = "HTTP/1.1 ";
constexpr std::chrono::seconds kFirstProbe{1}, kMostBetweenProbes{15};

}  // namespace

Connection::Connection(int fd, SslHandle tls, const HttpLimits& limits, BodyRoom& room)
    : fd_(fd),
      tls_(std::move(tls)),
      limits_(limits),
      room_(room),
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

bool Connection::shake_hands() {
  if (handshaken_) return true;
  ERR_clear_error();
  const int done = SSL_accept(tls_.get());
  if (done == 1) {
    handshaken_ = true;
    wants_write_ = false;
    return true;
  }
  const int why = SSL_get_error(tls_.get(), done);
  wants_write_ = why == SSL_ERROR_WANT_WRITE;
  failed_ = !wants_write_ && why != SSL_ERROR_WANT_READ;
  return false;
}

Connection::Input Connection::hear_out() {
  char piece[4096];
  for (size_t taken = 0; taken < kAtOnce; taken += sizeof piece) {
    const ssize_t n = ::recv(fd_, piece, sizeof piece, 0);
    if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? Input::incomplete : Input::closed;
  }
  return Input::incomplete;
}

Connection::Input Connection::pump() {
  if (!shake_hands()) return failed_ ? Input::closed : Input::incomplete;
  if (lingering_) return hear_out();
  char piece[kPiece];  // a TLS record fits, so that none of it stays where no poll sees it
  for (size_t taken = 0;;) {
    const Input now = look();
    if (now != Input::incomplete) return now;
    const ssize_t n = taken < kAtOnce ? receive(piece, sizeof piece) : -2;
    if (n == -2) return room_.exceeded() ? Input::no_room : Input::incomplete;
    if (n <= 0) {
      if (n < 0 || !in_body()) return Input::closed;
      refuse({400, fmt::format("the body ended after {} bytes, before its end", body_.size())});
      return Input::complete;
    }
    if (!take({piece, static_cast<size_t>(n)})) return Input::complete;
    taken += static_cast<size_t>(n);
    if (in_body()) room_.set(input_.capacity());
  }
}

/// Adds what has come; false: there is no memory for it, and the request is refused.
bool Connection::take(std::string_view piece) {
  try {
    const size_t needed = input_.size() + piece.size();
    if (needed > input_.capacity()) {
      // Doubled, but never beyond a body whose length is known.
      const size_t known = in_body() ? taken_ + head_size_ + body_.length() : 0;
      std::string larger;  // input_.reserve() would double all the same
      larger.reserve(std::max(needed, known > 0 ? std::min(known, 2 * needed) : 2 * needed));
      larger += input_;
      input_.swap(larger);
    }
    input_.append(piece);
    return true;
  } catch (const std::bad_alloc&) {
    refuse({503, "the server has no memory left for this request; try again"});
    return false;
  }
}

/// Whether what has come is a request.
Connection::Input Connection::look() {
  if (refusal_) return Input::complete;
  if (!in_body()) {
    const Input head = look_for_head();
    if (head != Input::complete) return head;
    begin_body();
    if (refusal_) return Input::complete;
  }
  switch (body_.look(std::string_view(input_).substr(taken_ + head_size_))) {
    case BodyScan::State::incomplete:
      return failed_ ? Input::closed : Input::incomplete;
    case BodyScan::State::malformed:
      refuse({400, "the chunked body is malformed"});
      break;
    case BodyScan::State::too_large:
      refuse({413, body_too_large(limits_.body_bytes) + ", its chunks' sizes included"});
      break;
    case BodyScan::State::whole:
      break;
  }
  return Input::complete;
}

Connection::Input Connection::look_for_head() {
  if (taken_ > 0) drop(taken_);
  // Empty lines before a request mean nothing (RFC 9112, 2.2).
  while (std::string_view(input_).starts_with("\r\n")) drop(2);
  if (!input_.empty() && (static_cast<unsigned char>(input_[0]) < ' ' && input_ != "\r")) return Input::no_http;
  if (!input_.empty() && !started_) {
    started_ = true;
    deadline_ = Clock::now() + seconds(limits_.header_seconds);
  }
  const size_t end = input_.find(kHeadEnd, scanned_ > 3 ? scanned_ - 3 : 0);
  scanned_ = input_.size();
  const size_t size = end == std::string::npos ? input_.size() : end + kHeadEnd.size();
  if (size > limits_.header_bytes) return Input::too_large;
  if (end == std::string::npos) return Input::incomplete;
  head_size_ = size;
  return Input::complete;
}

/// The head is there: from here on the body may take its time, and its bytes.
void Connection::begin_body() {
  RequestHead head = read_head(this->head(), limits_.body_bytes);
  if (head.fault) return refuse(std::move(*head.fault));
  deadline_ = Clock::now() + seconds(limits_.body_seconds);
  body_ = BodyScan(head, limits_.body_bytes);
  if (head.asks_to_go_on && head.has_body() && input_.size() == taken_ + head_size_) {
    std::string_view go_on = kContinue;
    // The buffers of a client that waits are empty, or it has more to hear than it takes.
    failed_ = !send_some(go_on, Clock::time_point()) || !go_on.empty();
  }
}

void Connection::refuse(HeadFault why) {
  refusal_ = std::move(why);
  close_after_ = true;
  body_ = BodyScan();
  input_.resize(taken_ + head_size_);
  input_.shrink_to_fit();
  room_.set(0);
}

/// Forgets so much of the front of what was received.
void Connection::drop(size_t bytes) {
  input_.erase(0, bytes);
  if (input_.capacity() > BodyRoom::kFree && input_.size() <= BodyRoom::kFree) {
    std::string(input_).swap(input_);  // or an idle connection would keep its largest body's memory
  }
  taken_ -= std::min(bytes, taken_);
  scanned_ = 0;
}

void Connection::begin_request() {
  ++requests_;
  started_ = half_closed_ = answer_begun_ = false;
  sent_ahead_ = 0;
  probe_at_ = {};
  probe_wait_ = kFirstProbe;
  request_left_ = head_size_ + body_.size();
  room_.set(0);  // from here on the number of workers bounds it
}

void Connection::end_request() {
  held_.reset();
  taken_ += request_left_;  // a body that nobody has read is not the next request
  head_size_ = request_left_ = 0;
  body_ = BodyScan();
  drop(taken_);
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
  drop(input_.size());
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
  const size_t n = std::min(size, request_left_);
  std::memcpy(out, input_.data() + taken_, n);
  taken_ += n;
  request_left_ -= n;
  if (taken_ == input_.size()) drop(taken_);
  return static_cast<ssize_t>(n);
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
  if (!answer_begun_) {
    if (data == kContinue) return true;  // the HTTP library's; who waited for it has had it
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
        stalled_ = Clock::now() + std::chrono::milliseconds(1) >= until;  // waits are of whole milliseconds
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
