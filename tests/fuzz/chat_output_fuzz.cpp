// Takes any text apart in any format, whole and in pieces: the same comes out, nothing is lost, and calls are objects.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/chat_output.h"

namespace {

using Kind = moetier::ChatPiece::Kind;

struct Outcome {
  std::string raw, shown;
  Kind last = Kind::markup;
  bool begun = false;

  void take(const std::vector<moetier::ChatPiece>& pieces) {
    for (const auto& p : pieces) {
      raw += p.raw;
      const bool call = p.kind != Kind::content && p.kind != Kind::reasoning && p.kind != Kind::markup &&
                        p.kind != Kind::call_arguments;
      if (!begun || p.kind != last || call) shown += static_cast<char>('0' + static_cast<int>(p.kind));
      shown += p.raw + p.call.name + p.call.arguments;
      begun = true;
      last = p.kind;
      const bool whole = p.kind == Kind::tool_call || p.kind == Kind::call_end;
      if (whole && !nlohmann::json::parse(p.call.arguments, nullptr, false).is_object()) std::abort();
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto format = static_cast<moetier::ChatFormat>(data[0] % 15);
  const size_t step = 1 + data[1] % 16;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  moetier::ChatOutputOptions options;
  options.in_reasoning = (data[1] & 64) != 0;
  options.tools = (data[1] & 128) == 0;
  options.call_parts = (data[1] & 32) != 0;
  const bool cut = (data[1] & 16) != 0;
  Outcome whole, pieces;
  moetier::ChatOutputParser one(format, options), many(format, options);
  whole.take(one.push(text));
  whole.take(one.finish(cut));
  for (size_t at = 0; at < text.size(); at += step) pieces.take(many.push(text.substr(at, step)));
  pieces.take(many.finish(cut));
  if (whole.raw != text || pieces.raw != text || whole.shown != pieces.shown) std::abort();
  return 0;
}
