// Writes the Prometheus text format, version 0.0.4.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moetier {

/// Counts observations by size. Not safe from several threads at once.
struct Histogram {
  explicit Histogram(std::vector<double> upper) : bounds(std::move(upper)), counts(bounds.size() + 1, 0) {}
  void observe(double value);
  std::vector<double> bounds;    ///< upper ends, ascending; one more bucket has no end
  std::vector<uint64_t> counts;  ///< of each bucket alone
  double sum = 0;
  uint64_t count = 0;
};

/// Upper ends for seconds, from a millisecond to ten minutes.
std::vector<double> seconds_buckets();

/// A family is opened once, and its samples follow it.
class MetricsText {
 public:
  enum class Type { counter, gauge, histogram };
  using Labels = std::vector<std::pair<std::string_view, std::string>>;

  void family(std::string_view name, Type type, std::string_view help);
  void sample(double value, const Labels& labels = {});
  void sample(uint64_t value, const Labels& labels = {});
  void histogram(const Histogram& histogram);
  /// A family of one sample.
  template <typename Number>
  void single(std::string_view name, Type type, std::string_view help, Number value) {
    family(name, type, help);
    sample(value);
  }
  std::string take() { return std::move(text_); }

 private:
  void line(std::string_view suffix, const Labels& labels, std::string_view value);
  std::string text_, name_;
};

}  // namespace moetier
