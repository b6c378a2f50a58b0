#include "cli/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/file.h"

namespace moetier::cli {
namespace {

constexpr double kWidth = 560, kHeight = 400;  // of one chart
constexpr double kLeft = 64, kRight = 16, kTop = 36, kBottom = 48;
constexpr double kLegendLine = 15;
// Told apart by most eyes, and in grey by their lightness.
constexpr std::array<std::string_view, 8> kColours = {"#0b5fa5", "#d1495b", "#2e8b57", "#e08e1b",
                                                      "#7a4fa3", "#3aa6b9", "#8c6239", "#555555"};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // What XML cannot hold at all.
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string number(double v) {
  if (std::abs(v) >= 1e6 && std::fmod(v, 1e5) == 0) return fmt::format("{}M", v / 1e6);
  return fmt::format("{:g}", v);
}

/// 1, 2 or 5 times a power of ten, so that about `parts` of it make `range`.
double step_for(double range, int parts) {
  const double raw = range / parts, power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double m : {1.0, 2.0, 5.0}) {
    if (raw <= m * power * 1.0001) return m * power;
  }
  return 10 * power;
}

struct Axis {
  double low = 0, high = 1;
  bool log = false;
  std::vector<double> ticks;
  double place(double v) const {  // 0 to 1
    return log ? (std::log2(v) - std::log2(low)) / (std::log2(high) - std::log2(low)) : (v - low) / (high - low);
  }
};

bool shown(const Chart& chart, std::pair<double, double> p) {
  return std::isfinite(p.first) && std::isfinite(p.second) && (!chart.log_x || p.first > 0);
}

Axis linear_axis(double low, double high) {
  Axis axis;
  if (!(high > low)) high = low + (low == 0 ? 1 : std::abs(low));
  const double step = step_for(high - low, 6);
  axis.low = std::floor(low / step + 1e-9) * step;
  axis.high = std::ceil(high / step - 1e-9) * step;
  for (int i = 0; axis.low + i * step <= axis.high + step / 2; ++i) axis.ticks.push_back(axis.low + i * step);
  return axis;
}

Axis log_axis(double low, double high) {
  Axis axis;
  axis.log = true;
  axis.low = std::exp2(std::floor(std::log2(low) + 1e-9));
  axis.high = std::exp2(std::ceil(std::log2(high) - 1e-9));
  if (axis.high <= axis.low) axis.high = 2 * axis.low;
  const double octaves = std::log2(axis.high / axis.low);
  const double by = octaves > 10 ? 4 : 2;
  for (double v = axis.low; v <= axis.high * 1.0001; v *= by) axis.ticks.push_back(v);
  return axis;
}

/// One chart, drawn into a box at (left, top).
class Drawing {
 public:
  Drawing(const Chart& chart, double left, double top) : chart_(chart), left_(left), top_(top) {
    constexpr double kFar = std::numeric_limits<double>::infinity();
    double x0 = kFar, x1 = -kFar, y0 = chart.from_zero ? 0 : kFar, y1 = chart.from_zero ? 0 : -kFar;
    for (const ChartSeries& series : chart.series) {
      for (const auto& p : series.points) {
        if (!shown(chart, p)) continue;
        x0 = std::min(x0, p.first);
        x1 = std::max(x1, p.first);
        y0 = std::min(y0, p.second);
        y1 = std::max(y1, p.second);
      }
    }
    if (x0 > x1) x0 = x1 = 1;
    if (y0 > y1) y0 = y1 = 0;
    x_ = chart.log_x ? log_axis(x0, x1) : linear_axis(x0, x1);
    y_ = linear_axis(y0, y1);
  }

  std::string text() const {
    std::string out = frame();
    for (size_t i = 0; i < chart_.series.size(); ++i) out += line(i);
    return out + legend();
  }

 private:
  double px(double x) const { return left_ + kLeft + x_.place(x) * (kWidth - kLeft - kRight); }
  double py(double y) const { return top_ + kHeight - kBottom - y_.place(y) * (kHeight - kTop - kBottom); }

  std::string label(double x, double y, std::string_view anchor, std::string_view text,
                    std::string_view more = "") const {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
                       escaped(text));
  }

