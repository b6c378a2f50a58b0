#include "server/audit_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

namespace moetier {
namespace {

using Json = nlohmann::json;

constexpr std::array kCounters = {"hits",      "hits_profile", "misses",     "bytes_upload",
                                  "bytes_cpu", "copies",       "bytes_copy", "swaps"};
/// Of a request, and the counters that they are parts of.
constexpr std::array<std::pair<const char*, const char*>, 5> kRequestCounters = {{{"req_hits", "hits"},
                                                                                  {"req_hits_profile", "hits_profile"},
                                                                                  {"req_misses", "misses"},
                                                                                  {"req_bytes_upload", "bytes_upload"},
                                                                                  {"req_bytes_cpu", "bytes_cpu"}}};

/// What one process wrote from one `load` to the next.
struct Run {
  Json last;  // the record before
  std::optional<Json> ready, exit;
  std::map<std::string, uint64_t> sums;  // of its requests
  std::set<int64_t> slots;
};

class Checker {
 public:
  AuditCheck check(std::string_view text);

 private:
  template <typename... Args>
  void problem(fmt::format_string<Args...> format, Args&&... args) {
    if (out_.problems.size() < AuditCheck::kMostProblems)
      out_.problems.push_back(fmt::format("line {}: {}", line_, fmt::format(format, std::forward<Args>(args)...)));
  }
  void line(std::string_view text);
  void record(const Json& r);
  void load(const Json& r);
  void request(const Json& r, Run& run);
  void finish(const Json& r, Run& run);
  void layers(const Json& r);
  void check_profile(const Json& r);
  bool has_time(const Json& r);
  bool count(const Json& r, const char* name, const std::string& of = "");
  bool number(const Json& r, const char* name, const std::string& of = "");
  bool text(const Json& r, const char* name, const std::string& of = "");
  bool flag(const Json& r, const char* name, const std::string& of = "");
  const Json* part(const Json& r, const char* name);
  template <typename Is>
  bool is(const Json& r, const char* name, const std::string& of, const char* what, Is check);

