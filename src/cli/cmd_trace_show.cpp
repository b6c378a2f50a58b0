// trace show: what a recorded trace says about its model's routing.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/support.h"
#include "cli/svg_chart.h"
#include "experts/trace_stats.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

TracePhase phase_of(std::string_view name) {
  return name == "prompt" ? TracePhase::prompt : name == "decoded" ? TracePhase::decoded : TracePhase::all;
}

/// "1", "2", "3-4", ... "over 1024": what a place of `reuse` holds.
std::string reuse_label(size_t place, size_t places) {
  const uint64_t to = uint64_t{1} << place;
  if (place + 1 == places) return fmt::format("over {}", to / 2);
  return place < 2 ? fmt::format("{}", to) : fmt::format("{}-{}", to / 2 + 1, to);
}

double percent_of(uint64_t part, uint64_t all) {
  return all == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(all);
}

Json json_of(const std::string& path, const RoutingTrace& trace, const TraceStats& s) {
  Json layers = Json::array(), overlap = Json::array(), reuse = Json::array(), unions = Json::array();
  for (const TraceStats::Layer& l : s.layers) {
    Json hottest = Json::object();
    for (size_t p = 0; p < s.kParts.size(); ++p) hottest[fmt::format("1/{}", s.kParts[p])] = 100 * l.hottest[p];
    layers.push_back({{"layer", l.layer},
                      {"tokens", l.tokens},
                      {"picks", l.picks},
                      {"used_experts", l.used},
                      {"effective_experts", l.effective},
                      {"hottest_pct", hottest},
                      {"overlap_pct", 100 * l.overlap},
                      {"independent_overlap_pct", 100 * l.independent},
                      {"entry_bytes", l.entry_bytes}});
  }
  for (size_t i = 0; i < s.kLags.size(); ++i) {
    if (s.overlap[i] >= 0) overlap.push_back({{"tokens_before", s.kLags[i]}, {"overlap_pct", 100 * s.overlap[i]}});
  }
  for (size_t i = 0; i < s.reuse.size(); ++i) {
    reuse.push_back({{"tokens_ago", reuse_label(i, s.reuse.size())},
                     {"picks", s.reuse[i]},
                     {"pct", percent_of(s.reuse[i], s.picks)}});
  }
  for (const TraceStats::Union& u : s.unions)
    unions.push_back({{"tokens", u.tokens}, {"experts", u.experts}, {"bytes", u.bytes}});
  return {{"trace", path},
          {"model", trace.model},
          {"arch", trace.arch},
          {"tokens", s.tokens},
          {"picks", s.picks},
          {"n_expert", s.n_expert},
          {"top_k", s.top_k},
          {"overlap", overlap},
          {"independent_overlap_pct", 100 * s.independent},
          {"reuse", reuse},
          {"first_picks", s.first_picks},
          {"union", unions},
          {"layers", layers}};
}

std::string skew_text(const TraceStats& s) {
  std::string out = fmt::format("\nskew: of a layer's picks, the share that its hottest experts took\n{:>14}", "");
  for (const int part : s.kParts) out += fmt::format("  {:>7}", fmt::format("1/{}", part));
  out += fmt::format("  {:>9}  {:>9}\n", "effective", "used");
  const auto row = [&](const char* name, auto pick) {
    out += fmt::format("{:>14}", name);
    for (size_t p = 0; p < s.kParts.size(); ++p)
      out += fmt::format("  {:>5.1f} %", 100 * pick([p](const TraceStats::Layer& l) { return l.hottest[p]; }));
    out += fmt::format("  {:>9.1f}  {:>9.1f}\n", pick([](const TraceStats::Layer& l) { return l.effective; }),
                       pick([](const TraceStats::Layer& l) { return static_cast<double>(l.used); }));
  };
  row("mean of layers", [&](auto value) {
    double sum = 0;
    for (const TraceStats::Layer& l : s.layers) sum += value(l);
    return sum / static_cast<double>(s.layers.size());
  });
  row("least", [&](auto value) { return value(*std::ranges::min_element(s.layers, {}, value)); });
  row("most", [&](auto value) { return value(*std::ranges::max_element(s.layers, {}, value)); });
  return out + fmt::format("{:>14}  {:.1f} % would be 1/{}'s share of picks by chance; {} experts a layer\n", "",
                           100.0 / s.kParts[0], s.kParts[0], s.n_expert);
}

std::string overlap_text(const TraceStats& s) {
  std::string out =
      "\noverlap: of a token's picks, the share that an earlier token picked in the same layer\n  tokens before ";
  for (size_t i = 0; i < s.kLags.size(); ++i) {
    if (s.overlap[i] >= 0) out += fmt::format("  {:>7}", s.kLags[i]);
  }
  out += "\n                ";
  for (size_t i = 0; i < s.kLags.size(); ++i) {
    if (s.overlap[i] >= 0) out += fmt::format("{:>7.1f} %", 100 * s.overlap[i]);
  }
  return out +
         fmt::format("\n  {:.1f} % if tokens drew from their layer's popularity, each for itself; {:.1f} % by chance\n",
                     100 * s.independent, 100.0 * s.top_k / std::max(s.n_expert, 1));
}

