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

Address split(std::string_view authority, std::string_view default_port) {
  const size_t bracket = authority.find(']');
  const size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  std::string_view name = authority.substr(0, colon);
  if (bracket != std::string_view::npos && name.starts_with('[')) name = name.substr(1, bracket - 1);
  return {std::string(name), std::string(colon == std::string_view::npos ? default_port : authority.substr(colon + 1))};
}

bool is_address(const std::string& name) {
  in6_addr any;
  return inet_pton(AF_INET, name.c_str(), &any) == 1 || inet_pton(AF_INET6, name.c_str(), &any) == 1;
}

/// Whether nobody else can have the name lead here.
bool is_certain(const std::string& name, std::string_view own) {
  return name == "localhost" || name.ends_with(".localhost") || is_address(name) || name == lower(own);
}

}  // namespace

bool is_foreign_page(const PageHeaders& headers, const OwnAddress& own) {
  const std::string origin = lower(headers.origin);
  if (origin == "null") return true;
  const bool encrypted = origin.starts_with("https://");
  if (!encrypted && !origin.starts_with("http://")) return false;
  const std::string from = origin.substr(encrypted ? 8 : 7);
  if (from.empty()) return true;
  if (from != lower(headers.host) && from != lower(headers.forwarded_host)) return true;
  const Address page = split(from, encrypted ? "443" : "80");
  return own.loopback && page.port == std::to_string(own.port) && !is_certain(page.name, own.host);
}

}  // namespace moetier::server
