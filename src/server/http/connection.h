// One client's connection: a socket that never blocks for ever, plain or TLS.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/body_room.h"
#include "server/http/limits.h"
#include "server/http/request_body.h"
#include "server/http/request_head.h"
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
  Connection(int fd, SslHandle tls, const HttpLimits& limits, BodyRoom& room);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const { return fd_; }
  bool encrypted() const { return tls_ != nullptr; }

  /// What reading towards a request came to.
  enum class Input {
    incomplete,  ///< more must come
    complete,    ///< a request is there with all its body, or one to refuse (refusal())
    no_room,     ///< as incomplete; with it the bodies on their way hold more than they may
    too_large,   ///< more than header_bytes without an end of the head
    no_http,     ///< no request begins like that; TLS, say, on a port without
    closed,      ///< the client is gone, broke the protocol, or was told goodbye (linger()) and has heard it
  };
  /// Takes what has come, without waiting, and no more at once than leaves others their turn.
  Input pump();
  bool wants_write() const { return wants_write_; }  ///< a TLS handshake waits to send
  bool has_input() const { return taken_ < input_.size(); }
  bool lingers() const { return lingering_; }
  /// The head of a request is there, and its body on its way.
  bool in_body() const { return head_size_ > 0; }
  size_t room_taken() const { return room_.counted(); }     ///< by the body, see BodyRoom
  Clock::time_point deadline() const { return deadline_; }  ///< of the head, the body or of lingering
  /// The head that pump() found complete, to the end of the empty line. Valid until the next read() or pump().
  std::string_view head() const { return std::string_view(input_).substr(taken_, head_size_); }
  /// The request whose head is complete is to be answered so; what there is of its body is let go.
  void refuse(HeadFault why);
  const std::optional<HeadFault>& refusal() const { return refusal_; }

  /// The request is complete and will be answered.
  void begin_request();
  /// Up to `size` bytes of the request; 0 at its end, -1 where the connection is of no use. Never waits.
  ssize_t read(char* out, size_t size);
  /// All of it, or false: the reader is too slow or gone. Then the connection is of no more use.
  bool write(std::string_view data);
  /// The answer is written; the connection may wait for another request.
  void end_request();
  /// Nothing more is answered. What still comes is dropped for a while by pump(): closing over unread bytes would reset
  /// the connection, and the client might lose the answer it has.
  void linger();

  bool failed() const { return failed_; }
  bool stalled() const { return stalled_; }  ///< it has failed because the peer took nothing for too long
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
  bool shake_hands();
  bool take(std::string_view piece);
  Input hear_out();
  Input look();
  Input look_for_head();
  void begin_body();
  void drop(size_t bytes);
  bool wait(short events, Clock::time_point until) const;
  bool send_some(std::string_view& data, Clock::time_point until);
  bool send_all(std::string_view data);
  bool next_probe();

  int fd_;
  SslHandle tls_;
  const HttpLimits& limits_;
  std::string input_;  // received, of which `taken_` bytes are consumed
  size_t taken_ = 0;
  size_t scanned_ = 0;       // of input_, known to hold no end of a head
  size_t head_size_ = 0;     // of the request at taken_; 0 until its end is found
  size_t request_left_ = 0;  // bytes of the request that read() has yet to give
  BodyScan body_;
  BodyRoom::Share room_;
  std::optional<HeadFault> refusal_;
  Clock::time_point deadline_;
  bool handshaken_ = false, wants_write_ = false, failed_ = false, stalled_ = false, close_after_ = false,
       started_ = false, lingering_ = false;
  bool half_closed_ = false, answer_begun_ = false;
  size_t sent_ahead_ = 0;  // bytes of the answer
  Clock::time_point probe_at_;
  Clock::duration probe_wait_{};
  int requests_ = 0;
  std::shared_ptr<void> held_;
};

}  // namespace moetier::server
