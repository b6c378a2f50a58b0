// Line charts as SVG files, for what the tools measure and simulate.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace moetier::cli {

struct ChartSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< by ascending x
  bool dashed = false;                            ///< a bound, not something that can be had
};

struct Chart {
  std::string title, x_label, y_label;
  bool log_x = false;     ///< base 2; every x must be above 0
  bool from_zero = true;  ///< the y axis begins at 0 even if no point is near
  std::vector<ChartSeries> series;
};

/// The charts as one picture, two side by side where there are several, each with axes, a grid and a legend. Its bytes
/// depend on the charts only. Points that are no finite numbers are left out.
std::string svg_of(std::span<const Chart> charts);
/// The same to a file, beside and then renamed. Errors: it cannot be written.
void write_svg(const std::string& path, std::span<const Chart> charts);

}  // namespace moetier::cli
