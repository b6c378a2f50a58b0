// Telling the service manager how the server is.
#pragma once

#include <string>

namespace moetier::server {

/// Sends a state ("READY=1", "STOPPING=1", "STATUS=...") to systemd where it asked for it ($NOTIFY_SOCKET, the protocol
/// of sd_notify(3)); elsewhere it does nothing.
void notify_manager(const std::string& state);

}  // namespace moetier::server
