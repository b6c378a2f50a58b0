#include "server/http/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <cstring>

#include "base/error.h"

namespace moetier::server {
namespace {

std::string reason() {
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  if (ERR_SYSTEM_ERROR(error)) return std::strerror(ERR_GET_REASON(error));
  const char* text = ERR_reason_error_string(error);
  return text == nullptr ? "no reason given" : text;
}

}  // namespace

void SslDelete::operator()(ssl_st* ssl) const noexcept {
  SSL_free(ssl);
}

Tls::Tls(const std::string& certificate_file, const std::string& key_file)
    : context_(SSL_CTX_new(TLS_server_method())) {
  if (context_ == nullptr) fail("TLS cannot be set up: {}", reason());
  try {
    SSL_CTX_set_min_proto_version(context_, TLS1_2_VERSION);
    SSL_CTX_set_options(context_, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(context_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (SSL_CTX_use_certificate_chain_file(context_, certificate_file.c_str()) != 1) {
      fail("the certificate {} cannot be used: {}", certificate_file, reason());
    }
    if (SSL_CTX_use_PrivateKey_file(context_, key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
      fail("the key {} cannot be used: {}", key_file, reason());
    }
    if (SSL_CTX_check_private_key(context_) != 1) {
      fail("the key {} is not that of the certificate {}", key_file, certificate_file);
    }
  } catch (...) {
    SSL_CTX_free(context_);
    throw;
  }
}

Tls::~Tls() {
  SSL_CTX_free(context_);
}

SslHandle Tls::accept(int fd) const {
  SslHandle ssl(SSL_new(context_));
  if (ssl == nullptr || SSL_set_fd(ssl.get(), fd) != 1) fail("a TLS connection cannot be set up: {}", reason());
  SSL_set_accept_state(ssl.get());
  return ssl;
}

}  // namespace moetier::server
