// The HTTP server: cpp-httplib parses requests, routes them and writes answers; accepting, waiting, limits and threads
// are ours. A connection takes a thread only while a whole request of it, body included, is being answered, so idle,
// half-open and slowly sending clients cost a socket and what they have sent, and no more.
#pragma once

#include <httplib.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "server/http/connection.h"

namespace moetier::server {

struct HttpOptions {
  std::string host = "127.0.0.1";          ///< a name or an address, IPv4 or IPv6
  int port = 8080;                         ///< 0 = any that is free
  std::string certificate_file, key_file;  ///< PEM; both or none
  HttpLimits limits;
};

/// The connection that the calling thread answers a request of; nullptr outside of one.
Connection* current_connection();

class HttpServer : public httplib::Server {
 public:
  /// Binds. Routes are set (Get(), Post(), ...) before start(). Errors: an address that cannot be had, unusable TLS
  /// files.
  explicit HttpServer(const HttpOptions& options);
  ~HttpServer() override;  ///< as stop()

  const std::string& host() const { return host_; }
  int port() const { return port_; }
  bool encrypted() const { return tls_ != nullptr; }
  const HttpLimits& limits() const { return limits_; }
  void start();
  /// Accepts no more connections, closes those that wait, and answers what is under way, the last on its connection.
  void drain();
  /// Connections that a request is answered on, or waits to be.
  int active() const;
  int open() const { return open_; }
  bool wait_idle(double most_seconds) const;
  /// Cuts every connection off and ends all threads.
  void stop_now();
  /// Makes the body of an answer to a request that is refused for its head (see request_head.h), in the shape of the
  /// API that the target belongs to. To be set before start().
  using RefusalBody = std::function<std::string(const std::string& target, int status, const std::string& sentence)>;
  void set_refusal_body(RefusalBody body) { refusal_body_ = std::move(body); }
  std::atomic<uint64_t> refused{0};  ///< connections, because there were too many

 private:
  using Parked = std::map<int, std::unique_ptr<Connection>>;
  void poll_loop();
  void accept_all();
  void look_at(int fd);
  void park(std::unique_ptr<Connection> connection);
  void watch(Connection& connection, bool add) const;
  void close_late();
  void say_swept();
  void make_room();
  void unpark(Parked::iterator at);
  void refuse(Parked::iterator at, int status, std::string sentence);
  void enqueue(std::unique_ptr<Connection> connection);
  void work();
  bool serve(Connection& connection);
  bool answer_one(Connection& connection);
  void wake() const;

  std::string host_;
  HttpLimits limits_;
  RefusalBody refusal_body_;
  std::unique_ptr<Tls> tls_;
  int listen_ = -1, poll_ = -1, wake_ = -1, port_ = 0;
  std::thread poller_;
  std::atomic<bool> draining_{false}, stopping_{false};

  BodyRoom room_;
  Parked parked_;  // the poller's
  std::atomic<int> open_{0};

  mutable std::mutex mutex_;  // of all below
  std::condition_variable work_ready_;
  mutable std::condition_variable less_active_;
  std::vector<std::unique_ptr<Connection>> returned_;  // to be parked
  std::deque<std::unique_ptr<Connection>> waiting_;    // for a worker
  std::set<Connection*> answering_;
  std::vector<std::thread> workers_;
  int idle_workers_ = 0;
  bool swept_ = false;  // after drain(), no body is on its way any more
};

}  // namespace moetier::server
