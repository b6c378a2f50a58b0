// What one client may cost the server.
#pragma once

#include <cstddef>

namespace moetier::server {

struct HttpLimits {
  size_t header_bytes = size_t{32} << 10;  ///< request line and headers together
  size_t body_bytes = size_t{32} << 20;    ///< of a request, also if it is chunked or compressed
  double header_seconds = 10;  ///< from a request's first byte (or the connection) to the end of its headers
  double body_seconds = 60;    ///< from there to the end of its body
  int bodies_at_once = 8;      ///< times body_bytes: what all bodies hold together on their way in
  double idle_seconds = 30;    ///< a connection may wait so long for its next request
  double write_seconds = 30;   ///< a reader has so long for each 16 KiB of an answer; then the connection is closed
  int connections = 1024;      ///< open ones; more are refused
  int workers = 64;            ///< requests that are worked on at once, a thread each
  int requests_each = 1000;    ///< requests on one connection
};

}  // namespace moetier::server
