#include "server/http/request_head.h"

#include <fmt/format.h>
#include <httplib.h>

#include <algorithm>
#include <charconv>

namespace moetier::server {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr size_t kQuoted = 40;  // of what a client sent, in an answer

/// Thrown and caught in this file.
struct Refused {
  HeadFault fault;
};

[[noreturn]] void refuse(int status, std::string sentence) {
  throw Refused{{status, std::move(sentence)}};
}

bool same_word(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// A token of RFC 9110, 5.6.2.
bool is_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  };
  return !name.empty() && std::all_of(name.begin(), name.end(), fits);
}

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\t') || byte == 0x7f;
}

/// What the headers say of the body.
class Framing {
 public:
  void header(std::string_view name, std::string_view value) {
    if (same_word(name, "Content-Length")) length(value);
    if (same_word(name, "Transfer-Encoding")) {
      if (chunked_ || !same_word(value, "chunked"))
        refuse(501, "a Transfer-Encoding other than chunked, once, is not taken");
      chunked_ = true;
    }
    if (same_word(name, "Expect")) asks_ = same_word(value, "100-continue");
  }

  /// Refuses a body that is too large, or whose end is in doubt.
  void tell(std::string_view version, size_t most, RequestHead& out) const {
    if (chunked_ && given_) refuse(400, "Content-Length and Transfer-Encoding contradict each other: send one of them");
    if (chunked_ && version != "HTTP/1.1") refuse(400, "Transfer-Encoding needs HTTP/1.1");
    if (length_ > most) refuse(413, body_too_large(most));
    out.chunked = chunked_;
    out.length = length_;
    out.asks_to_go_on = asks_;
  }

 private:
  void length(std::string_view value) {
    size_t bytes = 0;
    const auto read = std::from_chars(value.data(), value.data() + value.size(), bytes);
    const bool digits =
        !value.empty() && std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits)
      refuse(400, fmt::format("Content-Length must be a number of bytes, and it is '{}'", value.substr(0, kQuoted)));
    if (read.ec != std::errc()) bytes = SIZE_MAX;
    if (given_ && bytes != length_) refuse(400, "the request has two Content-Lengths that differ: send one");
    given_ = true;
    length_ = bytes;
  }

  bool chunked_ = false, given_ = false, asks_ = false;
  size_t length_ = 0;
};

/// The line at the front, without its end.
std::string_view take_line(std::string_view& head) {
  const std::string_view line = head.substr(0, head.find(kLineEnd));
  head.remove_prefix(std::min(head.size(), line.size() + kLineEnd.size()));
  return line;
}

void read_lines(std::string_view head, size_t body_bytes, RequestHead& out) {
  const std::string_view first = take_line(head);
  const size_t space = first.find(' '), second = first.find(' ', space + 1);
  std::string_view version;
  if (space != std::string_view::npos && second != std::string_view::npos) {
    out.method = first.substr(0, space);
    out.target = first.substr(space + 1, second - space - 1);
    version = first.substr(second + 1);
  }
  if (first.size() + kLineEnd.size() > CPPHTTPLIB_REQUEST_URI_MAX_LENGTH) {
    refuse(414, fmt::format("the request's first line has {} bytes, and up to {} are taken: send less in the address",
                            first.size(), CPPHTTPLIB_REQUEST_URI_MAX_LENGTH - kLineEnd.size()));
  }
  if (std::any_of(first.begin(), first.end(), is_control))
    refuse(400, "the request's first line holds a control character");
  Framing framing;
  while (!head.empty()) {
    const std::string_view line = take_line(head);
    if (line.empty()) break;
    if (line.size() + kLineEnd.size() > CPPHTTPLIB_HEADER_MAX_LENGTH)
      refuse(431, fmt::format("a header has more than {} bytes", CPPHTTPLIB_HEADER_MAX_LENGTH - kLineEnd.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_name(line.substr(0, colon)))
      refuse(400, fmt::format("a header is not NAME: VALUE: '{}'", line.substr(0, kQuoted)));
    const std::string_view name = line.substr(0, colon);
    if (std::any_of(line.begin(), line.end(), is_control))
      refuse(400, fmt::format("the header {} holds a control character", name.substr(0, kQuoted)));
    framing.header(name, trimmed(line.substr(colon + 1)));
  }
  framing.tell(version, body_bytes, out);
}

}  // namespace

std::string body_too_large(size_t most_bytes) {
  return fmt::format("the body is larger than the {} bytes that --max-body-mib allows", most_bytes);
}

RequestHead read_head(std::string_view head, size_t body_bytes) {
  RequestHead out;
  try {
    read_lines(head, body_bytes, out);
  } catch (Refused& refused) {
    out.fault = std::move(refused.fault);
  }
  return out;
}

}  // namespace moetier::server
