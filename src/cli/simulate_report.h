// How a simulation is told: as a table, as JSON, as curves.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/svg_chart.h"
#include "experts/simulator.h"
#include "experts/token_time.h"

namespace moetier::cli {

/// One policy at one size.
struct Simulated {
  std::string policy;
  uint64_t mib = 0;
  SimulationResult result;
};

struct SimulateReport {
  std::string trace;
  const TraceRun& run;
  bool engine = false;  ///< with a run's slots and homes in transit
  std::string train;    ///< traces that the profile is from; empty = none
  uint64_t profile_entries = 0;
  uint64_t compulsory = 0;  ///< misses that no cache can avoid
  double dense_bytes = 0;   ///< that every token reads; 0 = not known
  TokenRates rates;
  std::string how;              ///< how the rates were found
  std::vector<Simulated> runs;  ///< policy by policy, each with all sizes

  nlohmann::ordered_json json() const;
  std::string text() const;
  std::vector<Chart> charts() const;

 private:
  size_t sizes() const;
  size_t widest_name() const;
  double read_bytes(const SimulationResult& r) const;
  double endless_percent(const SimulationResult& any) const;
  TokenBytes token_bytes(const SimulationResult& r) const;
  TokenTime time_of(const SimulationResult& r) const;
  template <typename Value>
  std::string table(std::string_view title, Value value, bool without_zeros = false) const;
};

}  // namespace moetier::cli