std::string reuse_text(const TraceStats& s) {
  std::string out = fmt::format("\nreuse: tokens since an entry was picked before\n  {:>12}  {:>8}  {:>8}\n",
                                "tokens ago", "picks", "up to it");
  uint64_t sum = 0;
  for (size_t i = 0; i < s.reuse.size(); ++i) {
    if (s.reuse[i] == 0) continue;
    sum += s.reuse[i];
    out += fmt::format("  {:>12}  {:>6.1f} %  {:>6.1f} %\n", reuse_label(i, s.reuse.size()),
                       percent_of(s.reuse[i], s.picks), percent_of(sum, s.picks));
  }
  return out + fmt::format("  {:>12}  {:>6.1f} %\n", "never before", percent_of(s.first_picks, s.picks));
}

std::string union_text(const TraceStats& s) {
  std::string out = fmt::format(
      "\nunion: distinct experts of a layer in so many tokens, mean of layers and windows\n  {:>6}  {:>8}  {:>9}  {}\n",
      "tokens", "experts", "of all", "all layers");
  for (const TraceStats::Union& u : s.unions) {
    out += fmt::format("  {:>6}  {:>8.1f}  {:>7.1f} %  {}\n", u.tokens, u.experts,
                       100 * u.experts / std::max(s.n_expert, 1),
                       u.bytes > 0 ? format_bytes(static_cast<uint64_t>(u.bytes)) : "bytes not told");
  }
  return out;
}

std::vector<Chart> charts_of(const TraceStats& s) {
  const auto hottest = [](const TraceStats::Layer& l) { return l.hottest[0]; };
  const auto skew_of = [&s](std::string_view which, const TraceStats::Layer& layer) {
    ChartSeries series{fmt::format("{} (layer {})", which, layer.layer), {{0, 0}}, false};
    for (size_t p = 0; p < s.kParts.size(); ++p)
      series.points.emplace_back(100.0 / s.kParts[p], 100 * layer.hottest[p]);
    series.points.emplace_back(100, 100);
    return series;
  };
  Chart skew{"Skew: picks of a layer's hottest experts", "experts, %", "picks, %", false, true, {}};
  skew.series = {skew_of("least", *std::ranges::min_element(s.layers, {}, hottest)),
                 skew_of("most", *std::ranges::max_element(s.layers, {}, hottest)),
                 {"by chance", {{0, 0}, {100, 100}}, true}};
  Chart overlap{"Overlap with an earlier token", "tokens before", "shared picks, %", true, true, {}};
  ChartSeries seen{"measured", {}, false}, alone{"by popularity", {}, true};
  for (size_t i = 0; i < s.kLags.size(); ++i) {
    if (s.overlap[i] < 0) continue;
    seen.points.emplace_back(s.kLags[i], 100 * s.overlap[i]);
    alone.points.emplace_back(s.kLags[i], 100 * s.independent);
  }
  overlap.series = {seen, alone};
  Chart reuse{"Reuse: picked before, at most so long ago", "tokens", "picks, %", true, true, {{"", {}, false}}};
  uint64_t sum = 0;
  for (size_t i = 0; i + 1 < s.reuse.size(); ++i)
    reuse.series[0].points.emplace_back(static_cast<double>(uint64_t{1} << i), percent_of(sum += s.reuse[i], s.picks));
  Chart unions{"Union: distinct experts of a layer", "tokens", "experts, % of all", true, true, {{"", {}, false}}};
  for (const TraceStats::Union& u : s.unions)
    unions.series[0].points.emplace_back(u.tokens, 100 * u.experts / std::max(s.n_expert, 1));
  return {skew, overlap, reuse, unions};
}

}  // namespace

int run_trace_show(const Settings& settings) {
  const std::string& path = need(settings, "trace");
  refuse_overwriting(settings, "svg", {"trace"});
  const RoutingTrace trace = read_prompted_trace(path, settings);
  const TraceStats stats = trace_stats(trace, path, phase_of(settings.text("phase")));
  if (settings.is_set("svg")) write_svg(settings.text("svg"), charts_of(stats));
  if (settings.flag("json")) {
    print_json(json_of(path, trace, stats));
    return 0;
  }
  std::string out = fmt::format("{}{}: {} tokens, {} layers x {} experts, top {}\n", path,
                                trace.model.empty() ? "" : fmt::format(" ({})", trace.model), stats.tokens,
                                stats.layers.size(), stats.n_expert, stats.top_k);
  if (!trace.told) out += "the file does not tell how many experts there are: one more than the highest seen\n";
  out += skew_text(stats) + overlap_text(stats) + reuse_text(stats) + union_text(stats);
  if (settings.flag("layers")) {
    out += fmt::format("\n{:>5}  {:>6}  {:>5}  {:>9}  {:>7}  {:>8}  {:>11}\n", "layer", "tokens", "used", "effective",
                       "1/8", "overlap", "independent");
    for (const TraceStats::Layer& l : stats.layers) {
      out += fmt::format("{:>5}  {:>6}  {:>5}  {:>9.1f}  {:>5.1f} %  {:>6.1f} %  {:>9.1f} %\n", l.layer, l.tokens,
                         l.used, l.effective, 100 * l.hottest[1], 100 * l.overlap, 100 * l.independent);
    }
  }
  print_out(out);
  return 0;
}

}  // namespace moetier::cli
