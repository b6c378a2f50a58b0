#include "cli/bench_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The first number of these paths that is there, else `otherwise`.
double number_at(const Json& json, std::initializer_list<const char*> paths, double otherwise) {
  for (const char* const path : paths) {
    const Json::json_pointer at(path);
    if (json.contains(at) && json.at(at).is_number()) return json.at(at).get<double>();
  }
  return otherwise;
}

std::string shown(const std::vector<double>& samples, int digits) {
  return samples.empty() ? "" : fmt::format("{:.{}f}", median(samples), digits);
}

Json spread(const std::vector<double>& samples) {
  if (samples.empty()) return nullptr;
  return {{"median", median(samples)},
          {"min", std::ranges::min(samples)},
          {"max", std::ranges::max(samples)},
          {"samples", samples}};
}

std::string name_of(const GridCell& cell, bool several_threads) {
  std::string name = cell.experts;
  if (!cell.policy.empty()) name += " " + cell.policy;
  if (several_threads) name += " -t " + cell.threads;
  return name;
}

}  // namespace

double median(std::vector<double> samples) {
  if (samples.empty()) return 0;
  std::ranges::sort(samples);
  const size_t n = samples.size();
  return n % 2 == 1 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
}

std::vector<GridCell> grid_cells(const std::vector<std::string>& modes, const std::vector<std::string>& caches,
                                 const std::vector<std::string>& policies, const std::vector<std::string>& threads) {
  std::vector<GridCell> cells;
  for (const std::string& mode : modes) {
    for (const std::string& count : threads) {
      if (mode != "stream") {
        cells.push_back({mode, "", "", count, {}, {}, {}, {}});
        continue;
      }
      for (const std::string& policy : policies) {
        for (const std::string& cache : caches) cells.push_back({mode, cache, policy, count, {}, {}, {}, {}});
      }
    }
  }
  return cells;
}

void add_run(GridCell& cell, const Json& record) {
  const auto add = [&](std::vector<double>& to, std::initializer_list<const char*> paths) {
    const double value = number_at(record, paths, -1);
    if (value >= 0) to.push_back(value);
  };
  add(cell.prompt, {"/prompt_tok_s/median", "/times/prompt_tok_s"});
  add(cell.decode, {"/decode_tok_s/median", "/times/decode_tok_s"});
  if (!cell.cache.empty()) add(cell.hit_percent, {"/stats/decode/cache_hit_pct"});
  add(cell.read_mib, {"/stats/decode/read_mib_per_token"});
}

std::string grid_csv(const std::vector<GridCell>& cells) {
  std::string out =
      "experts,cache_mib,policy,threads,run,prompt_tok_s,decode_tok_s,decode_hit_pct,read_mib_per_token\n";
  for (const GridCell& c : cells) {
    const size_t runs = std::max({c.prompt.size(), c.decode.size(), size_t{1}});
    const auto at = [](const std::vector<double>& samples, size_t i) {
      return i < samples.size() ? fmt::format("{:.6g}", samples[i]) : "";
    };
    for (size_t i = 0; i < runs; ++i) {
      out += fmt::format("{},{},{},{},{},{},{},{},{}\n", c.experts, c.cache, c.policy, c.threads, i + 1,
                         at(c.prompt, i), at(c.decode, i), at(c.hit_percent, i), at(c.read_mib, i));
    }
  }
  return out;
}

std::string grid_markdown(const std::vector<GridCell>& cells) {
  std::string out =
      "| experts | cache MiB | policy | threads | prompt tok/s | decode tok/s | from | to | hit % | MiB read per token "
      "|\n"
      "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|\n";
  for (const GridCell& c : cells) {
    const auto edge = [&](bool high) {
      return c.decode.empty() ? ""
                              : fmt::format("{:.2f}", high ? std::ranges::max(c.decode) : std::ranges::min(c.decode));
    };
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", c.experts, c.cache, c.policy, c.threads,
                       shown(c.prompt, 2), shown(c.decode, 2), edge(false), edge(true), shown(c.hit_percent, 1),
                       shown(c.read_mib, 1));
  }
  return out;
}

Json grid_json(const std::vector<GridCell>& cells) {
  Json list = Json::array();
  for (const GridCell& c : cells) {
    Json one = {{"experts", c.experts}};
    if (!c.cache.empty()) {
      one["cache_mib"] = std::atoll(c.cache.c_str());
      one["policy"] = c.policy;
    }
    one["threads"] = c.threads;
    one["prompt_tok_s"] = spread(c.prompt);
    one["decode_tok_s"] = spread(c.decode);
    one["decode_hit_pct"] = spread(c.hit_percent);
    one["read_mib_per_token"] = spread(c.read_mib);
    list.push_back(std::move(one));
  }
  return list;
}

std::vector<Chart> grid_charts(const std::vector<GridCell>& cells) {
  Chart speed{"Decode speed", "cache, MiB", "tok/s", false, true, {}};
  Chart hits{"Hit rate of decoded tokens", "cache, MiB", "hits, %", false, true, {}};
  Chart read{"Read from the drive", "cache, MiB", "MiB per token", false, true, {}};
  double least = 0, most = 0;
  bool several_threads = false;
  for (const GridCell& c : cells) {
    several_threads = several_threads || c.threads != cells.front().threads;
    if (c.cache.empty()) continue;
    const double mib = std::atof(c.cache.c_str());
    least = least == 0 ? mib : std::min(least, mib);
    most = std::max(most, mib);
  }
  const auto add = [](Chart& chart, const std::string& name, double x, double y, bool dashed) {
    auto at = std::ranges::find(chart.series, name, &ChartSeries::name);
    if (at == chart.series.end()) {
      chart.series.push_back({name, {}, dashed});
      at = chart.series.end() - 1;
    }
    at->points.emplace_back(x, y);
  };
  for (const GridCell& c : cells) {
    const std::string name = name_of(c, several_threads);
    const std::vector<double> places =
        c.cache.empty() ? std::vector<double>{least, most} : std::vector<double>{std::atof(c.cache.c_str())};
    for (const double x : places) {
      if (!c.decode.empty()) add(speed, name, x, median(c.decode), c.cache.empty());
      if (!c.hit_percent.empty()) add(hits, name, x, median(c.hit_percent), false);
      if (!c.read_mib.empty()) add(read, name, x, median(c.read_mib), c.cache.empty());
    }
  }
  std::vector<Chart> charts = {speed, hits, read};
  std::erase_if(charts, [](const Chart& chart) { return chart.series.empty(); });
  for (Chart& chart : charts) {
    for (ChartSeries& series : chart.series)
      std::ranges::stable_sort(series.points, {}, &std::pair<double, double>::first);
  }
  return charts;
}

}  // namespace moetier::cli
