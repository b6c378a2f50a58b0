#include "cli/inspect_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/units.h"
#include "compute/cpu/cpu_compute.h"
#include "engine/residency.h"
#include "experts/entry_map.h"
#include "model/model.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const GgufValue& value, int64_t max_elements);

Json array_json(const GgufArray& array, int64_t max_elements) {
  Json out = Json::array();
  std::visit(
      [&](const auto& elements) {
        for (size_t i = 0; i < elements.size(); ++i) {
          if (max_elements >= 0 && static_cast<int64_t>(i) >= max_elements) break;
          if constexpr (std::is_same_v<std::decay_t<decltype(elements)>,
                                       std::vector<std::shared_ptr<const GgufArray>>>) {
            out.push_back(array_json(*elements[i], max_elements));
          } else if constexpr (std::is_same_v<std::decay_t<decltype(elements)>, std::vector<bool>>) {
            out.push_back(static_cast<bool>(elements[i]));
          } else {
            out.push_back(elements[i]);
          }
        }
      },
      array.elements);
  return out;
}

Json to_json(const GgufValue& value, int64_t max_elements) {
  return std::visit(
      [&](const auto& v) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::shared_ptr<const GgufArray>>) {
          return array_json(*v, max_elements);
        } else {
          return v;
        }
      },
      value);
}

Json metadata_json(const GgufFile& file, int64_t max_elements) {
  Json out = Json::object();
  for (const auto& [key, value] : file.metadata()) {
    Json item = {{"type", gguf_type_name(gguf_type(value))}};
    if (const auto* array = std::get_if<std::shared_ptr<const GgufArray>>(&value)) {
      item["element_type"] = gguf_type_name((*array)->element_type);
      item["count"] = (*array)->size();
    }
    item["value"] = to_json(value, max_elements);
    out[key] = std::move(item);
  }
  return out;
}

Json tensors_json(const GgufFile& file) {
  Json out = Json::array();
  for (const TensorInfo& tensor : file.tensors()) {
    std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.begin() + std::clamp(tensor.n_dims, 1, 4));
    out.push_back({{"name", tensor.name},
                   {"type", type_name(tensor.type)},
                   {"shape", shape},
                   {"bytes", tensor.bytes},
                   {"shard", tensor.shard},
                   {"offset", tensor.offset}});
  }
  return out;
}

/// Bytes of tensors by type, most first.
Json types_json(const GgufFile& file) {
  std::map<std::string, uint64_t> bytes;
  for (const TensorInfo& tensor : file.tensors()) bytes[std::string(type_name(tensor.type))] += tensor.bytes;
  std::vector<std::pair<std::string, uint64_t>> sorted(bytes.begin(), bytes.end());
  std::ranges::stable_sort(sorted, std::greater{}, &std::pair<std::string, uint64_t>::second);
  Json out = Json::object();
  for (const auto& [name, n] : sorted) out[name] = n;
  return out;
}

/// Whether text goes in and out, or only token ids.
Json text_json(const GgufFile& file) {
  try {
    static_cast<void>(Tokenizer::load(file));
    return {{"readable", true}, {"reason", nullptr}};
  } catch (const Error& error) {
    return {{"readable", false}, {"reason", error.what()}};
  }
}

/// What a run without further flags would put where, with the memory there is now. Needs a model that runs.
Json tiers_json(const GgufFile& file, const EntryMap& map) {
  const Residency residency = planned_residency(file, map, {});
  const SizingPlan& plan = residency.plan;
  const uint64_t bank = plan.input.bank;
  const bool whole = plan.mode == ExpertMode::resident || plan.mode == ExpertMode::mmap;
  return {{"mode", to_string(plan.mode)},
          {"why", plan.why},
          {"memory_available_bytes", plan.input.available ? Json(*plan.input.available) : Json(nullptr)},
          {"host_entry_bytes", whole ? bank : std::min(plan.budget, bank)},
          {"host_dense_bytes", plan.input.dense + plan.input.dense_mapped},
          {"context_bytes", plan.input.kv + plan.input.buffers},
          {"file_entry_bytes", whole ? 0 : bank - std::min(plan.budget, bank)}};
}

/// Whether this program runs the model, and if not, one sentence why.
Json verdict(const GgufFile& file) {
  try {
    const auto compute = make_cpu_compute({.threads = 1, .isa = Isa::portable});
    static_cast<void>(load_model(file, *compute));
    return {{"runs", true}, {"reason", nullptr}};
  } catch (const Error& error) {
    return {{"runs", false}, {"reason", error.what()}};
  }
}

void add_experts(Json& report, const GgufFile& file) {
  uint64_t bank = 0;
  Json layers = Json::array();
  try {
    const int top_k = read_top_k(file);
    const EntryMap map = EntryMap::from_gguf(file, top_k, read_layers(file));
    for (const LayerEntries& layer : map.layers) {
      Json slices = Json::array();
      for (const SliceSource& s : layer.slices) {
        constexpr const char* kNames[] = {"gate", "up", "down", "gate_up"};
        slices.push_back({{"projection", kNames[static_cast<int>(s.projection)]},
                          {"type", type_name(s.type)},
                          {"bytes", s.slice_bytes}});
      }
      layers.push_back({{"layer", layer.layer},
                        {"experts", layer.n_expert},
                        {"top_k", layer.top_k},
                        {"entry_bytes", layer.entry_bytes()},
                        {"slices", std::move(slices)}});
    }
    bank = map.total_bytes();
    report["top_k"] = top_k;
    report["token_cycle_bytes"] = map.token_cycle_bytes();
    if (report["runs"] == true) report["tiers"] = tiers_json(file, map);
  } catch (const Error& error) {
    report["token_cycle_bytes"] = nullptr;
    report["experts_error"] = error.what();
  }
  uint64_t all = 0;
  for (const TensorInfo& tensor : file.tensors()) all += tensor.bytes;
  report["tensor_bytes"] = all;
  report["entry_bytes_total"] = bank;
  report["dense_bytes"] = all - bank;
  report["layers"] = std::move(layers);
}

