// libFuzzer: whatever the bytes, a routing trace is read or refused with an Error, and what is read keeps its promises.
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

#include "base/error.h"
#include "experts/replay.h"
#include "experts/trace.h"

namespace {

void check(bool holds) {
  if (!holds) __builtin_trap();
}

void check_trace(const moetier::RoutingTrace& t, size_t size) {
  using namespace moetier;
  check(!t.routings.empty() && t.tokens > 0 && t.ids.size() == t.weights.size() && t.ids.size() <= size);
  check(t.residency.empty() || t.residency.size() == t.ids.size());
  check(t.entry_bytes.empty() || t.entry_bytes.size() == static_cast<size_t>(t.n_layer));
  check(t.dense_bytes.empty() || t.dense_bytes.size() == static_cast<size_t>(t.n_layer));
  std::pair<int32_t, int32_t> last = {-1, -1};
  int32_t token = -1;
  for (const Routing& r : t.routings) {
    check(std::pair(r.token, r.layer) > last && r.token <= token + 1 && r.token < t.tokens);
    token = r.token;
    last = {r.token, r.layer};
    check(r.layer >= 0 && r.layer < t.n_layer && r.count >= 1 && r.count <= static_cast<uint32_t>(t.top_k));
    check(size_t{r.first} + r.count <= t.ids.size());
    std::set<int32_t> distinct;
    for (const int32_t id : t.picks(r)) check(id >= 0 && id < t.n_expert && distinct.insert(id).second);
  }
  check(token + 1 == t.tokens);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moetier;
  try {
    const RoutingTrace trace = parse_trace({reinterpret_cast<const std::byte*>(data), size}, "fuzz", 1);
    check_trace(trace, size);
    const auto replay = replay_trace(trace, "fuzz", 3, trace.n_expert, size % 2 == 0);
    for (int64_t token = 0; token < 4; ++token)
      check(replay->picks(2, token).ids.size() == static_cast<size_t>(trace.top_k));
  } catch (const Error&) {
    // a refusal
  }
  return 0;
}
