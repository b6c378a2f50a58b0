#include "engine/op_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/context.h"

namespace moetier {
namespace {

using Json = nlohmann::ordered_json;
using Phase = OpProfile::Phase;

/// What an operation is to this model, where its shape tells.
std::string title(const OpKey& key, const HParams& h) {
  std::string name(key.name);
  if (name == "matmul" && key.rows == h.vocab) {
    name = "logits";
  } else if (name == "matmul" && h.experts > 0 && key.rows == h.experts) {
    name = "router";
  }
  if (key.columns > 0) name += fmt::format(" {} {}x{}", type_name(key.type), key.columns, key.rows);
  return name;
}

struct Sum {
  double seconds = 0, waits = 0;
  std::vector<OpProfile::Line> lines;  ///< the dearest first
};

Sum sum_of(const OpProfile::Lines& lines) {
  Sum sum;
  sum.lines = lines.lines;
  std::ranges::sort(sum.lines, std::greater{}, [](const OpProfile::Line& l) { return l.seconds + l.wait_seconds; });
  for (const OpProfile::Line& line : sum.lines) {
    sum.seconds += line.seconds;
    sum.waits += line.wait_seconds;
  }
  return sum;
}

Json phase_json(const OpProfile::Lines& lines, const HParams& h) {
  const Sum sum = sum_of(lines);
  Json ops = Json::array();
  for (const OpProfile::Line& line : sum.lines) {
    ops.push_back({{"op", title(line.key, h)},
                   {"calls", line.calls},
                   {"seconds", line.seconds},
                   {"barrier_wait_s", line.wait_seconds},
                   {"weight_mib", static_cast<double>(line.bytes) / 1048576.0}});
  }
  return {{"rows", lines.rows},          {"batch_s", lines.batch_seconds}, {"ops_s", sum.seconds},
          {"barrier_wait_s", sum.waits}, {"barriers", lines.rounds},       {"ops", ops}};
}

void put_lines(std::vector<std::string>& to, const OpProfile::Lines& lines, const HParams& h, const char* what) {
  if (lines.rows == 0) return;
  const Sum sum = sum_of(lines);
  const double rows = static_cast<double>(lines.rows), ms = 1000 / rows;
  const double rest = std::max(0.0, lines.batch_seconds - sum.seconds - sum.waits);
  to.push_back(fmt::format(
      "{}: {} rows, {:.3f} ms each: {:.3f} in operations, {:.3f} waiting at {:.1f} barriers, {:.3f} between operations",
      what, lines.rows, lines.batch_seconds * ms, sum.seconds * ms, sum.waits * ms,
      static_cast<double>(lines.rounds) / rows, rest * ms));
  to.push_back(
      fmt::format("{:>10} {:>6} {:>10} {:>8} {:>8}  {}", "ms/row", "%", "wait ms", "calls", "GB/s", "operation"));
  for (const OpProfile::Line& line : sum.lines) {
    const double all = line.seconds + line.wait_seconds;
    const double share = lines.batch_seconds > 0 ? 100 * all / lines.batch_seconds : 0;
    const std::string rate =
        line.bytes > 0 && all > 0 ? fmt::format("{:.2f}", static_cast<double>(line.bytes) / all / 1e9) : "";
    to.push_back(fmt::format("{:>10.4f} {:>6.2f} {:>10.4f} {:>8} {:>8}  {}", line.seconds * ms, share,
                             line.wait_seconds * ms, line.calls, rate, title(line.key, h)));
  }
}

}  // namespace

Json ops_json(Engine& engine) {
  const HParams& h = engine.model().hparams();
  return {{"decode", phase_json(engine.profile().lines(Phase::single), h)},
          {"prefill", phase_json(engine.profile().lines(Phase::batch), h)}};
}

std::vector<std::string> op_lines(Engine& engine) {
  std::vector<std::string> lines;
  const HParams& h = engine.model().hparams();
  put_lines(lines, engine.profile().lines(Phase::batch), h, "operations, prompts");
  put_lines(lines, engine.profile().lines(Phase::single), h, "operations, decoding");
  return lines;
}

std::vector<std::string> token_lines(Engine& engine, const RunMeters& meters) {
  const RunMeters::Phase& phase = meters.decode();
  if (phase.tokens == 0) return {};
  const Cost& c = phase.cost;
  const double ms = 1000 / static_cast<double>(phase.tokens);
  std::vector<std::string> lines;
  lines.push_back(fmt::format("a token took {:.3f} ms (mean of {}):", c.wall_seconds * ms, phase.tokens));
  const auto put = [&](double seconds, std::string_view what) {
    const double share = c.wall_seconds > 0 ? 100 * seconds / c.wall_seconds : 0;
    lines.push_back(fmt::format("{:>10.3f} ms {:>6.2f} %  {}", seconds * ms, share, what));
  };
  put(c.compute_seconds() - c.moe_compute_seconds, "computing all but experts");
  put(c.moe_compute_seconds, "computing experts");
  put(c.store.read_wait_seconds, "waiting for reads");
  put(c.store.copy_seconds, "copying experts from the page cache");
  put(std::max(0.0, c.moe_wait_seconds - c.store.read_wait_seconds - c.store.copy_seconds),
      "bookkeeping of the expert store");
  put(c.sampling_seconds, "sampling");
  put(c.loop_seconds(), "text, logs and the loop itself");
  const OpProfile::Lines& single = engine.profile().lines(Phase::single);
  if (engine.profile().timed() && single.rows > 0) {
    const double row_ms = 1000 / static_cast<double>(single.rows);
    lines.push_back(fmt::format("{:>10.3f} ms           of computing: at barriers, for other threads",
                                sum_of(single).waits * row_ms));
  }
  return lines;
}

}  // namespace moetier
