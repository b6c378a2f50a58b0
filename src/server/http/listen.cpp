#include "server/http/listen.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace moetier::server {
namespace {

constexpr int kBacklog = 512;

struct AddressesDelete {
  void operator()(addrinfo* list) const noexcept { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, AddressesDelete>;

Addresses resolve(const std::string& host, int port, int& error) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  return Addresses(list);
}

int bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
  return ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

int try_listen(const addrinfo& a) {
  const int fd = ::socket(a.ai_family, a.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a.ai_protocol);
  if (fd < 0) return -1;
  const int yes = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(fd, a.ai_addr, a.ai_addrlen) == 0 && ::listen(fd, kBacklog) == 0) return fd;
  const int why = errno;
  ::close(fd);
  errno = why;
  return -1;
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24) == 127;
  }
  if (address->sa_family == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  }
  return false;
}

}  // namespace

int listen_on(const std::string& host, int& port) {
  int error = 0;
  const Addresses list = resolve(host, port, error);
  if (list == nullptr) fail("cannot listen on --host {}: {}", host, ::gai_strerror(error));
  int why = 0;
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    const int fd = try_listen(*a);
    if (fd >= 0) {
      port = bound_port(fd);
      return fd;
    }
    why = errno;
  }
  fail("cannot listen on {} port {}: {}{}", host, port, std::strerror(why),
       why == EADDRINUSE ? "; another server runs there, choose another --port" : "");
}

bool is_loopback(const std::string& host) {
  int error = 0;
  const Addresses list = resolve(host, 0, error);
  if (list == nullptr) return false;
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    if (!is_loopback(a->ai_addr)) return false;
  }
  return true;
}

}  // namespace moetier::server
