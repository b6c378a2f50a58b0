#include "cli/record_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

const Json* at(const Json& json, std::string_view path) {
  const Json::json_pointer pointer{std::string(path)};
  return json.contains(pointer) ? &json.at(pointer) : nullptr;
}

std::string shown(const Json* value) {
  if (value == nullptr || value->is_null()) return "-";
  return value->is_string() ? value->get<std::string>() : value->dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// A number that records tell, under the paths that they may have for it.
struct Known {
  const char *name, *unit;
  bool higher_is_better;
  std::vector<const char*> paths;
};

const std::vector<Known>& known_numbers() {
  static const std::vector<Known> all = {
      {"prompt", "tok/s", true, {"/prompt_tok_s", "/times/prompt_tok_s"}},
      {"decode", "tok/s", true, {"/decode_tok_s", "/times/decode_tok_s"}},
      {"first token", "s", false, {"/first_token_after_load_seconds", "/times/first_token_after_load_seconds"}},
      {"load", "s", false, {"/load_seconds", "/times/load_seconds"}},
      {"decode hits", "%", true, {"/decode_hit_pct", "/stats/decode/cache_hit_pct"}},
      {"read per token", "MiB", false, {"/read_mib_per_token", "/stats/decode/read_mib_per_token"}},
      {"waiting for reads", "s", false, {"/stats/decode/read_wait_s"}},
      {"computing", "s", false, {"/stats/decode/compute_s"}},
      {"major faults per token", "", false, {"/stats/decode/majflt_per_token"}},
      {"peak memory", "MiB", false, {"/memory/peak_resident_bytes"}},
      {"perplexity", "", false, {"/perplexity"}},
  };
  return all;
}

/// A number, or an object with a median and samples.
struct Number {
  bool there = false, sampled = false;
  double value = 0, low = 0, high = 0;
};

Number number_in(const Json& json, const Known& known) {
  Number number;
  for (const char* const path : known.paths) {
    const Json* found = at(json, path);
    if (found == nullptr || found->is_null()) continue;
    if (found->is_number()) {
      number.value = found->get<double>();
      number.there = true;
    } else if (const Json* middle = at(*found, "/median"); middle != nullptr && middle->is_number()) {
      number.value = middle->get<double>();
      number.there = true;
      const Json *low = at(*found, "/min"), *high = at(*found, "/max"), *samples = at(*found, "/samples");
      if (low != nullptr && low->is_number() && high != nullptr && high->is_number() && samples != nullptr &&
          samples->size() > 1) {
        number.low = low->get<double>();
        number.high = high->get<double>();
        number.sampled = true;
      }
    }
    if (number.there) break;
  }
  if (number.there && std::string_view(known.paths.front()).ends_with("_bytes")) number.value /= 1048576;
  return number;
}

void add_results(const Json& a, const Json& b, const std::string& prefix, std::vector<Measured>& results) {
  for (const Known& known : known_numbers()) {
    const Number x = number_in(a, known), y = number_in(b, known);
    if (!x.there || !y.there) continue;
    Measured m{prefix + known.name, known.unit, x.value, y.value, known.higher_is_better, -1};
    if (x.sampled && y.sampled) m.apart = x.high < y.low || y.high < x.low ? 1 : 0;
    results.push_back(std::move(m));
  }
}

/// Every scalar below, by its path.
void flatten(const Json& json, const std::string& path, std::map<std::string, std::string>& out) {
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) flatten(value, path.empty() ? key : path + "." + key, out);
  } else {
    out[path] = shown(&json);
  }
}

std::vector<Difference> differences(const std::map<std::string, std::string>& a,
                                    const std::map<std::string, std::string>& b) {
  std::set<std::string> names;
  for (const auto* side : {&a, &b}) {
    for (const auto& [name, value] : *side) names.insert(name);
  }
  std::vector<Difference> out;
  for (const std::string& name : names) {
    const auto of = [&](const std::map<std::string, std::string>& side) {
      const auto it = side.find(name);
      return it == side.end() ? "-" : it->second;
    };
    if (of(a) != of(b)) out.push_back({name, of(a), of(b)});
  }
  return out;
}

/// Parameters by name, without where they came from.
std::map<std::string, std::string> parameters(const Json& record) {
  std::map<std::string, std::string> out;
  const Json* config = at(record, "/config");
  if (config == nullptr || !config->is_object()) return out;
  for (const auto& [name, value] : config->items()) {
    const Json* given = value.is_object() ? at(value, "/value") : &value;
    out["--" + name] = shown(given);
  }
  return out;
}

std::map<std::string, std::string> circumstances(const Json& record) {
  std::map<std::string, std::string> out;
  for (const char* const part : {"program", "version", "machine", "model", "compute", "context"}) {
    if (const Json* found = at(record, std::string("/") + part); found != nullptr) flatten(*found, part, out);
  }
  if (const Json* mode = at(record, "/residency/mode"); mode != nullptr) out["experts (as resolved)"] = shown(mode);
  if (const Json* budget = at(record, "/residency/budget_bytes"); budget != nullptr) out["cache bytes"] = shown(budget);
  if (const Json* plan = at(record, "/residency/dense_weights"); plan != nullptr) out["dense weights"] = shown(plan);
  return out;
}

std::string cell_name(const Json& cell) {
  std::string name;
  for (const char* const part : {"experts", "cache_mib", "policy", "threads"}) {
    if (const Json* value = at(cell, std::string("/") + part); value != nullptr)
      name += fmt::format("{}{}{}", name.empty() ? "" : " ", std::string_view(part) == "threads" ? "-t " : "",
                          shown(value));
  }
  return name;
}

std::map<std::string, const Json*> cells_of(const Json& grid) {
  std::map<std::string, const Json*> cells;
  if (grid.at("cells").is_array()) {
    for (const Json& cell : grid.at("cells")) {
      if (cell.is_object()) cells[cell_name(cell)] = &cell;
    }
  }
  return cells;
}

}  // namespace

RecordComparison compare_records(const Json& a, const std::string& name_a, const Json& b, const std::string& name_b) {
  for (const auto& [json, name] : {std::pair(&a, &name_a), std::pair(&b, &name_b)}) {
    if (!json->is_object() || !json->contains("config"))
      fail("{} is no record of a run: it has no configuration in it", *name);
  }
  if (a.contains("cells") != b.contains("cells"))
    fail("{} is a grid and {} is not", a.contains("cells") ? name_a : name_b, a.contains("cells") ? name_b : name_a);
  RecordComparison out;
  out.configuration = differences(parameters(a), parameters(b));
  out.circumstances = differences(circumstances(a), circumstances(b));
  if (!a.contains("cells")) {
    add_results(a, b, "", out.results);
    return out;
  }
  const auto in_a = cells_of(a), in_b = cells_of(b);
  for (const auto& [name, cell] : in_a) {
    const auto other = in_b.find(name);
    if (other == in_b.end()) {
      out.only_one.push_back(name);
    } else {
      add_results(*cell, *other->second, name + ": ", out.results);
    }
  }
  for (const auto& [name, cell] : in_b) {
    if (!in_a.contains(name)) out.only_one.push_back(name);
  }
  return out;
}

}  // namespace moetier::cli
