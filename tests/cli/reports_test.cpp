// Charts, grids of measurements and comparisons of records, without running anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "cli/bench_grid.h"
#include "cli/record_compare.h"
#include "cli/svg_chart.h"
#include "support/error_of.h"

namespace moetier::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing_support::error_of;
using Json = nlohmann::ordered_json;

TEST(SvgChart, HoldsWhatItIsGiven) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Chart> charts = {{"Hits & <misses>",
                                      "MiB",
                                      "%",
                                      false,
                                      true,
                                      {{"lru", {{1000, 20}, {2000, 40}}, false}, {"best", {{1000, kNan}}, true}}},
                                     {"Empty", "x", "y", true, true, {}}};
  const std::string svg = svg_of(charts);
  EXPECT_THAT(svg, HasSubstr("Hits &amp; &lt;misses&gt;"));
  EXPECT_THAT(svg, HasSubstr(">lru</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  EXPECT_EQ(svg, svg_of(charts));
  // The lower left point of the first chart lies where its axes begin, the highest x at their end.
  EXPECT_THAT(svg, HasSubstr("M64.0"));
  EXPECT_THAT(svg_of({}), HasSubstr("</svg>"));
}

TEST(SvgChart, PointsLieInsideTheirAxes) {
  for (const bool log_x : {false, true}) {
    const Chart chart{"t", "x", "y", log_x, false, {{"a", {{3, -5}, {700, 5}}, false}}};
    const std::string svg = svg_of({&chart, 1});
    for (size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) {
      const double x = std::stod(svg.substr(svg.find("cx=\"", at) + 4)),
                   y = std::stod(svg.substr(svg.find("cy=\"", at) + 4));
      EXPECT_GE(x, 64);
      EXPECT_LE(x, 560 - 16 + 0.1);
      EXPECT_GE(y, 36 - 0.1);
      EXPECT_LE(y, 400 - 48 + 0.1);
    }
  }
}

Json record(double prompt, double decode, double hits) {
  return {{"prompt_tok_s", {{"median", prompt}}},
          {"decode_tok_s", {{"median", decode}}},
          {"stats", {{"decode", {{"cache_hit_pct", hits}, {"read_mib_per_token", 100 - hits}}}}}};
}

TEST(BenchGrid, HasEveryCombinationOnce) {
  const std::vector<GridCell> cells = grid_cells({"mmap", "stream"}, {"100", "200"}, {"lru", "default"}, {"1", "2"});
  EXPECT_EQ(cells.size(), 2 + 2 * 2 * 2u);
  EXPECT_EQ(cells[0].cache, "");
  EXPECT_EQ(cells[2].policy, "lru");
}

TEST(BenchGrid, TellsMediansAndRanges) {
  std::vector<GridCell> cells = grid_cells({"mmap", "stream"}, {"100", "200"}, {"lru"}, {"2"});
  for (const double decode : {5.0, 4.0, 6.0}) {
    for (GridCell& cell : cells) add_run(cell, record(50, decode + (cell.cache == "200" ? 1 : 0), 60));
  }
  EXPECT_EQ(median({3, 1}), 2);
  EXPECT_THAT(grid_markdown(cells), HasSubstr("| stream | 200 | lru | 2 | 50.00 | 6.00 | 5.00 | 7.00 | 60.0 | 40.0 |"));
  EXPECT_THAT(grid_markdown(cells), HasSubstr("| mmap |  |  | 2 | 50.00 | 5.00 | 4.00 | 6.00 |  | 40.0 |"));
  EXPECT_THAT(grid_csv(cells), HasSubstr("stream,100,lru,2,3,50,6,60,40\n"));
  const Json json = grid_json(cells);
  EXPECT_EQ(json[1]["cache_mib"], 100);
  EXPECT_EQ(json[0]["decode_hit_pct"], nullptr);
  const std::vector<Chart> charts = grid_charts(cells);
  ASSERT_EQ(charts.size(), 3u);
  EXPECT_THAT(charts[0].series[0].points, ElementsAre(std::pair(100.0, 5.0), std::pair(200.0, 5.0)));  // mmap, across
  EXPECT_THAT(charts[0].series[1].points, ElementsAre(std::pair(100.0, 5.0), std::pair(200.0, 6.0)));
}

TEST(Compare, SaysWhatDifferedAndWhatThatDid) {
  Json a = record(50, 5, 60), b = record(55, 10, 60);
  a["decode_tok_s"] = {{"median", 5}, {"min", 4}, {"max", 6}, {"samples", {4, 5, 6}}};
  b["decode_tok_s"] = {{"median", 10}, {"min", 9}, {"max", 11}, {"samples", {9, 10, 11}}};
  a["config"] = {{"threads", {{"value", 2}, {"source", "flag"}}}, {"io", {{"value", "auto"}, {"source", "default"}}}};
  b["config"] = {{"threads", {{"value", 4}, {"source", "flag"}}}, {"io", {{"value", "auto"}, {"source", "flag"}}}};
  a["machine"] = {{"cpu", "one"}};
  b["machine"] = {{"cpu", "two"}};
  const RecordComparison c = compare_records(a, "a.json", b, "b.json");
  ASSERT_EQ(c.configuration.size(), 1u);
  EXPECT_EQ(c.configuration[0].name, "--threads");
  EXPECT_EQ(c.configuration[0].b, "4");
  ASSERT_EQ(c.circumstances.size(), 1u);
  EXPECT_EQ(c.circumstances[0].name, "machine.cpu");
  ASSERT_GE(c.results.size(), 4u);
  EXPECT_EQ(c.results[0].name, "prompt");
  EXPECT_EQ(c.results[0].apart, -1);
  EXPECT_EQ(c.results[1].name, "decode");
  EXPECT_DOUBLE_EQ(c.results[1].ratio(), 2);
  EXPECT_EQ(c.results[1].apart, 1);
  b["decode_tok_s"]["min"] = 5;
  EXPECT_EQ(compare_records(a, "a", b, "b").results[1].apart, 0);
  EXPECT_THAT(error_of([&] { compare_records(Json::array(), "a.json", b, "b.json"); }),
              HasSubstr("a.json is no record"));
  Json grid = {{"config", Json::object()}, {"cells", Json::array()}};
  EXPECT_THAT(error_of([&] { compare_records(a, "a.json", grid, "g.json"); }), HasSubstr("g.json is a grid"));
}

TEST(Compare, MatchesTheCellsOfGrids) {
  std::vector<GridCell> cells = grid_cells({"stream"}, {"100", "200"}, {"lru"}, {"2"});
  for (GridCell& cell : cells) add_run(cell, record(50, 5, 60));
  const Json a = {{"config", Json::object()}, {"cells", grid_json(cells)}};
  cells.pop_back();
  cells[0].decode = {10};
  const Json b = {{"config", Json::object()}, {"cells", grid_json(cells)}};
  const RecordComparison c = compare_records(a, "a", b, "b");
  EXPECT_THAT(c.only_one, ElementsAre("stream 200 lru -t 2"));
  ASSERT_EQ(c.results.size(), 4u);
  EXPECT_EQ(c.results[1].name, "stream 100 lru -t 2: decode");
  EXPECT_DOUBLE_EQ(c.results[1].ratio(), 2);
}

}  // namespace
}  // namespace moetier::cli
