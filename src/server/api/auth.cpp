#include "server/api/auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"

namespace moetier::server {

ApiKeys::ApiKeys() {
  if (RAND_bytes(salt_.data(), static_cast<int>(salt_.size())) != 1) fail("the system gives no random numbers");
}

ApiKeys::Digest ApiKeys::digest(std::string_view key) const {
  Digest out{};
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), salt_.data(), static_cast<int>(salt_.size()),
           reinterpret_cast<const unsigned char*>(key.data()), key.size(), out.data(), &size) == nullptr) {
    fail("an API key cannot be hashed");
  }
  return out;
}

void ApiKeys::add(std::string_view key) {
  if (key.empty()) usage_error("an API key is empty; give one with --api-key, or leave the flag out");
  // The HTTP library decodes %XX in headers, and ends of lines and spaces around do not travel.
  const auto odd = [](char c) { return c == '%' || static_cast<unsigned char>(c) <= ' '; };
  if (std::any_of(key.begin(), key.end(), odd)) {
    usage_error("an API key holds a %, a space or a control character, which would not come through; choose another");
  }
  digests_.push_back(digest(key));
}

void ApiKeys::add_file(const std::string& path) {
  const std::string text = read_file(path, uint64_t{1} << 20);
  const size_t before = digests_.size();
  size_t at = text.starts_with("\xef\xbb\xbf") ? 3 : 0;  // a byte order mark
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line(text.data() + at, end - at);
    at = end + 1;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) line.remove_suffix(1);
    while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
    if (!line.empty() && line.front() != '#') add(line);
  }
  if (digests_.size() == before) usage_error("the file {} holds no API key; it should have one on each line", path);
}

bool ApiKeys::accepts(std::string_view key) const {
  const Digest given = digest(key);
  int found = 0;
  for (const Digest& known : digests_) {
    found |= static_cast<int>(CRYPTO_memcmp(given.data(), known.data(), given.size()) == 0);
  }
  return found != 0;
}

}  // namespace moetier::server
