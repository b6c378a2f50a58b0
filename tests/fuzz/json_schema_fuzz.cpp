// Makes a grammar of any JSON: an Error, or one that compiles (or is refused with an Error).
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/grammar.h"
#include "engine/json_schema.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using Json = nlohmann::ordered_json;
  const auto shallow = [](int depth, Json::parse_event_t, Json&) { return depth <= 100; };
  const Json schema = Json::parse(data, data + size, shallow, false);
  if (schema.is_discarded()) return 0;
  moetier::JsonSchemaOptions options;
  options.max_grammar = 1 << 16;
  try {
    moetier::Grammar::compile(moetier::json_schema_grammar(schema, options));
  } catch (const moetier::Error&) {
    // a refusal
  }
  return 0;
}
