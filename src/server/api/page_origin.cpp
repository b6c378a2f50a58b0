#include "server/api/page_origin.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <string>

namespace moetier::server {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

struct Address {
  std::string name, port;  // an IPv6 address without its brackets
};

Address split(const std::string& authority, std::string_view default_port) {
  const size_t bracket = authority.find(']');
  const size_t colon = authority.find(':', bracket == std::string::npos ? 0 : bracket);
  std::string_view name = std::string_view(authority).substr(0, colon);
  if (bracket != std::string::npos && name.starts_with('[')) name = name.substr(1, bracket - 1);
  return {std::string(name), std::string(colon == std::string_view::npos ? default_port : authority.substr(colon + 1))};
}

bool is_address(const std::string& name) {
  in6_addr any;
  return inet_pton(AF_INET, name.c_str(), &any) == 1 || inet_pton(AF_INET6, name.c_str(), &any) == 1;
}

/// Whether nobody else can have the name lead here.
bool is_certain(const std::string& name, std::string_view own) {
  const auto reserved = [&](std::string_view domain) { return name.ends_with(domain); };
  return name.find('.') == std::string::npos || reserved(".localhost") || reserved(".local") || reserved(".internal") ||
         is_address(name) || name == lower(own);
}

std::string_view first_of(std::string_view list) {
  const std::string_view first = list.substr(0, list.find(','));
  return first.substr(0, first.find_last_not_of(' ') + 1);
}

}  // namespace

bool is_foreign_page(const PageHeaders& headers) {
  const std::string origin = lower(headers.origin);
  if (origin == "null") return true;
  const bool encrypted = origin.starts_with("https://");
  if (!encrypted && !origin.starts_with("http://")) return false;
  const std::string from = origin.substr(encrypted ? 8 : 7);
  return from.empty() || (from != lower(headers.host) && from != lower(first_of(headers.forwarded_host)));
}

bool is_foreign_name(std::string_view host, const OwnAddress& own) {
  const Address asked = split(lower(host), own.encrypted ? "443" : "80");
  return own.loopback && asked.port == std::to_string(own.port) && !is_certain(asked.name, own.host);
}

}  // namespace moetier::server
