// What the server is and does: /health, /props, /slots, /metrics, /v1/models.
#include <fmt/format.h>

#include <charconv>

#include "server/api/openai_shapes.h"
#include "server/api/service.h"

namespace moetier::server {
namespace {

Json props(const Service& service) {
  const ServedModel& model = service.model;
  const Tokenizer& words = model.tokenizer();
  GenerationParams defaults;
  defaults.sampler = service.options.defaults.sampler;
  if (!service.options.defaults.seeded) defaults.sampler.seed = 0xffffffffu;  // llama-server's word for a random one
  defaults.max_tokens = service.options.defaults.max_tokens;
  defaults.stop = service.options.defaults.stop;
  defaults.ignore_eog = service.options.defaults.ignore_eog;
  const auto text = [&](TokenId id) { return id >= 0 ? Json(words.text(id)) : Json(""); };
  return {{"default_generation_settings",
           {{"n_ctx", service.scheduler.context_length()}, {"params", settings_json(defaults)}}},
          {"total_slots", service.scheduler.options().parallel},
          {"model_alias", model.name()},
          {"model_path", model.engine().file().path()},
          {"modalities", {{"vision", false}, {"audio", false}}},
          {"chat_template", model.template_source()},
          {"chat_format", to_string(model.format())},
          {"bos_token", text(words.bos())},
          {"eos_token", text(words.eos())},
          {"build_info", "moetier " MOETIER_VERSION},
          {"is_sleeping", false},
          {"settings", service.options.settings}};
}

Json slot_json(const SlotInfo& slot, const Service& service) {
  GenerationParams params;
  const auto* note = dynamic_cast<const GenerationNote*>(slot.note.get());
  if (note != nullptr) params = note->params;
  params.sampler = slot.sampler;
  params.max_tokens = slot.max_tokens;
  const int64_t remaining = slot.max_tokens < 0 ? -1 : std::max<int64_t>(slot.max_tokens - slot.sampled_tokens, 0);
  return {
      {"id", slot.id},
      {"id_task", slot.task == 0 ? Json(-1) : Json(slot.task)},
      {"n_ctx", service.scheduler.context_length()},
      {"speculative", false},
      {"is_processing", slot.busy},
      {"state", !slot.busy    ? "idle"
                : slot.paused ? "paused"
                : slot.prompt ? "prompt"
                              : "generating"},
      {"n_held", slot.held_tokens},
      {"n_prompt", slot.prompt_tokens},
      {"n_prompt_done", slot.prompt_done},
      {"n_prompt_cached", slot.cached_tokens},
      {"seconds", slot.seconds},
      {"params", settings_json(params)},
      {"next_token",
       Json::array({{{"has_next_token", slot.busy}, {"n_remain", remaining}, {"n_decoded", slot.sampled_tokens}}})}};
}

/// `need_idle`: an error if every slot is at work, for load balancers that ask so.
Json slots(const Service& service, bool need_idle) {
  Json out = Json::array();
  bool idle = false;
  for (const SlotInfo& slot : service.scheduler.slots()) {
    out.push_back(slot_json(slot, service));
    idle = idle || !slot.busy;
  }
  if (need_idle && !idle) throw ApiError(503, "every slot is at work");
  return out;
}

/// llama.cpp's number for the kind of vocabulary.
Json vocab_type(const GgufFile& file) {
  const std::string kind = file.get_string("tokenizer.ggml.model").value_or("");
  if (kind == "llama") return 1;
  if (kind == "gpt2" || kind == "gemma4") return 2;
  if (kind == "bert") return 3;
  if (kind == "t5") return 4;
  if (kind == "rwkv") return 5;
  return nullptr;
}

Json model_json(const ServedModel& model, int64_t context) {
  const HParams& h = model.engine().model().hparams();
  const GgufFile& file = model.engine().file();
  int64_t elements = 0;
  uint64_t bytes = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    elements += tensor.elements();
    bytes += tensor.bytes;
  }
  return {{"id", model.name()},
          {"object", "model"},
          {"type", "model"},
          {"display_name", model.name()},
          {"created", model.created()},
          {"owned_by", "moetier"},
          {"meta",
           {{"vocab_type", vocab_type(file)},
            {"n_params", elements},
            {"size", bytes},
            {"n_vocab", model.tokenizer().vocab_size()},
            {"n_ctx", context},
            {"n_ctx_train", h.context_length},
            {"n_embd", h.width},
            {"n_expert", h.experts},
            {"n_expert_used", h.top_k}}}};
}

int slot_number(const std::string& text) {
  int id = -1;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (status != std::errc() || end != text.data() + text.size()) {
    bad_field("id_slot", fmt::format("'{}' is not a slot's number", text.substr(0, 20)));
  }
  return id;
}

void slot_action(const Service& service, const httplib::Request& request, const std::string& body,
                 httplib::Response& response) {
  const int id = slot_number(request.matches[1].str());
  const std::string action = request.get_param_value("action");
  const auto name = [&] {
    const Json json = parse_body(body);
    return Fields(json).need_text("filename");
  };
  if ((action == "save" || action == "restore") && service.scheduler.options().slot_save_path.empty())
    throw ApiError(501, "slots cannot be saved: the server was started without --slot-save-path");
  Json out = {{"id_slot", id}};
  if (action == "save") {
    const std::string file = name();
    const SlotFile done = service.scheduler.save_slot(id, file);
    out["filename"] = file;
    out["n_saved"] = done.tokens;
    out["n_written"] = done.bytes;
    out["timings"] = {{"save_ms", done.seconds * 1000}};
  } else if (action == "restore") {
    const std::string file = name();
    const SlotFile done = service.scheduler.restore_slot(id, file);
    out["filename"] = file;
    out["n_restored"] = done.tokens;
    out["n_read"] = done.bytes;
    out["timings"] = {{"restore_ms", done.seconds * 1000}};
  } else if (action == "erase") {
    out["n_erased"] = service.scheduler.erase_slot(id).tokens;
  } else {
    bad_field("action", "action must be one of save, restore, erase");
  }
  answer(response, out);
}

void health(const Service& service, httplib::Response& response) {
  if (service.scheduler.stopping()) {
    answer_error(response, Api::native, ApiError(503, "the server is stopping"));
    return;
  }
  answer(response, {{"status", "ok"}});
}

}  // namespace

