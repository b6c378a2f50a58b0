// Two records side by side: what differed in configuration, and what that did.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace moetier::cli {

/// Something that is not the same in both; text as JSON shows it, "-" where it is missing.
struct Difference {
  std::string name, a, b;
};

/// A number that both measured.
struct Measured {
  std::string name, unit;
  double a = 0, b = 0;
  bool higher_is_better = true;
  /// -1 = one of them has no samples, 0 = their ranges overlap, 1 = they do not.
  int apart = -1;
  double ratio() const { return a != 0 ? b / a : 0; }
};

struct RecordComparison {
  std::vector<Difference> configuration, circumstances;  ///< parameters; machine, model and program
  std::vector<Measured> results;
  std::vector<std::string> only_one;  ///< cells of grids that the other lacks
};

/// Of run records (`run --record`, `--json`), `bench --json` and `bench grid --out`. Errors name `name_a` or `name_b`:
/// JSON of another kind, a grid beside a single run.
RecordComparison compare_records(const nlohmann::ordered_json& a, const std::string& name_a,
                                 const nlohmann::ordered_json& b, const std::string& name_b);

}  // namespace moetier::cli
