// libFuzzer: whatever comes on a connection, a request's end is found or refused, and is the same however it is cut.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "server/http/request_body.h"
#include "server/http/request_head.h"

namespace {

using moetier::server::BodyScan;

constexpr size_t kMost = 4096;  // bytes of a body

void check(bool holds) {
  if (!holds) __builtin_trap();
}

void check_body(const moetier::server::RequestHead& head, std::string_view body, size_t step) {
  using State = BodyScan::State;
  BodyScan whole(head, kMost), slow(head, kMost);
  const State state = whole.look(body);
  check(whole.size() <= body.size());
  State now = State::incomplete;
  size_t seen = 0;
  while (now == State::incomplete && seen < body.size()) {
    seen = std::min(body.size(), seen + step);
    now = slow.look(body.substr(0, seen));
  }
  if (body.empty()) now = slow.look(body);
  check(now == state);
  if (state == State::whole) check(slow.size() == whole.size() && slow.look(body.substr(0, whole.size())) == state);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moetier::server;
  if (size == 0) return 0;
  const size_t step = size_t{data[0]} % 7 + 1;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t end = text.find("\r\n\r\n");
  const std::string_view head_text = text.substr(0, end == std::string_view::npos ? end : end + 4);
  const RequestHead head = read_head(head_text, kMost);
  if (head.fault) {
    check(head.fault->status >= 400 && !head.fault->sentence.empty());
    return 0;
  }
  check(!head.chunked || head.length == 0);
  check_body(head, text.substr(head_text.size()), step);
  return 0;
}
