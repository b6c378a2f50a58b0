// API keys, compared so that the time tells nothing.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace moetier::server {

class ApiKeys {
 public:
  ApiKeys();
  /// An empty key is a usage error.
  void add(std::string_view key);
  /// One key a line; empty lines and lines that begin with # are skipped. Errors: a file without keys, or that cannot
  /// be read.
  void add_file(const std::string& path);
  bool empty() const { return digests_.empty(); }
  size_t size() const { return digests_.size(); }
  /// Takes the same time for any key of the same length, however much of one it matches.
  bool accepts(std::string_view key) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  Digest digest(std::string_view key) const;
  Digest salt_;  // of this process
  std::vector<Digest> digests_;
};

}  // namespace moetier::server
