#include "io/drive_cache.h"

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace moetier {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr uint64_t kMostFileBytes = 1 << 20;
constexpr size_t kMostDrives = 64;  // then it begins anew
constexpr size_t kMostSteps = 32;

std::optional<double> number(const Json& json, const char* key) {
  const auto at = json.find(key);
  if (at == json.end() || !at->is_number()) return std::nullopt;
  const auto value = at->get<double>();
  if (!std::isfinite(value) || value <= 0 || value > 1e15) return std::nullopt;
  return value;
}

std::optional<int> depth_of(const Json& json) {
  const auto value = number(json, "depth");
  if (!value || *value != std::floor(*value) || *value > kMostDepth) return std::nullopt;
  return static_cast<int>(*value);
}

std::optional<DriveRate> rate_of(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  const auto depth = depth_of(json);
  const auto rate = number(json, "bytes_per_second"), best = number(json, "best_bytes_per_second");
  const auto request = number(json, "request_bytes");
  const auto steps = json.find("steps");
  if (!depth || !rate || !best || !request || steps == json.end() || !steps->is_array()) return std::nullopt;
  if (steps->size() > kMostSteps) return std::nullopt;
  DriveRate out;
  out.depth = *depth;
  out.bytes_per_second = *rate;
  out.best_bytes_per_second = *best;
  out.request_bytes = static_cast<uint64_t>(*request);
  for (const Json& step : *steps) {
    if (!step.is_object()) return std::nullopt;
    const auto step_depth = depth_of(step);
    const auto step_rate = number(step, "bytes_per_second");
    if (!step_depth || !step_rate) return std::nullopt;
    out.steps.push_back({*step_depth, *step_rate});
  }
  return out;
}

Json json_of(const DriveRate& rate) {
  Json steps = Json::array();
  for (const DriveRate::Step& step : rate.steps) {
    steps.push_back({{"depth", step.depth}, {"bytes_per_second", step.bytes_per_second}});
  }
  return {{"depth", rate.depth},
          {"bytes_per_second", rate.bytes_per_second},
          {"best_bytes_per_second", rate.best_bytes_per_second},
          {"request_bytes", rate.request_bytes},
          {"steps", steps}};
}

/// The whole file; an empty object if it cannot be used.
Json load(const fs::path& file) {
  std::error_code absent;
  if (!fs::is_regular_file(file, absent)) return Json::object();  // most often it is not there yet
  try {
    Json all = Json::parse(read_file(file.string(), kMostFileBytes), nullptr, false);
    if (all.is_object()) return all;
  } catch (const Error&) {  // removed meanwhile, say
  }
  return Json::object();
}

}  // namespace

fs::path default_cache_directory() {
  // A relative path is to be ignored (XDG Base Directory Specification).
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/') {
    return fs::path(cache) / "moetier";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/') {
    return fs::path(home) / ".cache" / "moetier";
  }
  return {};
}

DriveCache::DriveCache(const fs::path& directory) {
  if (!directory.empty()) file_ = directory / "drives.json";
}

std::optional<DriveRate> DriveCache::find(const std::string& key) const {
  if (file_.empty()) return std::nullopt;
  const Json all = load(file_);
  const auto at = all.find(key);
  return at == all.end() ? std::nullopt : rate_of(*at);
}

bool DriveCache::keep(const std::string& key, const DriveRate& rate) const {
  if (file_.empty()) return false;
  std::error_code error;
  fs::create_directories(file_.parent_path(), error);
  if (error || (fs::exists(file_, error) && !fs::is_regular_file(file_, error))) return false;
  Json all = load(file_);
  if (all.size() >= kMostDrives) all = Json::object();
  all[key] = json_of(rate);
  try {
    AtomicFile file(file_.string());
    file.write(all.dump(1) + "\n");
    file.commit();
  } catch (const Error&) {
    return false;
  } catch (const Json::exception&) {  // text in the old file that is no UTF-8
    return false;
  }
  return true;
}

}  // namespace moetier