  AuditCheck out_;
  uint64_t line_ = 0;
  std::map<int64_t, Run> runs_;  // by pid: the one that goes on
};

template <typename Is>
bool Checker::is(const Json& r, const char* name, const std::string& of, const char* what, Is check) {
  const auto field = r.find(name);
  if (field == r.end()) {
    problem("the field {}{} is missing", of, name);
  } else if (!check(*field)) {
    problem("{}{} is {} and should be {}", of, name, field->dump(-1, ' ', false, Json::error_handler_t::replace), what);
  } else {
    return true;
  }
  return false;
}
bool Checker::count(const Json& r, const char* name, const std::string& of) {
  return is(r, name, of, "a whole number, 0 or more", [](const Json& v) { return v.is_number_unsigned(); });
}
bool Checker::number(const Json& r, const char* name, const std::string& of) {
  return is(r, name, of, "a number, 0 or more", [](const Json& v) { return v.is_number() && v.get<double>() >= 0; });
}
bool Checker::text(const Json& r, const char* name, const std::string& of) {
  return is(r, name, of, "a text", [](const Json& v) { return v.is_string(); });
}
bool Checker::flag(const Json& r, const char* name, const std::string& of) {
  return is(r, name, of, "true or false", [](const Json& v) { return v.is_boolean(); });
}
const Json* Checker::part(const Json& r, const char* name) {
  return is(r, name, "", "an object", [](const Json& v) { return v.is_object(); }) ? &r.at(name) : nullptr;
}

/// UTC, ISO 8601, to the millisecond: 2026-01-31T12:00:00.000Z
bool Checker::has_time(const Json& r) {
  return is(r, "time", "", "a time as 2026-01-31T12:00:00.000Z", [](const Json& v) {
    constexpr std::string_view kForm = "0000-00-00T00:00:00.000Z";
    if (!v.is_string()) return false;
    const std::string& t = v.get_ref<const std::string&>();
    if (t.size() != kForm.size()) return false;
    for (size_t i = 0; i < t.size(); ++i) {
      if (kForm[i] == '0' ? t[i] < '0' || t[i] > '9' : t[i] != kForm[i]) return false;
    }
    return true;
  });
}

AuditCheck Checker::check(std::string_view all) {
  while (!all.empty()) {
    ++line_;
    const size_t end = all.find('\n');
    if (end == std::string_view::npos) problem("the last record has no line end: it was cut short");
    line(all.substr(0, end));
    all.remove_prefix(end == std::string_view::npos ? all.size() : end + 1);
  }
  if (out_.records == 0 && out_.problems.empty()) problem("the log is empty");
  return std::move(out_);
}

void Checker::line(std::string_view written) {
  const Json r = Json::parse(written, nullptr, false);
  if (!r.is_object()) {
    problem("this is no JSON object");
    return;
  }
  ++out_.records;
  bool sound = has_time(r);
  sound = text(r, "event") && sound;
  sound =
      is(r, "pid", "", "a process id", [](const Json& v) { return v.is_number_integer() && v.get<int64_t>() > 0; }) &&
      sound;
  sound = flag(r, "hybrid") && sound;
  for (const char* name : kCounters) sound = count(r, name) && sound;
  if (sound) record(r);
}

void Checker::record(const Json& r) {
  const std::string event = r["event"];
  const auto pid = r["pid"].get<int64_t>();
  if (event == "load") {
    ++out_.runs;
    runs_[pid] = {};
    runs_[pid].last = r;
    return load(r);
  }
  const auto found = runs_.find(pid);
  if (found == runs_.end()) return problem("process {} has not written load before {}", pid, event);
  Run& run = found->second;
  if (run.exit) problem("process {} writes {} after exit", pid, event);
  for (const char* name : kCounters) {
    if (r[name].get<uint64_t>() < run.last[name].get<uint64_t>())
      problem("{} falls from {} to {}", name, run.last[name].get<uint64_t>(), r[name].get<uint64_t>());
  }
  if (r["time"].get<std::string>() < run.last["time"].get<std::string>()) problem("the time goes back");
  run.last = r;
  if (event == "ready") {
    if (run.ready) problem("process {} is ready twice", pid);
    run.ready = r;
  } else if (event == "request") {
    request(r, run);
  } else if (event == "exit") {
    finish(r, run);
  } else {
    problem("there is no event '{}'", event);
  }
}

void Checker::load(const Json& r) {
  if (const Json* model = part(r, "model")) {
    text(*model, "path", "model.");
    count(*model, "bytes", "model.");
    text(*model, "name", "model.");
    count(*model, "n_layer", "model.");
  }
  if (const Json* params = part(r, "params")) {
    text(*params, "build", "params.");
    for (const char* name : {"moe_cache_mib", "n_threads", "n_threads_batch", "n_ctx", "n_batch", "n_ubatch"})
      count(*params, name, "params.");
    is(*params, "n_gpu_layers", "params.", "a whole number", [](const Json& v) { return v.is_number_integer(); });
    for (const char* name : {"moe_cache_hybrid", "moe_cache_adaptive"}) flag(*params, name, "params.");
    is(*params, "tensor_overrides", "params.", "a list of texts", [](const Json& v) {
      return v.is_array() && std::all_of(v.begin(), v.end(), [](const Json& each) { return each.is_string(); });
    });
  }
  if (const Json* cache = part(r, "cache")) {
    const bool sound = count(*cache, "slots", "cache.") & count(*cache, "prefilled", "cache.");
    count(*cache, "bytes", "cache.");
    if (sound && (*cache)["prefilled"].get<uint64_t>() > (*cache)["slots"].get<uint64_t>())
      problem("more slots were filled than there are");
  }
  number(r, "load_ms");
  is(r, "devices", "", "a list", [](const Json& v) { return v.is_array(); });
  check_profile(r);
  layers(r);
}

/// null, or what was read, or why it was not.
void Checker::check_profile(const Json& r) {
  const auto field = r.find("profile");
  if (field == r.end()) return problem("the field profile is missing");
  if (field->is_null()) return;
  if (!field->is_object()) return problem("profile should be null or an object");
  text(*field, "path", "profile.");
  if (field->contains("error")) {
    text(*field, "error", "profile.");
    return;
  }
  count(*field, "bytes", "profile.");
  is(*field, "sha256", "profile.", "64 hexadecimal digits", [](const Json& v) {
    return v.is_string() && v.get_ref<const std::string&>().size() == 64 &&
           v.get_ref<const std::string&>().find_first_not_of("0123456789abcdef") == std::string::npos;
  });
}

/// The layers' counters, which together are the record's, and what each holds.
void Checker::layers(const Json& r) {
  if (!is(r, "layers", "", "a list", [](const Json& v) { return v.is_array(); })) return;
  std::map<std::string, uint64_t> sums;
  int64_t before = -1;
  for (const Json& layer : r["layers"]) {
    if (!layer.is_object()) return problem("a layer is no object");
    bool sound = count(layer, "il", "layers.");
    for (const char* name : {"slots", "hits", "hits_profile", "misses"}) sound = count(layer, name, "layers.") && sound;
    sound = is(layer, "resident", "layers.", "a list of experts, ascending",
               [](const Json& v) {
                 int64_t last = -1;
                 for (const Json& id : v) {
                   if (!id.is_number_unsigned() || id.get<int64_t>() <= last) return false;
                   last = id.get<int64_t>();
                 }
                 return v.is_array();
               }) &&
            sound;
    if (!sound) return;
    if (layer["il"].get<int64_t>() <= before)
      problem("layer {} stands after layer {}", layer["il"].get<int64_t>(), before);
    before = layer["il"].get<int64_t>();
    if (layer["resident"].size() > layer["slots"].get<uint64_t>())
      problem("layer {} holds {} experts in {} slots", before, layer["resident"].size(),
              layer["slots"].get<uint64_t>());
    for (const char* name : {"hits", "hits_profile", "misses"}) sums[name] += layer[name].get<uint64_t>();
  }
  for (const auto& [name, sum] : sums) {
    if (sum != r[name].get<uint64_t>())
      problem("the layers have {} {} and the record {}", sum, name, r[name].get<uint64_t>());
  }
}

void Checker::request(const Json& r, Run& run) {
  ++out_.requests;
  if (!run.ready) problem("a request before ready");
  bool sound = count(r, "slot");
  for (const char* name : {"task", "n_prompt", "n_gen"}) sound = count(r, name) && sound;
  for (const char* name : {"t_prompt_ms", "t_gen_ms"}) number(r, name);
  if (sound) run.slots.insert(r["slot"].get<int64_t>());
  for (const auto& [part_name, whole] : kRequestCounters) {
    if (!count(r, part_name)) continue;
    run.sums[whole] += r[part_name].get<uint64_t>();
    if (r[part_name].get<uint64_t>() > r[whole].get<uint64_t>()) problem("{} is more than all {}", part_name, whole);
  }
}

void Checker::finish(const Json& r, Run& run) {
  ++out_.exits;
  run.exit = r;
  layers(r);
  if (const Json* perf = part(r, "perf")) {
    bool sound = true;
    for (const char* name : {"n_prompt", "n_gen"}) sound = count(*perf, name, "perf.") && sound;
    for (const char* name : {"t_prompt_ms", "t_gen_ms", "prompt_tps", "gen_tps"})
      sound = number(*perf, name, "perf.") && sound;
    for (const auto& [n, time, rate] :
         {std::array{"n_prompt", "t_prompt_ms", "prompt_tps"}, std::array{"n_gen", "t_gen_ms", "gen_tps"}}) {
      if (!sound || (*perf)[time].get<double>() <= 0) continue;
      const double want = (*perf)[n].get<double>() / (*perf)[time].get<double>() * 1000;
      if (std::abs((*perf)[rate].get<double>() - want) > 0.01 * want + 1e-9)
        problem("perf.{} is {} and should be {}", rate, (*perf)[rate].get<double>(), want);
    }
  }
  // With several slots a request's counters have the others' in them.
  if (!run.ready || run.slots.size() != 1) return;
  ++out_.sums;
  for (const auto& [part_name, whole] : kRequestCounters) {
    const uint64_t passed = r[whole].get<uint64_t>() - (*run.ready)[whole].get<uint64_t>();
    if (run.sums[whole] != passed)
      problem("the requests' {} add up to {}, and from ready to exit there were {}", part_name, run.sums[whole],
              passed);
  }
}

}  // namespace

AuditCheck check_audit_log(std::string_view text) {
  return Checker().check(text);
}

}  // namespace moetier
