#include "server/http/http_server.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "server/http/listen.h"
#include "server/http/request_head.h"

namespace moetier::server {
namespace {

thread_local Connection* t_current = nullptr;

std::string_view reason_of(int status) {
  switch (status) {
    case 408:
      return "Request Timeout";
    case 413:
      return "Payload Too Large";
    case 414:
      return "URI Too Long";
    case 431:
      return "Request Header Fields Too Large";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Bad Request";
  }
}

/// A whole answer, for a request that never comes to httplib.
std::string last_answer(int status, std::string_view body) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nConnection: close\r\n{}Content-Length: {}\r\n\r\n{}", status,
      reason_of(status), status == 503 ? "Retry-After: 1\r\n" : "", body.size(), body);
}

std::string plain_body(int status, std::string_view type, std::string_view sentence) {
  return fmt::format(R"({{"error":{{"code":{},"message":"{}","type":"{}"}}}})", status, sentence, type);
}

/// What httplib reads and writes through.
class ConnectionStream : public httplib::Stream {
 public:
  explicit ConnectionStream(Connection& connection) : connection_(connection) {}
  bool is_readable() const override { return !connection_.failed(); }
  bool is_writable() const override { return !connection_.failed(); }
  ssize_t read(char* out, size_t size) override { return connection_.read(out, size); }
  ssize_t write(const char* data, size_t size) override {
    return connection_.write({data, size}) ? static_cast<ssize_t>(size) : -1;
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override { name(&::getpeername, ip, port); }
  void get_local_ip_and_port(std::string& ip, int& port) const override { name(&::getsockname, ip, port); }
  socket_t socket() const override { return connection_.fd(); }

 private:
  void name(int (*ask)(int, sockaddr*, socklen_t*), std::string& ip, int& port) const {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    char host[NI_MAXHOST] = "", service[NI_MAXSERV] = "";
    if (ask(connection_.fd(), plain, &size) != 0 ||
        ::getnameinfo(plain, size, host, sizeof host, service, sizeof service, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
      return;
    }
    ip = host;
    port = std::atoi(service);
  }
  Connection& connection_;
};

/// Ends what is sent, and reads what has come already: closing over unread bytes would reset the connection, and the
/// client might lose its answer.
void end_gently(int fd) {
  ::shutdown(fd, SHUT_WR);
  char rest[4096];
  for (int i = 0; i < 64 && ::recv(fd, rest, sizeof rest, MSG_DONTWAIT) > 0; ++i) {
  }
}

/// The one answer of a connection that is closed over it.
void say_last(int fd, int status, std::string_view sentence) {
  const std::string_view type = status == 503 ? "unavailable_error" : "invalid_request_error";
  const std::string text = last_answer(status, plain_body(status, type, sentence));
  static_cast<void>(::send(fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  end_gently(fd);
}

}  // namespace

Connection* current_connection() {
  return t_current;
}

HttpServer::HttpServer(const HttpOptions& options)
    : host_(options.host),
      limits_(options.limits),
      port_(options.port),
      room_(options.limits.body_bytes * static_cast<size_t>(options.limits.bodies_at_once)) {
  if (options.certificate_file.empty() != options.key_file.empty()) {
    usage_error("--ssl-cert-file and --ssl-key-file belong together; give both, or none");
  }
  if (!options.key_file.empty()) tls_ = std::make_unique<Tls>(options.certificate_file, options.key_file);
  listen_ = listen_on(options.host, port_);
  poll_ = ::epoll_create1(EPOLL_CLOEXEC);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (poll_ < 0 || wake_ < 0) fail("the server cannot wait for connections: {}", std::strerror(errno));
  for (const int fd : {listen_, wake_}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    ::epoll_ctl(poll_, EPOLL_CTL_ADD, fd, &event);
  }
  svr_sock_ = listen_;  // httplib cuts answers short when it is none
  set_keep_alive_timeout(static_cast<time_t>(limits_.idle_seconds));
  set_keep_alive_max_count(static_cast<size_t>(limits_.requests_each));
  set_payload_max_length(limits_.body_bytes);
}

HttpServer::~HttpServer() {
  stop_now();
  ::close(listen_);
  ::close(wake_);
  ::close(poll_);
}

void HttpServer::start() {
  poller_ = std::thread([this] { poll_loop(); });
}

void HttpServer::wake() const {
  const uint64_t one = 1;
  static_cast<void>(::write(wake_, &one, sizeof one));
}

void HttpServer::poll_loop() {
  std::vector<epoll_event> events(256);
  auto next_look = Clock::now() + seconds(1);
  while (!stopping_) {
    const int n = ::epoll_wait(poll_, events.data(), static_cast<int>(events.size()), 500);
    for (int i = 0; i < n; ++i) {
      const int fd = events[static_cast<size_t>(i)].data.fd;
      if (fd == listen_) {
        accept_all();
      } else if (fd == wake_) {
        uint64_t count = 0;
        static_cast<void>(::read(wake_, &count, sizeof count));
      } else {
        look_at(fd);
      }
    }
    std::vector<std::unique_ptr<Connection>> returned;
    {
      const std::lock_guard lock(mutex_);
      returned.swap(returned_);
    }
    for (auto& connection : returned) park(std::move(connection));
    if (Clock::now() >= next_look || draining_) {
      const bool last = draining_;
      close_late();
      next_look = Clock::now() + seconds(1);
      if (last) say_swept();
    }
  }
  open_ -= static_cast<int>(parked_.size());
  parked_.clear();
}

void HttpServer::accept_all() {
  for (;;) {
    const int fd = ::accept4(listen_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      // Out of descriptors: the connection stays in the backlog and is seen again.
      if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return;
    }
    if (draining_ || open_ >= limits_.connections) {
      ++refused;
      const std::string_view why = draining_ ? "the server is stopping" : "too many connections are open";
      if (tls_ == nullptr) say_last(fd, 503, why);
      ::close(fd);
      continue;
    }
    const int yes = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    try {
      auto connection = std::make_unique<Connection>(fd, tls_ ? tls_->accept(fd) : SslHandle(), limits_, room_);
      ++open_;
      park(std::move(connection));
    } catch (const Error& error) {
      log::warn("{}", error.what());
      ::close(fd);
    }
  }
}

void HttpServer::watch(Connection& connection, bool add) const {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | (connection.wants_write() ? static_cast<uint32_t>(EPOLLOUT) : 0u);
  event.data.fd = connection.fd();
  ::epoll_ctl(poll_, add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, connection.fd(), &event);
}

void HttpServer::park(std::unique_ptr<Connection> connection) {
  const int fd = connection->fd();
  watch(*connection, true);
  parked_[fd] = std::move(connection);
  look_at(fd);  // what has come already, TLS's own buffer included, wakes nobody
}

void HttpServer::look_at(int fd) {
  const auto at = parked_.find(fd);
  if (at == parked_.end()) return;
  Connection& connection = *at->second;
  const Connection::Input input = connection.pump();
  if (input == Connection::Input::complete) return unpark(at);
  if (input == Connection::Input::incomplete || input == Connection::Input::no_room) {
    watch(connection, false);
    if (input == Connection::Input::no_room) make_room();
    return;
  }
  ::epoll_ctl(poll_, EPOLL_CTL_DEL, fd, nullptr);
  if (!connection.encrypted()) {
    if (input == Connection::Input::too_large) say_last(fd, 431, "the request's headers are too large");
    if (input == Connection::Input::no_http)
      say_last(fd, 400, "this is no HTTP request; is it TLS, without https here?");
  }
  parked_.erase(at);
  --open_;
}

/// Its request goes to a worker.
void HttpServer::unpark(Parked::iterator at) {
  ::epoll_ctl(poll_, EPOLL_CTL_DEL, at->first, nullptr);
  auto connection = std::move(at->second);
  parked_.erase(at);
  enqueue(std::move(connection));
}

void HttpServer::refuse(Parked::iterator at, int status, std::string sentence) {
  at->second->refuse({status, std::move(sentence)});
  unpark(at);
}

/// The body that has been coming for longest makes room for the others: they are the sooner here, and a client that
/// holds memory by sending slowly loses.
void HttpServer::make_room() {
  auto longest = parked_.end();
  for (auto at = parked_.begin(); at != parked_.end(); ++at) {
    if (at->second->room_taken() == 0) continue;
    if (longest == parked_.end() || at->second->deadline() < longest->second->deadline()) longest = at;
  }
  if (longest == parked_.end()) return;
  refuse(longest, 503,
         fmt::format("bodies that are being sent hold the {} bytes that they may, and this one came slowest; try again",
                     room_.most()));
}

void HttpServer::close_late() {
  const auto now = Clock::now();
  for (auto it = parked_.begin(); it != parked_.end();) {
    const auto at = it++;
    const bool late = now >= at->second->deadline();
    if (at->second->in_body() && (late || draining_)) {
      if (draining_) {
        refuse(at, 503, "the server is stopping");
      } else {
        refuse(at, 408, fmt::format("the body did not come whole within {} s (--timeout)", limits_.body_seconds));
      }
    } else if (late || (draining_ && !at->second->has_input() && !at->second->lingers())) {
      ::epoll_ctl(poll_, EPOLL_CTL_DEL, at->first, nullptr);
      parked_.erase(at);
      --open_;
    }
  }
}

/// Bodies that were on their way have been refused: what is answered now is all there is.
void HttpServer::say_swept() {
  const std::lock_guard lock(mutex_);
  swept_ = true;
  less_active_.notify_all();
}

void HttpServer::enqueue(std::unique_ptr<Connection> connection) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(connection));
  if (idle_workers_ < static_cast<int>(waiting_.size()) && static_cast<int>(workers_.size()) < limits_.workers) {
    try {
      workers_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {  // the system gives no more threads: those there are go on
      if (workers_.empty()) {
        log::warn("a request cannot be answered: the system gives no thread for it");
        waiting_.pop_back();
        --open_;
      }
    }
  }
  work_ready_.notify_one();
}

void HttpServer::work() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (waiting_.empty()) {
      ++idle_workers_;
      work_ready_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      --idle_workers_;
      continue;
    }
    auto connection = std::move(waiting_.front());
    waiting_.pop_front();
    Connection* const address = connection.get();
    answering_.insert(address);
    lock.unlock();
    const bool keep = serve(*connection);
    lock.lock();
    answering_.erase(address);  // from here on stop_now() leaves it alone
    less_active_.notify_all();
    if (keep) {
      returned_.push_back(std::move(connection));
      wake();
    } else {
      lock.unlock();
      connection.reset();
      --open_;
      lock.lock();
    }
  }
}

