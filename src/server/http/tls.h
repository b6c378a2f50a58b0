// TLS for the server's connections, by OpenSSL.
#pragma once

#include <memory>
#include <string>

struct ssl_ctx_st;
struct ssl_st;

namespace moetier::server {

struct SslDelete {
  void operator()(ssl_st* ssl) const noexcept;
};
using SslHandle = std::unique_ptr<ssl_st, SslDelete>;

/// A certificate and its key; TLS 1.2 and 1.3.
class Tls {
 public:
  /// PEM files. Errors: a file that cannot be read, a key that is not the certificate's.
  Tls(const std::string& certificate_file, const std::string& key_file);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;
  /// The server's side of a connection on this socket, before its handshake.
  SslHandle accept(int fd) const;

 private:
  ssl_ctx_st* context_;
};

}  // namespace moetier::server
