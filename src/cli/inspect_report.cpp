#include "cli/inspect_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/units.h"
#include "compute/cpu/cpu_compute.h"
#include "engine/dense_memory.h"
#include "engine/residency.h"
#include "experts/entry_map.h"
#include "model/model.h"
#include "model/survey.h"

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

/// So many sentences, or names of tensors, are given.
constexpr size_t kMostProblems = 32;

/// What a context takes; nullopt where the architecture or its keys do not tell.
std::optional<ContextBytes> context_of(const GgufFile& file, bool entries) {
  try {
    return context_bytes(architecture_of(file).read(file), EngineOptions{}.planned, entries);
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// What a run without further flags would put where, with the memory there is now; of a model that does not run, what
/// it would if nothing else were in the way.
Json tiers_json(const GgufFile& file, uint64_t bank, uint64_t dense) {
  const std::optional<ContextBytes> context = context_of(file, bank > 0);
  const SizingPlan plan = planned_residency(bank, dense, context.value_or(ContextBytes{}), {}).plan;
  const bool whole = plan.mode == ExpertMode::resident || plan.mode == ExpertMode::mmap;
  return {{"mode", to_string(plan.mode)},
          {"why", plan.why},
          {"memory_available_bytes", plan.input.available ? Json(*plan.input.available) : Json(nullptr)},
          {"host_entry_bytes", whole ? bank : std::min(plan.budget, bank)},
          {"host_dense_bytes", dense},
          {"context_bytes", context ? Json(plan.input.kv + plan.input.buffers) : Json(nullptr)},
          {"file_entry_bytes", whole ? 0 : bank - std::min(plan.budget, bank)}};
}

/// Whether this program runs the model, and if not, what is missing or wrong.
Json verdict(const GgufFile& file) {
  const auto compute = make_cpu_compute({.threads = 1, .isa = Isa::portable});
  const LoadProblems found = find_load_problems(file, *compute, kMostProblems);
  const bool runs = found.sentences.empty();
  return {{"runs", runs},
          {"reason", runs ? Json(nullptr) : Json(found.sentences.front())},
          {"problems", found.sentences},
          {"further_problems", found.more},
          {"ignored_tensors", found.ignored},
          {"further_ignored_tensors", found.more_ignored}};
}

Json layer_json(const LayerEntries& layer, bool top_k_known) {
  Json slices = Json::array();
  for (const SliceSource& s : layer.slices) {
    constexpr const char* kNames[] = {"gate", "up", "down", "gate_up"};
    slices.push_back({{"projection", kNames[static_cast<int>(s.projection)]},
                      {"type", type_name(s.type)},
                      {"bytes", s.slice_bytes}});
  }
  return {{"layer", layer.layer},
          {"experts", layer.n_expert},
          {"top_k", top_k_known ? Json(layer.top_k) : Json(nullptr)},
          {"entry_bytes", layer.entry_bytes()},
          {"slices", std::move(slices)}};
}

/// Bytes of what is named like an expert stack: where the stacks do not fit one another.
uint64_t bytes_named_as_stacks(const GgufFile& file) {
  uint64_t sum = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    if (tensor.name.starts_with("blk.") && tensor.name.ends_with("_exps.weight")) sum += tensor.bytes;
  }
  return sum;
}

/// What read() gives; nullopt where it fails, with its sentence in the report.
template <typename Read>
std::optional<int> or_tell(Json& report, Read read) {
  try {
    return read();
  } catch (const Error& error) {
    if (!report.contains("experts_error")) report["experts_error"] = error.what();
    return std::nullopt;
  }
}

void add_experts(Json& report, const GgufFile& file) {
  const std::optional<int> top_k = or_tell(report, [&] { return read_top_k(file); });
  const std::optional<int> blocks = or_tell(report, [&] { return read_layers(file); });
  uint64_t bank = 0, dense = 0;
  Json layers = Json::array(), cycle = nullptr;
  try {
    const int all_blocks = std::numeric_limits<int>::max();
    const EntryMap map = EntryMap::from_gguf(file, top_k.value_or(1), blocks.value_or(all_blocks));
    for (const LayerEntries& layer : map.layers) layers.push_back(layer_json(layer, top_k.has_value()));
    bank = map.total_bytes();
    dense = dense_bytes(file, map);
    if (top_k) cycle = map.token_cycle_bytes();
  } catch (const Error& error) {
    if (!report.contains("experts_error")) report["experts_error"] = error.what();
    bank = bytes_named_as_stacks(file);
    for (const TensorInfo& tensor : file.tensors()) dense += tensor.bytes;
    dense -= bank;
  }
  if (top_k) report["top_k"] = *top_k;
  report["token_cycle_bytes"] = std::move(cycle);
  report["tiers"] = tiers_json(file, bank, dense);
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
  out += fmt::format("; dense weights {}, ", bytes("host_dense_bytes"));
  out += tiers["context_bytes"].is_null() ? std::string("context and buffers not known")
                                          : "context and buffers up to " + bytes("context_bytes");
  if (!tiers["memory_available_bytes"].is_null()) out += fmt::format("; {} available", bytes("memory_available_bytes"));
  return out + "\n";
}

std::string verdict_text(const Json& report) {
  const auto list = [&](const char* items, const char* further, const char* before) {
    std::string out;
    for (const Json& item : report[items]) out += before + item.get<std::string>() + "\n";
    if (report[further] > 0) out += fmt::format("{}and {} more\n", before, report[further].get<size_t>());
    return out;
  };
  std::string out = report["runs"] == true ? "runs here: yes\n" : "runs here: no:\n";
  if (report["problems"].size() == 1 && report["further_problems"] == 0)
    out = fmt::format("runs here: no: {}\n", report["reason"].get<std::string>());
  else
    out += list("problems", "further_problems", "  ");
  if (!report["ignored_tensors"].empty())
    out += "tensors that are not part of the graph and are ignored:\n" +
           list("ignored_tensors", "further_ignored_tensors", "  ");
  return out;
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
  out += verdict_text(report);
  if (report["text"]["readable"] == false)
    out += fmt::format("text: token ids only: {}\n", report["text"]["reason"].get<std::string>());
  out += tiers_text(report["tiers"]);
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
                         layer["top_k"].is_null() ? "?" : layer["top_k"].dump(),
                         format_bytes(layer["entry_bytes"].get<uint64_t>()), fmt::join(slices, ", "));
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
