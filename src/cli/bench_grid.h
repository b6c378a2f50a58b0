// The cells of a grid of measurements, and how they are told.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/svg_chart.h"

namespace moetier::cli {

/// One combination, and what its runs gave.
struct GridCell {
  std::string experts, cache, policy, threads;  ///< cache and policy are empty where there is no cache
  std::vector<double> prompt, decode;           ///< tok/s, by run
  std::vector<double> hit_percent, read_mib;    ///< of decoded tokens; read_mib per token
};

/// Every combination once: sizes and policies only for `stream`.
std::vector<GridCell> grid_cells(const std::vector<std::string>& modes, const std::vector<std::string>& caches,
                                 const std::vector<std::string>& policies, const std::vector<std::string>& threads);

/// Takes what `bench --json` or `run --json` printed into the cell.
void add_run(GridCell& cell, const nlohmann::ordered_json& record);

std::string grid_csv(const std::vector<GridCell>& cells);
std::string grid_markdown(const std::vector<GridCell>& cells);
nlohmann::ordered_json grid_json(const std::vector<GridCell>& cells);
/// Decode speed, hit rate and bytes read by cache size; cells without a cache as lines across.
std::vector<Chart> grid_charts(const std::vector<GridCell>& cells);

double median(std::vector<double> samples);

}  // namespace moetier::cli