std::string shown(const Json& item) {
  const Json& value = item["value"];
  if (item["type"] == "array") {
    std::string out = fmt::format("{} x {} [", item["count"].get<uint64_t>(), item["element_type"].get<std::string>());
    for (size_t i = 0; i < value.size(); ++i) {
      out += fmt::format("{}{}", i > 0 ? ", " : "", value[i].dump(-1, ' ', false, Json::error_handler_t::replace));
    }
    return out + (value.size() < item["count"].get<uint64_t>() ? ", ...]" : "]");
  }
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr size_t kMax = 120;
  if (text.size() > kMax) text = text.substr(0, kMax) + "...";
  return text;
}

std::string tiers_text(const Json& tiers) {
  const auto bytes = [&](const char* key) { return format_bytes(tiers[key].get<uint64_t>()); };
  std::string out = fmt::format("with the memory there is now: {}: {} of entries in host memory",
                                tiers["mode"].get<std::string>(), bytes("host_entry_bytes"));
  if (tiers["file_entry_bytes"] != 0) out += fmt::format(", {} in the file only", bytes("file_entry_bytes"));
  out += fmt::format("; dense weights {}, context and buffers up to {}", bytes("host_dense_bytes"),
                     bytes("context_bytes"));
  if (!tiers["memory_available_bytes"].is_null()) out += fmt::format("; {} available", bytes("memory_available_bytes"));
  return out + "\n";
}

}  // namespace

Json inspect_report(const GgufFile& file, int64_t max_elements) {
  Json report;
  report["file"] = file.path();
  report["gguf_version"] = file.version();
  report["file_bytes"] = file.file_bytes();
  report["shards"] = file.shards().size();
  const auto architecture = file.get_string("general.architecture");
  report["architecture"] = architecture ? Json(*architecture) : Json(nullptr);
  report.update(verdict(file));
  report["text"] = text_json(file);
  report["types"] = types_json(file);
  add_experts(report, file);
  report["metadata"] = metadata_json(file, max_elements);
  report["tensors"] = tensors_json(file);
  return report;
}

std::string inspect_text(const Json& report) {
  std::string out;
  const auto bytes = [&](const char* key) { return format_bytes(report[key].get<uint64_t>()); };
  out += fmt::format("{}: GGUF v{}, {}{}, architecture {}\n", report["file"].get<std::string>(),
                     report["gguf_version"].get<int>(), bytes("file_bytes"),
                     report["shards"] > 1 ? fmt::format(" in {} shards", report["shards"].get<int>()) : "",
                     report["architecture"].is_null() ? "unknown" : report["architecture"].get<std::string>());
  out += report["runs"] == true ? "runs here: yes\n"
                                : fmt::format("runs here: no: {}\n", report["reason"].get<std::string>());
  if (report["text"]["readable"] == false)
    out += fmt::format("text: token ids only: {}\n", report["text"]["reason"].get<std::string>());
  if (report.contains("tiers")) out += tiers_text(report["tiers"]);
  std::vector<std::string> types;
  for (const auto& [name, n] : report["types"].items()) types.push_back(name + " " + format_bytes(n.get<uint64_t>()));
  out += fmt::format("types: {}\n", fmt::join(types, ", "));
  if (report.contains("experts_error")) out += fmt::format("experts: {}\n", report["experts_error"].get<std::string>());
  out += fmt::format("dense weights {}, entries {}", bytes("dense_bytes"), bytes("entry_bytes_total"));
  if (report["token_cycle_bytes"].is_number() && !report["layers"].empty()) {
    out += fmt::format(", token cycle {} at top-{}", bytes("token_cycle_bytes"), report["top_k"].get<int>());
  }
  out += "\n\nMetadata\n";
  for (const auto& [key, item] : report["metadata"].items()) out += fmt::format("  {:<44} {}\n", key, shown(item));
  if (!report["layers"].empty()) {
    out += "\nExperts by layer\n  layer  experts  top-k        entry  slices\n";
    for (const Json& layer : report["layers"]) {
      std::vector<std::string> slices;
      for (const Json& s : layer["slices"]) {
        slices.push_back(fmt::format("{} {} {}", s["projection"].get<std::string>(), s["type"].get<std::string>(),
                                     format_bytes(s["bytes"].get<uint64_t>())));
      }
      out += fmt::format("  {:>5}  {:>7}  {:>5}  {:>11}  {}\n", layer["layer"].get<int>(), layer["experts"].get<int>(),
                         layer["top_k"].get<int>(), format_bytes(layer["entry_bytes"].get<uint64_t>()),
                         fmt::join(slices, ", "));
    }
  }
  out += "\nTensors\n";
  for (const Json& tensor : report["tensors"]) {
    out += fmt::format("  {:<40} {:<8} {:>11}  {}\n", tensor["name"].get<std::string>(),
                       tensor["type"].get<std::string>(), format_bytes(tensor["bytes"].get<uint64_t>()),
                       fmt::join(tensor["shape"].get<std::vector<int64_t>>(), " x "));
  }
  return out;
}

}  // namespace moetier::cli
