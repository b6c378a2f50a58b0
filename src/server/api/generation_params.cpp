#include "server/api/generation_params.h"

#include <fmt/format.h>

#include <limits>

#include "base/error.h"
#include "server/api/sampler_params.h"

namespace moetier::server {
namespace {

constexpr int64_t kMostInt = std::numeric_limits<int32_t>::max();

void read_structure(const Fields& f, GenerationParams& p) {
  if (const std::string* grammar = f.text("grammar")) p.grammar = *grammar;
  if (const Json* schema = f.find("json_schema")) {
    if (!schema->is_object() && !schema->is_boolean()) f.wrong("json_schema", "an object");
    p.schema = *schema;
  }
  if (const Json* format = f.object("response_format"))
    read_response_format(Fields(*format, f.path("response_format")), p);
  if (!p.grammar.empty() && (p.schema.has_value() || p.json_object)) {
    bad_field(f.path("grammar"), "grammar and a JSON schema exclude each other; give one of them");
  }
}

/// What is asked for under other names than texts and tokens, and cannot be had.
void refuse_other_work(const Fields& f, bool native) {
  if (const Json* images = f.find("image_data"); images != nullptr && !(images->is_array() && images->empty()))
    bad_field(f.path("image_data"), "image_data cannot be used: this server reads texts alone");
  if (const Json* lora = f.array("lora"); lora != nullptr && !lora->empty())
    bad_field(f.path("lora"), "lora must be empty: this server has no adapters");
  if (native) return;
  if (f.boolean("post_sampling_probs").value_or(false))
    bad_field(f.path("post_sampling_probs"), "post_sampling_probs is taken by /completion alone");
  if (const Json* fields = f.array("response_fields"); fields != nullptr && !fields->empty())
    bad_field(f.path("response_fields"), "response_fields is taken by /completion alone");
}

/// Of several names the first that sets a bound; -1 and -2 (until the context is full, which is the same here) set
/// none.
std::optional<int64_t> read_max_tokens(const Fields& f) {
  std::optional<int64_t> most;
  for (const char* name : {"max_completion_tokens", "max_tokens", "n_predict"}) {
    const auto v = f.integer(name, -2, kMostInt);
    if (!v) continue;
    if (!most || *most < 0) most = std::max<int64_t>(*v, -1);
  }
  return most;
}

}  // namespace

void read_response_format(const Fields& format, GenerationParams& p) {
  const auto type = format.choice("type", {"text", "json_object", "json_schema"});
  if (!type) format.need_text("type");
  if (*type == "json_object") {
    // llama-server takes a schema here, too.
    if (const Json* schema = format.object("schema")) {
      p.schema = *schema;
    } else {
      p.json_object = true;
    }
  } else if (*type == "json_schema") {
    // Chat nests name and schema in json_schema; responses do not.
    const Json* nested = format.object("json_schema");
    const Fields inner = nested == nullptr ? format : Fields(*nested, format.path("json_schema"));
    const Json* schema = inner.find("schema");
    if (schema == nullptr || !(schema->is_object() || schema->is_boolean())) inner.wrong("schema", "an object");
    p.schema = *schema;
  }
}

GenerationParams read_generation(const Fields& f, const GenerationDefaults& defaults, const ServedModel& model,
                                 bool native) {
  GenerationParams p;
  p.max_tokens = defaults.max_tokens;
  p.stop = defaults.stop;
  p.time_limit = defaults.time_limit;
  read_sampler(f, defaults, model, p);
  refuse_other_work(f, native);
  if (const auto most = read_max_tokens(f)) p.max_tokens = *most;
  for (std::string& stop : f.texts("stop")) {
    if (stop.empty()) bad_field(f.path("stop"), f.path("stop") + " holds an empty text");
    p.stop.push_back(std::move(stop));
  }
  p.ignore_eog = f.boolean("ignore_eos").value_or(defaults.ignore_eog);
  for (const char* name : {"n_cmpl", "n"}) {
    if (const auto n = f.integer(name, 1, defaults.most_choices)) p.n = static_cast<int>(*n);
  }
  p.n_keep = static_cast<int>(f.integer("n_keep", -1, kMostInt).value_or(0));
  p.stream = f.boolean("stream").value_or(false);
  if (const Json* options = f.object("stream_options")) {
    p.include_usage = Fields(*options, f.path("stream_options")).boolean("include_usage").value_or(false);
  }
  p.cache_prompt = f.boolean("cache_prompt").value_or(true);
  p.slot = static_cast<int>(f.integer("id_slot", -1, 65535).value_or(-1));
  if (const auto ms = f.integer("t_max_predict_ms", -1, kMostInt); ms && *ms > 0) {
    const double limit = static_cast<double>(*ms) / 1000;
    if (p.time_limit == 0 || limit < p.time_limit) p.time_limit = limit;
  }
  p.progress = f.boolean("return_progress").value_or(false);
  p.timings = f.boolean("timings_per_token").value_or(false);
  read_structure(f, p);
  return p;
}

Request to_request(const GenerationParams& p) {
  Request request;
  request.sampler = p.sampler;
  request.max_tokens = p.max_tokens;
  request.stop = p.stop;
  request.ignore_eog = p.ignore_eog;
  request.n_probs = p.n_probs;
  request.prompt_probs = p.prompt_probs;
  request.cache_prompt = p.cache_prompt;
  request.slot = p.slot;
  request.time_limit = p.time_limit;
  request.progress = p.progress;
  request.timings = p.timings;
  request.sampled_probs = p.sampled_probs;
  request.note = std::make_shared<GenerationNote>(p);
  return request;
}

Json settings_json(const GenerationParams& p) {
  Json json = sampler_json(p);
  json.update({{"stop", p.stop},
               {"max_tokens", p.max_tokens},
               {"n_predict", p.max_tokens},
               {"n_keep", p.n_keep},
               {"n_probs", std::max(p.n_probs, 0)},
               {"ignore_eos", p.ignore_eog},
               {"stream", p.stream},
               {"timings_per_token", p.timings},
               {"post_sampling_probs", p.sampled_probs},
               {"grammar", p.grammar},
               {"lora", Json::array()}});
  return json;
}

}  // namespace moetier::server
