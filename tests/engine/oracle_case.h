// A model with the logits that a reference gave for it: NAME.gguf, NAME.tokens, NAME.f32 (of all positions, or of the
// last ones), NAME.spread.json (tools/oracle/README.md).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"

namespace moetier::testing_support {

namespace fs = std::filesystem;

struct OracleCase {
  std::string name;
  fs::path folder;
  bool committed = false;  ///< part of this repository: it may not be skipped
  std::string title = {};  ///< where another case has the same name; else empty

  fs::path file(const char* extension) const { return folder / (name + extension); }
  std::string model() const { return file(".gguf").string(); }

  std::vector<int32_t> tokens() const {
    std::stringstream text(read_file(file(".tokens").string()));
    std::vector<int32_t> ids;
    for (std::string id; std::getline(text, id, ',');) ids.push_back(std::stoi(id));
    return ids;
  }
  std::vector<float> logits() const {
    const std::string bytes = read_file(file(".f32").string());
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
    return values;
  }
};

/// Names the case where a test fails.
inline void PrintTo(const OracleCase& c, std::ostream* out) {
  *out << (c.title.empty() ? c.name : c.title);
}

/// How far one set of logits is from another.
struct Difference {
  double relative = 0;   ///< largest |difference| over the largest |logit|
  double kl = 0;         ///< mean over positions
  double agreement = 1;  ///< share of positions with the same argmax
};

/// The widest of the reference's own differences between its paths; none where nobody wrote them down.
inline Difference read_spread(const OracleCase& from) {
  if (!fs::exists(from.file(".spread.json"))) return {};
  const auto json = nlohmann::json::parse(read_file(from.file(".spread.json").string()));
  Difference widest;
  for (const auto& path : json) {
    widest.relative = std::max(widest.relative, path.at("rel").get<double>());
    widest.kl = std::max(widest.kl, path.at("kl").get<double>());
    widest.agreement = std::min(widest.agreement, path.at("argmax").get<double>() / path.at("positions").get<double>());
  }
  return widest;
}

inline double log_sum_exp(const float* row, size_t vocab) {
  const double top = *std::max_element(row, row + vocab);
  double sum = 0;
  for (size_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(row[i]) - top);
  return top + std::log(sum);
}

/// `want` and `got` are positions x vocabulary.
inline Difference difference(const std::vector<float>& want, const std::vector<float>& got, size_t positions) {
  const size_t vocab = want.size() / positions;
  double largest = 0, worst = 0, kl = 0;
  size_t same = 0;
  for (size_t p = 0; p < positions; ++p) {
    const float *a = want.data() + p * vocab, *b = got.data() + p * vocab;
    const double za = log_sum_exp(a, vocab), zb = log_sum_exp(b, vocab);
    for (size_t i = 0; i < vocab; ++i) {
      const double x = a[i], y = b[i];
      largest = std::max(largest, std::abs(x));
      worst = std::max(worst, std::abs(x - y));
      kl += std::exp(x - za) * ((x - za) - (y - zb));
    }
    same += std::max_element(a, a + vocab) - a == std::max_element(b, b + vocab) - b ? 1 : 0;
  }
  const auto n = static_cast<double>(positions);
  return {worst / largest, kl / n, static_cast<double>(same) / n};
}

/// The folder beside the checkout that holds bigger cases.
inline fs::path shared_folder() {
  const char* set = std::getenv("MOETIER_SHARED");
  return set != nullptr ? fs::path(set) : fs::path(MOETIER_SOURCE_DIR) / ".." / "shared";
}

/// Where cases lie: committed ones, the shared folder's, and those that somebody dropped into $MOETIER_ORACLE_DIR.
inline std::vector<std::pair<fs::path, bool>> oracle_folders() {
  std::vector<std::pair<fs::path, bool>> folders{{fs::path(MOETIER_TEST_DATA) / "models", true},
                                                 {shared_folder() / "oracle" / "models", false}};
  if (const char* more = std::getenv("MOETIER_ORACLE_DIR")) folders.emplace_back(more, false);
  return folders;
}

/// All GGUF files of the folders, by name in each.
inline std::vector<OracleCase> find_oracle_models() {
  std::vector<OracleCase> models;
  for (const auto& [folder, committed] : oracle_folders()) {
    if (!fs::is_directory(folder)) continue;
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".gguf") names.insert(entry.path().stem().string());
    }
    for (const std::string& name : names) models.push_back({name, folder, committed});
  }
  return models;
}

inline bool has_answers(const OracleCase& c) {
  return fs::exists(c.file(".f32")) && fs::exists(c.file(".tokens"));
}

/// Models with logits beside them. A case of a known name is one more, unless all its bytes are the same.
inline std::vector<OracleCase> find_oracle_cases() {
  std::vector<OracleCase> cases;
  std::map<std::string, std::vector<OracleCase>> known;
  const auto same = [](const OracleCase& a, const OracleCase& b) {
    return std::ranges::all_of(std::array{".gguf", ".f32", ".tokens"}, [&](const char* extension) {
      const fs::path x = a.file(extension), y = b.file(extension);
      return fs::file_size(x) == fs::file_size(y) && read_file(x.string()) == read_file(y.string());
    });
  };
  for (OracleCase& found : find_oracle_models()) {
    if (!has_answers(found)) continue;
    std::vector<OracleCase>& others = known[found.name];
    if (std::ranges::any_of(others, [&](const OracleCase& other) { return same(found, other); })) continue;
    if (!others.empty()) found.title = found.name + "-" + std::to_string(others.size() + 1);
    others.push_back(found);
    cases.push_back(std::move(found));
  }
  return cases;
}

/// Models that nobody gave logits for, among those that are not committed.
inline std::vector<OracleCase> find_models_without_answers() {
  std::vector<OracleCase> models = find_oracle_models();
  std::erase_if(models, [](const OracleCase& c) { return c.committed || has_answers(c); });
  return models;
}

}  // namespace moetier::testing_support
