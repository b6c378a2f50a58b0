#include "server/metrics_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace moetier {
namespace {

std::string_view type_name(MetricsText::Type type) {
  switch (type) {
    case MetricsText::Type::counter:
      return "counter";
    case MetricsText::Type::gauge:
      return "gauge";
    case MetricsText::Type::histogram:
      return "histogram";
  }
  return "untyped";
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

/// Backslash and line end are escaped everywhere; in a label's value the quote, too.
std::string escaped(std::string_view text, bool quote) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || (quote && c == '"')) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

void Histogram::observe(double value) {
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
  ++counts[static_cast<size_t>(bucket)];
  sum += value;
  ++count;
}

std::vector<double> seconds_buckets() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600};
}

void MetricsText::family(std::string_view name, Type type, std::string_view help) {
  name_ = name;
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, escaped(help, false), name, type_name(type));
}

void MetricsText::line(std::string_view suffix, const Labels& labels, std::string_view value) {
  text_ += name_;
  text_ += suffix;
  for (size_t i = 0; i < labels.size(); ++i) {
    text_ += fmt::format("{}{}=\"{}\"", i == 0 ? "{" : ",", labels[i].first, escaped(labels[i].second, true));
  }
  text_ += fmt::format("{} {}\n", labels.empty() ? "" : "}", value);
}

void MetricsText::sample(double value, const Labels& labels) {
  line("", labels, number(value));
}

void MetricsText::sample(uint64_t value, const Labels& labels) {
  line("", labels, fmt::format("{}", value));
}

void MetricsText::histogram(const Histogram& histogram) {
  uint64_t below = 0;
  for (size_t i = 0; i < histogram.bounds.size(); ++i) {
    below += histogram.counts[i];
    line("_bucket", {{"le", number(histogram.bounds[i])}}, fmt::format("{}", below));
  }
  line("_bucket", {{"le", "+Inf"}}, fmt::format("{}", histogram.count));
  line("_sum", {}, number(histogram.sum));
  line("_count", {}, fmt::format("{}", histogram.count));
}

}  // namespace moetier
