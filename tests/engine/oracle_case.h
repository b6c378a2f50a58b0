// A model with the logits that a reference gave for it: NAME.gguf, NAME.tokens, NAME.f32, NAME.spread.json
// (tools/oracle/README.md).
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
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
  *out << c.name;
}

/// How far one set of logits is from another.
struct Difference {
  double relative = 0;   ///< largest |difference| over the largest |logit|
  double kl = 0;         ///< mean over positions
  double agreement = 1;  ///< share of positions with the same argmax
};

/// The widest of the reference's own differences between its paths.
inline Difference read_spread(const OracleCase& from) {
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

/// Committed cases first, then those of the shared folder and of $MOETIER_ORACLE_DIR that are not among them.
inline std::vector<OracleCase> find_oracle_cases() {
  std::vector<std::pair<fs::path, bool>> folders{{fs::path(MOETIER_TEST_DATA) / "models", true},
                                                 {shared_folder() / "oracle" / "models", false}};
  if (const char* more = std::getenv("MOETIER_ORACLE_DIR")) folders.emplace_back(more, false);
  std::vector<OracleCase> cases;
  std::set<std::string> known;
  for (const auto& [folder, committed] : folders) {
    if (!fs::is_directory(folder)) continue;
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const OracleCase found{entry.path().stem().string(), folder, committed};
      if (entry.path().extension() == ".gguf" && fs::exists(found.file(".f32")) && fs::exists(found.file(".tokens")))
        names.insert(found.name);
    }
    for (const std::string& name : names) {
      if (known.insert(name).second) cases.push_back({name, folder, committed});
    }
  }
  return cases;
}

}  // namespace moetier::testing_support
