// One client's connection: a socket that never blocks for ever, plain or TLS.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "server/http/limits.h"
#include "server/http/tls.h"

namespace moetier::server {

using Clock = std::chrono::steady_clock;

inline Clock::duration seconds(double value) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
}

/// Used by one thread at a time: the poller while it waits for a request, then the worker that answers it.
class Connection {
 public:
  /// Takes the socket, which must be non-blocking.
  Connection(int fd, SslHandle tls, const HttpLimits& limits);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const { return fd_; }
  bool encrypted() const { return tls_ != nullptr; }

  /// What reading towards a request's head came to.
  enum class Head {
    incomplete,  ///< more must come
    complete,    ///< request line and headers are all there
    too_large,   ///< more than header_bytes without an end
    closed,      ///< the client is gone, broke the protocol, or was told goodbye (linger()) and has heard it
  };
  /// Takes what has come, without waiting.
  Head pump();
  bool wants_write() const { return wants_write_; }  ///< a TLS handshake waits to send
  bool has_input() const { return taken_ < input_.size(); }
  Clock::time_point deadline() const { return deadline_; }  ///< of the head, or of lingering
  /// The head that pump() found complete, to the end of the empty line. Valid until the next read() or pump().
  std::string_view head() const;

  /// The head is complete: from here on the body may take its time, and its bytes.
  void begin_request();
  /// Up to `size` bytes; 0 at the end, -1 after the deadline, beyond the limit or on an error.
  ssize_t read(char* out, size_t size);
  /// All of it, or false: the reader is too slow or gone. Then the connection is of no more use.
  bool write(std::string_view data);
  /// The answer is written; the connection may wait for another request.
  void end_request();
  /// Nothing more is answered. What still comes is dropped for a while by pump(): closing over unread bytes would reset
  /// the connection, and the client might lose the answer it has.
  void linger();

  bool failed() const { return failed_; }
  bool over_limit() const { return over_limit_; }  ///< the request sent more than it may
  /// True once the client has hung up. Asked, often, while it waits for an answer. A client that only closed its
  /// sending side looks the same until something is sent to it: a system whose program is gone answers that with a
  /// reset. So the answer's first bytes, which are always the same, are sent ahead, one at a time, further and further
  /// apart.
  bool peer_gone();
  /// The same doubt in mid-answer, where only its writer can send something: true when that is due.
  bool probe_due();
  /// Wakes whoever reads or writes, from any thread.
  void abort() const;

  /// Kept until the request is answered: leases on what it may use.
  void hold(std::shared_ptr<void> lease) { held_ = std::move(lease); }
  void close_after() { close_after_ = true; }  ///< no further request on it
  bool closes_after() const { return close_after_; }
  int requests() const { return requests_; }

 private:
  ssize_t receive(char* out, size_t size);  // without waiting: 0 = end, -1 = error, -2 = nothing yet
  bool wait(short events, Clock::time_point until) const;
  bool send_some(std::string_view& data, Clock::time_point until);
  bool send_all(std::string_view data);
  bool next_probe();

  int fd_;
  SslHandle tls_;
  const HttpLimits& limits_;
  std::string input_;  // received, of which `taken_` bytes are consumed
  size_t taken_ = 0;
  size_t scanned_ = 0;    // of input_, known to hold no end of a head
  size_t read_left_ = 0;  // bytes that the request may still send
  Clock::time_point deadline_;
  bool handshaken_ = false, wants_write_ = false, failed_ = false, close_after_ = false, started_ = false,
       over_limit_ = false, lingering_ = false;
  bool half_closed_ = false, answer_begun_ = false;
  size_t sent_ahead_ = 0;  // bytes of the answer
  Clock::time_point probe_at_;
  Clock::duration probe_wait_{};
  int requests_ = 0;
  std::shared_ptr<void> held_;
};

}  // namespace moetier::server
