// What a request's head says about its end. Where a proxy and this server could read that differently, the bytes behind
// would be one's body and the other's next request, so such a head is refused and its connection closed.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace moetier::server {

/// Why a request is not read on.
struct HeadFault {
  int status;            ///< 400, 413, 414, 431 or 501
  std::string sentence;  ///< may quote the client
};

struct RequestHead {
  std::string_view method, target;  ///< as written; empty where the first line is no request line
  bool has_body() const { return chunked || length > 0; }
  bool chunked = false;
  size_t length = 0;           ///< of the body, in bytes, unless it is chunked
  bool asks_to_go_on = false;  ///< it waits for "100 Continue" before it sends its body
  std::optional<HeadFault> fault;
};

/// Reads `head`, from the request line to the empty line that ends it, that included. Faults: a line end that is not
/// CR LF, other control characters, a header that is folded or is no NAME: VALUE, a Content-Length that is no number or
/// comes with others that differ or with Transfer-Encoding, one above `body_bytes`, a Transfer-Encoding but chunked,
/// lines longer than the HTTP library takes. What it does not look at (the method, say) is the library's. RFC
/// 9112, 2.2, 5, 6.
RequestHead read_head(std::string_view head, size_t body_bytes);

/// What a client is told whose body is larger.
std::string body_too_large(size_t most_bytes);

}  // namespace moetier::server
