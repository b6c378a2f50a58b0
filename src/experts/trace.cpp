#include "experts/trace.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "experts/trace_builder.h"
#include "experts/trace_input.h"

namespace moetier {

static_assert(std::endian::native == std::endian::little, "binary traces are read as they lie in memory");

void TraceBuilder::begin(int32_t token, int32_t layer, bool prompt, const std::string& name) {
  if (trace.routings.size() >= UINT32_MAX / 2 || trace.ids.size() >= UINT32_MAX / 2)
    fail("{} holds more than {} routings or picks", name, UINT32_MAX / 2);
  trace.routings.push_back({token, layer, prompt, static_cast<uint32_t>(trace.ids.size()), 0});
  trace.n_layer = std::max(trace.n_layer, layer + 1);
}

bool TraceBuilder::add(int32_t id, float weight) {
  uint32_t& seen = seen_in_[static_cast<size_t>(id)];
  const auto number = static_cast<uint32_t>(trace.routings.size());
  if (seen == number) return false;
  seen = number;
  trace.ids.push_back(id);
  trace.weights.push_back(weight != weight ? 0 : weight);
  trace.n_expert = std::max(trace.n_expert, id + 1);
  const uint32_t count = ++trace.routings.back().count;
  trace.top_k = std::max(trace.top_k, static_cast<int>(count));
  return true;
}

void TraceBuilder::end_turn(const std::string& name) {
  const auto first = trace.routings.begin() + static_cast<ptrdiff_t>(turn_first_), last = trace.routings.end();
  const auto before = [](const Routing& a, const Routing& b) {
    return std::pair(a.token, a.layer) < std::pair(b.token, b.layer);
  };
  if (!std::is_sorted(first, last, before)) std::stable_sort(first, last, before);
  for (auto r = first; r != last;) {
    const int32_t step = r->token;
    const auto begin = r;
    for (; r != last && r->token == step; ++r) {
      if (r != begin && r->layer == (r - 1)->layer)
        fail("{}: layer {} of step {} occurs twice in one turn, so its tokens cannot be told apart", name, r->layer,
             step);
      if (r->prompt != begin->prompt)
        fail("{}: step {} is prompt in layer {} and decoded in layer {}", name, step,
             (begin->prompt ? begin : r)->layer, (begin->prompt ? r : begin)->layer);
    }
    for (auto same = begin; same != r; ++same) same->token = static_cast<int32_t>(trace.tokens);
    ++trace.tokens;
  }
  turn_first_ = trace.routings.size();
}

RoutingTrace TraceBuilder::finish(const std::string& name) {
  end_turn(name);
  if (trace.routings.empty()) fail("{} holds no routing", name);
  return std::move(trace);
}

RoutingTrace read_binary_trace(TraceInput& input, int64_t prompt_tokens) {
  TraceBuilder builder;
  const std::string& name = input.name();
  int32_t token = 0, last_layer = -1;
  std::string record;
  for (;;) {
    const uint64_t at = input.offset();
    const auto take = [&](void* to, size_t bytes) {
      const std::string_view held = input.peek(bytes);
      if (held.size() < bytes) fail("{} ends within the record at byte {}; was it cut short?", name, at);
      std::memcpy(to, held.data(), bytes);
      input.skip(bytes);
    };
    if (input.peek(1).empty()) break;
    int32_t head[2];
    take(head, sizeof head);
    const auto [layer, k] = std::pair(head[0], head[1]);
    if (layer < 0 || layer >= kMaxTraceLayers || k < 1 || k > kMaxTraceExperts)
      fail("{}: the record at byte {} has layer {} and {} picks, so this is no routing trace, binary or CSV", name, at,
           layer, k);
    if (layer <= last_layer) ++token;
    last_layer = layer;
    builder.begin(token, layer, token < prompt_tokens, name);
    record.resize(static_cast<size_t>(k) * 8);
    take(record.data(), record.size());
    for (int32_t i = 0; i < k; ++i) {
      int32_t id = 0;
      float weight = 0;
      std::memcpy(&id, record.data() + i * ptrdiff_t{4}, sizeof id);
      std::memcpy(&weight, record.data() + (k + i) * ptrdiff_t{4}, sizeof weight);
      if (id < 0 || id >= kMaxTraceExperts || std::isinf(weight))
        fail("{}: the record at byte {} picks expert {} with weight {}", name, at, id, weight);
      if (!builder.add(id, weight)) fail("{}: the record at byte {} picks expert {} twice", name, at, id);
    }
  }
  return builder.finish(name);
}

namespace {

RoutingTrace read(TraceInput& input, int64_t prompt_tokens) {
  if (prompt_tokens < 0) usage_error("a trace cannot have {} prompt tokens", prompt_tokens);
  // A binary trace begins with a layer number, whose upper bytes are 0.
  const std::string_view head = input.peek(4);
  if (head.empty()) fail("{} is empty, and a routing trace was expected", input.name());
  const bool csv = head.size() == 4 && head.find('\0') == std::string_view::npos;
  return csv ? read_csv_trace(input) : read_binary_trace(input, prompt_tokens);
}

}  // namespace

RoutingTrace read_trace(const std::string& path, int64_t prompt_tokens) {
  TraceInput input(path);
  return read(input, prompt_tokens);
}

RoutingTrace parse_trace(std::span<const std::byte> bytes, const std::string& name, int64_t prompt_tokens) {
  TraceInput input(bytes, name);
  return read(input, prompt_tokens);
}

}  // namespace moetier
