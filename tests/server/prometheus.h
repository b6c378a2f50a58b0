// A strict reader of the Prometheus text format, 0.0.4: what it refuses, a scraper might.
#pragma once

#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace moetier::testing_support {

struct MetricFamily {
  std::string type, help;
  std::map<std::string, double> samples;  // by name suffix and labels, as written
};

class PrometheusReader {
 public:
  explicit PrometheusReader(std::string_view text) {
    if (!text.empty() && text.back() != '\n') bad("no line end at the end");
    while (!text.empty()) {
      const size_t end = text.find('\n');
      line_ = text.substr(0, end);
      text.remove_prefix(end + 1);
      read_line();
    }
    for (const auto& [name, family] : families) check_histogram(name, family);
  }
  std::map<std::string, MetricFamily> families;

  double value(const std::string& name, const std::string& labels = "") const {
    const auto family = families.find(name);
    if (family == families.end()) throw std::runtime_error("no family " + name);
    const auto sample = family->second.samples.find(labels);
    if (sample == family->second.samples.end()) throw std::runtime_error("no sample " + name + labels);
    return sample->second;
  }

 private:
  [[noreturn]] void bad(const std::string& why) const { throw std::runtime_error(why + ": " + std::string(line_)); }
  static bool name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ':'; }
  static bool name_char(char c) { return name_start(c) || std::isdigit(static_cast<unsigned char>(c)) != 0; }

  std::string take_name(std::string_view& rest) const {
    size_t n = 0;
    if (rest.empty() || !name_start(rest[0])) bad("a name is missing");
    while (n < rest.size() && name_char(rest[n])) ++n;
    const std::string name(rest.substr(0, n));
    rest.remove_prefix(n);
    return name;
  }
  void read_line() {
    if (line_.empty()) bad("an empty line");
    if (line_.starts_with("# ")) return read_comment(line_.substr(2));
    std::string_view rest = line_;
    const std::string name = take_name(rest);
    if (open_.empty() || !name.starts_with(open_)) bad("a sample outside of its family");
    MetricFamily& family = families.at(open_);
    const std::string suffix = name.substr(open_.size());
    const bool histogram = family.type == "histogram";
    if (histogram ? suffix != "_bucket" && suffix != "_sum" && suffix != "_count" : !suffix.empty())
      bad("a wrong suffix");
    std::string labels;
    if (rest.starts_with("{")) labels = take_labels(rest);
    if (!rest.starts_with(" ")) bad("no value");
    const double number = parse(std::string(rest.substr(1)));
    if (family.type == "counter" && !(number >= 0)) bad("a counter below 0");
    if (!family.samples.emplace(suffix + labels, number).second) bad("a sample twice");
  }
  std::string take_labels(std::string_view& rest) const {
    const std::string_view all = rest;
    rest.remove_prefix(1);
    std::set<std::string> names;
    while (true) {
      const std::string name = take_name(rest);
      if (name.find(':') != std::string::npos) bad("a colon in a label");
      if (!names.insert(name).second) bad("a label twice");
      if (!rest.starts_with("=\"")) bad("a label without value");
      rest.remove_prefix(2);
      while (!rest.empty() && rest[0] != '"') {
        if (rest[0] == '\\') {
          if (rest.size() < 2 || (rest[1] != '\\' && rest[1] != '"' && rest[1] != 'n')) bad("a wrong escape");
          rest.remove_prefix(1);
        }
        rest.remove_prefix(1);
      }
      if (rest.empty()) bad("a label without end");
      rest.remove_prefix(1);
      if (rest.starts_with(",")) {
        rest.remove_prefix(1);
        continue;
      }
      if (!rest.starts_with("}")) bad("labels without end");
      rest.remove_prefix(1);
      return std::string(all.substr(0, all.size() - rest.size()));
    }
  }
  double parse(const std::string& text) const {
    if (text == "+Inf") return HUGE_VAL;
    if (text == "-Inf") return -HUGE_VAL;
    if (text == "NaN") return NAN;
    size_t end = 0;
    if (text.empty() || text[0] == ' ') bad("no number");
    const double number = std::stod(text, &end);
    if (end != text.size() || !std::isfinite(number)) bad("no number");
    return number;
  }
  void read_comment(std::string_view rest) {
    const bool help = rest.starts_with("HELP ");
    if (!help && !rest.starts_with("TYPE ")) bad("a comment of an unknown kind");
    rest.remove_prefix(5);
    const std::string name = take_name(rest);
    if (!rest.starts_with(" ") || rest.size() < 2) bad("nothing said");
    rest.remove_prefix(1);
    if (help) {
      if (!families.emplace(name, MetricFamily{{}, std::string(rest), {}}).second) bad("a family twice");
      open_ = name;
      return;
    }
    if (open_ != name || !families.at(name).type.empty()) bad("a type without its help");
    if (rest != "counter" && rest != "gauge" && rest != "histogram") bad("an unknown type");
    if (rest == "counter" && !name.ends_with("_total")) bad("a counter that is not called _total");
    families.at(name).type = rest;
  }
  static void check_histogram(const std::string& name, const MetricFamily& family) {
    if (family.samples.empty()) throw std::runtime_error("no samples: " + name);
    if (family.type != "histogram") return;
    std::map<double, double> buckets;
    for (const auto& [key, number] : family.samples) {
      if (!key.starts_with("_bucket{le=\"")) continue;
      const std::string bound = key.substr(12, key.size() - 14);
      buckets[bound == "+Inf" ? HUGE_VAL : std::stod(bound)] = number;
    }
    double before = 0;
    for (const auto& [bound, number] : buckets) {
      if (number < before) throw std::runtime_error("buckets fall: " + name);
      before = number;
    }
    if (buckets.empty() || buckets.rbegin()->first != HUGE_VAL) throw std::runtime_error("no last bucket: " + name);
    if (before != family.samples.at("_count")) throw std::runtime_error("the count is another: " + name);
    family.samples.at("_sum");
  }

  std::string_view line_;
  std::string open_;
};

}  // namespace moetier::testing_support
