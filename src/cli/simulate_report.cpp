#include "cli/simulate_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr double kMiB = 1048576.0;

bool knows_the_future(std::string_view policy) {
  return policy == "belady";
}

}  // namespace

size_t SimulateReport::sizes() const {
  const auto other = std::ranges::find_if(runs, [&](const Simulated& s) { return s.policy != runs.front().policy; });
  return static_cast<size_t>(other - runs.begin());
}

size_t SimulateReport::widest_name() const {
  size_t width = 26;
  for (const Simulated& s : runs) width = std::max(width, s.policy.size());
  return width;
}

/// A decoded token's, swaps included.
double SimulateReport::read_bytes(const SimulationResult& r) const {
  return static_cast<double>(r.miss_bytes + r.swap_bytes) /
         static_cast<double>(std::max<int64_t>(run.decode_tokens, 1));
}

double SimulateReport::endless_percent(const SimulationResult& any) const {
  const auto all = static_cast<double>(any.hits + any.misses);
  return all > 0 ? 100 * (1 - static_cast<double>(compulsory) / all) : 0;
}

TokenBytes SimulateReport::token_bytes(const SimulationResult& r) const {
  return {dense_bytes, static_cast<double>(run.cycle_bytes()), read_bytes(r), static_cast<int>(run.shapes.size())};
}

TokenTime SimulateReport::time_of(const SimulationResult& r) const {
  return token_time(token_bytes(r), rates);
}

Json SimulateReport::json() const {
  Json head = {{"trace", trace},
               {"layers", run.shapes.size()},
               {"n_expert", run.shapes.front().n_expert},
               {"top_k", run.shapes.front().top_k},
               {"prompt_tokens", run.prompt_tokens},
               {"decode_tokens", run.decode_tokens},
               {"sizes", engine ? "slots of a run, homes in transit included" : "bytes of entries"},
               {"cache_cycle_mb", static_cast<double>(run.cycle_bytes()) / kMiB},
               {"bank_mb", static_cast<double>(run.bank_bytes()) / kMiB},
               {"compulsory_misses", compulsory},
               {"endless_hit_pct", endless_percent(runs.front().result)}};
  if (!train.empty()) head["train"] = train;
  if (profile_entries > 0) head["profile_entries"] = profile_entries;
  Json list = Json::array();
  for (const auto& [policy, mib, r] : runs) {
    Json one = {{"policy", policy},
                {"cache_mb", mib},
                {"decode_hit_pct", r.hit_percent()},
                {"hits", r.hits},
                {"misses", r.misses},
                {"prompt_hits", r.prompt_hits},
                {"prompt_misses", r.prompt_misses},
                {"evictions", r.evictions},
                {"bytes_per_token", static_cast<uint64_t>(read_bytes(r))},
                {"miss_bytes", r.miss_bytes},
                {"prompt_miss_bytes", r.prompt_miss_bytes},
                {"swap_bytes", r.swap_bytes},
                {"slots", r.slots},
                {"slot_bytes", r.capacity_bytes}};
    if (const TokenTime time = time_of(r); time.known) {
      one["token_seconds"] = time.expected();
      one["tok_s"] = 1 / time.expected();
    }
    list.push_back(std::move(one));
  }
  if (list.size() == 1) {
    head.update(list.front());
  } else {
    head["runs"] = std::move(list);
  }
  return head;
}

template <typename Value>
std::string SimulateReport::table(std::string_view title, Value value, bool without_zeros) const {
  const size_t n = sizes(), width = widest_name();
  std::string out;
  for (size_t first = 0; first < runs.size(); first += n) {
    const std::span its = std::span(runs).subspan(first, n);
    if (without_zeros && std::ranges::all_of(its, [&](const Simulated& s) { return value(s.result) == 0; })) continue;
    out += fmt::format("\n{:<{}}", its.front().policy, width);
    for (const Simulated& s : its) out += fmt::format(" {:>8.1f}", value(s.result));
  }
  if (out.empty()) return out;
  std::string head = fmt::format("\n{:<{}}", title, width);
  for (size_t s = 0; s < n; ++s) head += fmt::format(" {:>8}", runs[s].mib);
  return head + out + '\n';
}

std::string SimulateReport::text() const {
  std::string out =
      fmt::format("{}: {} layers x {} experts, top {}; {} prompt and {} decoded tokens\n", trace, run.shapes.size(),
                  run.shapes.front().n_expert, run.shapes.front().top_k, run.prompt_tokens, run.decode_tokens);
  out += fmt::format("token cycle {:.1f} MiB, all entries {:.0f} MiB; sizes are {}\n",
                     static_cast<double>(run.cycle_bytes()) / kMiB, static_cast<double>(run.bank_bytes()) / kMiB,
                     engine ? "slots of a run, homes in transit included" : "bytes of entries");
  if (profile_entries > 0)
    out += fmt::format("filled first from a profile of {} entries{}\n", profile_entries,
                       train.empty() ? "" : " made from " + train);
  out += table("decode hits %, at MiB", [](const SimulationResult& r) { return r.hit_percent(); });
  out += fmt::format("{:<{}}", "an endless cache", widest_name());
  for (size_t s = 0; s < sizes(); ++s) out += fmt::format(" {:>8.1f}", endless_percent(runs.front().result));
  out += '\n' + table("MiB read per token", [&](const SimulationResult& r) { return read_bytes(r) / kMiB; });
  const double tokens = static_cast<double>(std::max<int64_t>(run.decode_tokens, 1));
  out += table(
      "of them swapped in",
      [&](const SimulationResult& r) { return static_cast<double>(r.swap_bytes) / tokens / kMiB; }, true);
  if (!time_of(runs.front().result).known) return out;
  out += table("expected tok/s", [&](const SimulationResult& r) { return 1 / time_of(r).expected(); });
  const SimulationResult& first = runs.front().result;
  return out + fmt::format("\nthe first of them ({} with {} MiB; {}):\n{}", runs.front().policy, runs.front().mib, how,
                           explain(token_bytes(first), rates));
}

std::vector<Chart> SimulateReport::charts() const {
  Chart hits{"Hit rate of decoded tokens", "cache, MiB", "hits, %", false, true, {}};
  Chart read{"Read from the drive", "cache, MiB", "MiB per token", false, true, {}};
  Chart speed{"Expected speed", "cache, MiB", "tok/s", false, true, {}};
  const size_t n = sizes();
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto& [policy, mib, r] = runs[i];
    if (i % n == 0) {
      for (Chart* chart : {&hits, &read, &speed})
        chart->series.push_back({std::string(policy), {}, knows_the_future(policy)});
    }
    const auto x = static_cast<double>(mib);
    hits.series.back().points.emplace_back(x, r.hit_percent());
    read.series.back().points.emplace_back(x, read_bytes(r) / kMiB);
    if (const TokenTime time = time_of(r); time.known) speed.series.back().points.emplace_back(x, 1 / time.expected());
  }
  ChartSeries endless{"endless", {}, true};
  for (size_t s = 0; s < n; ++s)
    endless.points.emplace_back(static_cast<double>(runs[s].mib), endless_percent(runs[s].result));
  hits.series.push_back(std::move(endless));
  std::vector<Chart> charts = {hits, read};
  if (time_of(runs.front().result).known) charts.push_back(speed);
  for (Chart& chart : charts) {
    for (ChartSeries& series : chart.series)
      std::ranges::stable_sort(series.points, {}, &std::pair<double, double>::first);
  }
  return charts;
}

}  // namespace moetier::cli
