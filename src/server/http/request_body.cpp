#include "server/http/request_body.h"

#include <algorithm>
#include <charconv>

namespace moetier::server {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr size_t kMostFraming = size_t{64} << 10;
constexpr size_t kMostSizeLine = 256;

/// A chunk's size from its line, which may have extensions; false where it is none.
bool read_size(std::string_view line, size_t& size) {
  const auto read = std::from_chars(line.data(), line.data() + line.size(), size, 16);
  const size_t digits = static_cast<size_t>(read.ptr - line.data());
  if (read.ec == std::errc::result_out_of_range) size = SIZE_MAX;
  const bool plain = std::none_of(line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; });
  const std::string_view rest = line.substr(digits);
  const size_t next = rest.find_first_not_of(' ');
  return digits > 0 && plain && (next == std::string_view::npos || rest[next] == ';');
}

}  // namespace

BodyScan::BodyScan(const RequestHead& head, size_t most) : chunked_(head.chunked), most_(most), length_(head.length) {}

BodyScan::State BodyScan::look(std::string_view body) {
  if (chunked_) return look_at_chunks(body);
  at_ = std::min(length_, body.size());
  return at_ == length_ ? State::whole : State::incomplete;
}

BodyScan::State BodyScan::look_at_chunks(std::string_view body) {
  for (;;) {
    if (at_ > most_ + kMostFraming) return State::too_large;
    const std::string_view rest = body.substr(at_);
    State state = State::incomplete;
    const size_t before = at_;
    switch (part_) {
      case Part::chunk_size:
        state = take_size(rest);
        break;
      case Part::chunk:
        at_ += std::min(left_, rest.size());
        left_ -= at_ - before;
        if (left_ == 0) part_ = Part::chunk_end;
        break;
      case Part::chunk_end:
        state = take_line_end(rest, Part::chunk_size);
        break;
      case Part::last_end:
        state = take_line_end(rest, Part::end);
        break;
      case Part::end:
        return State::whole;
    }
    if (state != State::incomplete || at_ == before) return state;
  }
}

BodyScan::State BodyScan::take_size(std::string_view rest) {
  const size_t end = rest.substr(0, kMostSizeLine).find(kLineEnd);
  if (end == std::string_view::npos) return rest.size() < kMostSizeLine ? State::incomplete : State::malformed;
  size_t size = 0;
  if (!read_size(rest.substr(0, end), size)) return State::malformed;
  if (size > most_ - content_) return State::too_large;
  content_ += size;
  left_ = size;
  at_ += end + kLineEnd.size();
  part_ = size == 0 ? Part::last_end : Part::chunk;
  return State::incomplete;
}

BodyScan::State BodyScan::take_line_end(std::string_view rest, Part next) {
  const std::string_view there = rest.substr(0, kLineEnd.size());
  if (!kLineEnd.starts_with(there)) return State::malformed;
  if (there.size() == kLineEnd.size()) {
    at_ += there.size();
    part_ = next;
  }
  return State::incomplete;
}

}  // namespace moetier::server
