// Which web pages may have a browser send requests for them. A browser lets any page post plain text to any address it
// can reach, and only hides the answer; a server without keys has nothing but the headers to tell such a request by.
#pragma once

#include <string_view>

namespace moetier::server {

/// What a browser says of a request, each empty where the header is not there. No page can set one without asking the
/// server first.
struct PageHeaders {
  std::string_view origin, host, forwarded_host;
};

/// Where the server is reached.
struct OwnAddress {
  std::string_view host;  ///< as --host says
  int port = 0;
  bool loopback = false;   ///< only this machine reaches it
  bool encrypted = false;  ///< by itself
};

/// True for a page that this server has not sent: its origin is not where the request went, as Host or, behind a proxy,
/// X-Forwarded-Host (the first of a list) have it. Programs that are no pages send no Origin, or one of another scheme
/// than http.
bool is_foreign_page(const PageHeaders& headers);

/// True where a request went straight to a loopback address under a name that anyone may have led there (DNS
/// rebinding): no address, no name without a dot, not one in .localhost, .local or .internal, not --host. A browser
/// takes what such a page asks for its own.
bool is_foreign_name(std::string_view host, const OwnAddress& own);

}  // namespace moetier::server
