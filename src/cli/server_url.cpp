#include "cli/server_url.h"

#include <string_view>

#include "base/error.h"

namespace moetier::cli {

ServerUrl parse_server_url(const std::string& url) {
  const size_t scheme = url.find("://");
  const std::string_view name = std::string_view(url).substr(0, scheme == std::string::npos ? 0 : scheme);
  if (name != "http" && name != "https") usage_error("--url {} is no address: write http://HOST:PORT", url);
  const size_t path = url.find('/', scheme + 3);
  std::string prefix = path == std::string::npos ? "" : url.substr(path);
  while (prefix.ends_with('/')) prefix.pop_back();
  if (prefix.ends_with("/v1")) prefix.resize(prefix.size() - 3);
  return {url.substr(0, path), prefix};
}

}  // namespace moetier::cli