void add_status_routes(Routes& routes) {
  Service& service = routes.service();
  HttpServer& server = routes.server();
  using Reply = httplib::Response;
  for (const char* path : {"/health", "/v1/health"}) {
    routes.get(path, Cost::light, [&](const httplib::Request&, const std::string&, Reply& r) { health(service, r); });
  }
  routes.get("/props", Cost::work,
             [&](const httplib::Request&, const std::string&, Reply& r) { answer(r, props(service)); });
  routes.get("/slots", Cost::work, [&](const httplib::Request& request, const std::string&, Reply& r) {
    const std::string need_idle = request.get_param_value("fail_on_no_slot");
    answer(r, slots(service, !need_idle.empty() && need_idle != "0"));
  });
  routes.get("/lora-adapters", Cost::light,
             [](const httplib::Request&, const std::string&, Reply& r) { answer(r, Json::array()); });
  routes.get("/favicon.ico", Cost::light,
             [](const httplib::Request&, const std::string&, Reply& r) { r.status = 204; });
  routes.post("/infill", Cost::light, [](const httplib::Request&, const std::string&, Reply&) {
    throw ApiError(501, "/infill is not in this version: send a prompt with the model's own marks to /completion");
  });
  routes.post(R"(/slots/([^/]+))", Cost::work, [&](const httplib::Request& request, const std::string& body, Reply& r) {
    slot_action(service, request, body, r);
  });
  routes.get("/metrics", Cost::work, [&](const httplib::Request&, const std::string&, Reply& r) {
    r.set_content(service.scheduler.metrics_text() + http_metrics(service, server),
                  "text/plain; version=0.0.4; charset=utf-8");
  });
  for (const char* path : {"/v1/models", "/models"}) {
    routes.get(path, Cost::work, [&](const httplib::Request&, const std::string&, Reply& r) {
      const Json model = model_json(service.model, service.scheduler.context_length());
      answer(r, {{"object", "list"},
                 {"data", Json::array({model})},
                 {"has_more", false},
                 {"first_id", service.model.name()},
                 {"last_id", service.model.name()}});
    });
  }
  routes.get(R"(/v1/models/(.+))", Cost::work, [&](const httplib::Request& request, const std::string&, Reply& r) {
    const std::string wanted = request.matches[1].str();
    if (wanted != service.model.name()) {
      throw ApiError(404,
                     fmt::format("there is no model '{}' here; this server has '{}'", wanted, service.model.name()),
                     "model", "model_not_found");
    }
    answer(r, model_json(service.model, service.scheduler.context_length()));
  });
}

}  // namespace moetier::server
