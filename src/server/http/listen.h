// Binding the server's socket.
#pragma once

#include <string>

namespace moetier::server {

/// A non-blocking socket that listens on `host`, a name or an address; `port` 0 takes any and sets it. Errors name the
/// address and the reason.
int listen_on(const std::string& host, int& port);

/// True if only this machine can reach what is bound to `host`.
bool is_loopback(const std::string& host);

}  // namespace moetier::server
