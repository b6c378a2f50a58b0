// compare: two records side by side.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/record_compare.h"
#include "cli/support.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string cut(std::string text, size_t most) {
  if (text.size() > most) text = text.substr(0, most - 3) + "...";
  return text;
}

std::string table_of(const char* title, const std::vector<Difference>& list) {
  if (list.empty()) return fmt::format("{}: nothing differs\n", title);
  std::string out = fmt::format("{}\n", title);
  for (const Difference& d : list) out += fmt::format("  {:<34} {:<30} {}\n", d.name, cut(d.a, 30), cut(d.b, 60));
  return out;
}

std::string verdict(const Measured& m) {
  if (m.a == 0 || m.apart == 0) return m.apart == 0 ? "within their spread" : "";
  const double percent = 100 * (m.ratio() - 1);
  if (std::abs(percent) < 0.5) return "the same";
  const bool better = (percent > 0) == m.higher_is_better;
  return fmt::format("{:+.1f} %, {}{}", percent, better ? "better" : "worse",
                     m.apart < 0 ? "" : ", beyond their spread");
}

std::string results_text(const std::vector<Measured>& results) {
  if (results.empty()) return "results: none that both have\n";
  std::string out = "results\n";
  for (const Measured& m : results)
    out += fmt::format("  {:<34} {:>12.4g} {:>12.4g} {:<6} {}\n", m.name, m.a, m.b, m.unit, verdict(m));
  return out;
}

Json differences_json(const std::vector<Difference>& list) {
  Json out = Json::array();
  for (const Difference& d : list) out.push_back({{"name", d.name}, {"a", d.a}, {"b", d.b}});
  return out;
}

}  // namespace

int run_compare(const Settings& settings) {
  const std::string &first = need(settings, "a"), &second = need(settings, "b");
  const auto load = [](const std::string& path) { return parse_json(read_file(path, kMaxInputBytes), path); };
  const RecordComparison c = compare_records(load(first), first, load(second), second);
  if (settings.flag("json")) {
    Json results = Json::array();
    for (const Measured& m : c.results) {
      results.push_back({{"name", m.name},
                         {"unit", m.unit},
                         {"a", m.a},
                         {"b", m.b},
                         {"ratio", m.a != 0 ? Json(m.ratio()) : Json(nullptr)},
                         {"beyond_spread", m.apart < 0 ? Json(nullptr) : Json(m.apart > 0)}});
    }
    print_json({{"a", first},
                {"b", second},
                {"configuration", differences_json(c.configuration)},
                {"circumstances", differences_json(c.circumstances)},
                {"results", results},
                {"only_in_one", c.only_one}});
    return 0;
  }
  std::string out = fmt::format("A {}\nB {}\n\n", first, second);
  out += table_of("configuration", c.configuration) + "\n" + table_of("machine, model and program", c.circumstances) +
         "\n" + results_text(c.results);
  for (const std::string& name : c.only_one) out += fmt::format("  only in one of them: {}\n", name);
  print_out(out);
  return 0;
}

}  // namespace moetier::cli