  std::string frame() const {
    const double x0 = left_ + kLeft, x1 = left_ + kWidth - kRight, y0 = top_ + kTop, y1 = top_ + kHeight - kBottom;
    std::string out;
    for (const double v : y_.ticks) {
      out += fmt::format("<path d=\"M{:.1f} {:.1f}H{:.1f}\" class=\"grid\"/>\n", x0, py(v), x1);
      out += label(x0 - 6, py(v) + 4, "end", number(std::abs(v) < 1e-12 ? 0 : v));
    }
    for (const double v : x_.ticks) {
      out += fmt::format("<path d=\"M{:.1f} {:.1f}V{:.1f}\" class=\"grid\"/>\n", px(v), y0, y1);
      out += label(px(v), y1 + 16, "middle", number(v));
    }
    out += fmt::format("<path d=\"M{:.1f} {:.1f}V{:.1f}H{:.1f}\" class=\"axis\"/>\n", x0, y0, y1, x1);
    out += label(left_ + kWidth / 2, top_ + 20, "middle", chart_.title, " class=\"title\"");
    out += label((x0 + x1) / 2, top_ + kHeight - 10, "middle", chart_.x_label);
    const double middle = (y0 + y1) / 2;
    out += label(left_ + 14, middle, "middle", chart_.y_label,
                 fmt::format(" transform=\"rotate(-90 {:.1f} {:.1f})\"", left_ + 14, middle));
    return out;
  }

  std::string line(size_t index) const {
    const ChartSeries& series = chart_.series[index];
    const std::string_view colour = kColours[index % kColours.size()];
    std::string path, dots;
    for (const auto& p : series.points) {
      if (!shown(chart_, p)) continue;
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", px(p.first), py(p.second));
      if (series.points.size() <= 24)
        dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"/>\n", px(p.first), py(p.second),
                            colour);
    }
    if (path.empty()) return "";
    return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"{}/>\n{}", path, colour,
                       series.dashed ? " stroke-dasharray=\"6 4\"" : "", dots);
  }

  /// Where fewer points are in its way: at the right, above or below.
  bool legend_below() const {
    int above = 0, below = 0;
    for (const ChartSeries& series : chart_.series) {
      for (const auto& p : series.points) {
        if (!shown(chart_, p) || x_.place(p.first) < 0.6) continue;
        above += y_.place(p.second) > 0.55 ? 1 : 0;
        below += y_.place(p.second) < 0.45 ? 1 : 0;
      }
    }
    return below < above;
  }

  std::string legend() const {
    if (chart_.series.size() < 2 && (chart_.series.empty() || chart_.series.front().name.empty())) return "";
    const auto n = static_cast<double>(chart_.series.size());
    const double x = left_ + kWidth - kRight - 130;
    double y = legend_below() ? top_ + kHeight - kBottom - 8 - n * kLegendLine : top_ + kTop + 6;
    std::string out =
        fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"126\" height=\"{:.1f}\" class=\"legend\"/>\n", x - 4, y,
                    n * kLegendLine + 4);
    for (size_t i = 0; i < chart_.series.size(); ++i, y += kLegendLine) {
      out += fmt::format("<path d=\"M{:.1f} {:.1f}h20\" stroke=\"{}\" stroke-width=\"2\"{}/>\n", x, y + 9,
                         kColours[i % kColours.size()], chart_.series[i].dashed ? " stroke-dasharray=\"6 4\"" : "");
      out += label(x + 26, y + 13, "start", chart_.series[i].name);
    }
    return out;
  }

  const Chart& chart_;
  double left_, top_;
  Axis x_, y_;
};

}  // namespace

std::string svg_of(std::span<const Chart> charts) {
  const size_t columns = charts.size() > 1 ? 2 : 1, rows = std::max<size_t>((charts.size() + columns - 1) / columns, 1);
  const double width = kWidth * static_cast<double>(columns), height = kHeight * static_cast<double>(rows);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\" "
      "font-size=\"11\">\n<style>.grid{{stroke:#ddd;fill:none}}.axis{{stroke:#444;fill:none}}"
      ".title{{font-size:13px;font-weight:bold}}.legend{{fill:#fff;fill-opacity:.85;stroke:#ccc}}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      width, height);
  for (size_t i = 0; i < charts.size(); ++i) {
    out += Drawing(charts[i], kWidth * static_cast<double>(i % columns), kHeight * static_cast<double>(i / columns))
               .text();
  }
  return out + "</svg>\n";
}

void write_svg(const std::string& path, std::span<const Chart> charts) {
  AtomicFile file(path);
  file.write(svg_of(charts));
  file.commit();
}

}  // namespace moetier::cli