/// Answers what the connection has asked; true if it is to be parked: it may ask again later, or lingers.
bool HttpServer::serve(Connection& connection) {
  for (;;) {
    connection.begin_request();
    t_current = &connection;
    bool go_on = false;
    try {
      go_on = answer_one(connection);
    } catch (const std::exception& error) {
      log::verbose("a connection ended: {}", error.what());
    }
    t_current = nullptr;
    connection.end_request();
    if (!go_on || connection.failed() || connection.closes_after() || stopping_) break;
    if (!connection.has_input() || connection.pump() != Connection::Input::complete) return true;
  }
  if (connection.failed() || stopping_) return false;
  if (connection.closes_after()) {
    connection.linger();
    return true;
  }
  if (!connection.encrypted()) end_gently(connection.fd());
  return false;
}

/// True if the client may ask again.
bool HttpServer::answer_one(Connection& connection) {
  if (connection.refusal()) {
    const auto& [status, sentence] = *connection.refusal();
    const std::string target(read_head(connection.head(), limits_.body_bytes).target);
    log::verbose("a request that is not whole or not well-formed: refused with status {}", status);
    connection.write(last_answer(status, refusal_body_
                                             ? refusal_body_(target, status, sentence)
                                             : plain_body(status, "invalid_request_error", "the request is refused")));
    return false;
  }
  const bool last = draining_ || connection.closes_after() || connection.requests() >= limits_.requests_each;
  ConnectionStream stream(connection);
  bool closed = false;
  // Answers are no files: a list of ranges would multiply one, and each is made anew.
  const bool good = process_request(stream, last, closed, [](httplib::Request& request) { request.ranges.clear(); });
  return good && !closed && !last;
}

void HttpServer::drain() {
  draining_ = true;
  wake();
}

int HttpServer::active() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(waiting_.size() + answering_.size());
}

bool HttpServer::wait_idle(double most_seconds) const {
  std::unique_lock lock(mutex_);
  return less_active_.wait_for(lock, std::chrono::duration<double>(most_seconds), [&] {
    return (swept_ || !draining_ || !poller_.joinable()) && waiting_.empty() && answering_.empty();
  });
}

void HttpServer::stop_now() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = draining_ = true;
    svr_sock_ = INVALID_SOCKET;
    for (const Connection* connection : answering_) connection->abort();
    work_ready_.notify_all();
  }
  wake();
  if (poller_.joinable()) poller_.join();
  std::vector<std::thread> workers;
  {
    const std::lock_guard lock(mutex_);
    workers.swap(workers_);
  }
  for (std::thread& worker : workers) worker.join();
  const std::lock_guard lock(mutex_);
  waiting_.clear();
  returned_.clear();
}

}  // namespace moetier::server
