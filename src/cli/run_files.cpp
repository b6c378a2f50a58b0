#include "cli/run_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/support.h"
#include "engine/account.h"
#include "engine/op_report.h"
#include "engine/residency_report.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 6> kOutputs = {"record",      "stats-json",      "csv",
                                                      "route-trace", "moe-cache-audit", "session"};

/// The path that --`name` gives; empty if the command has no such flag or it is not given.
std::string output(const Settings& settings, std::string_view name) {
  return settings.has(name) && settings.is_set(name) ? settings.text(name) : std::string();
}

void check_outputs(const Settings& settings) {
  for (size_t i = 0; i < kOutputs.size(); ++i) {
    const std::string path = output(settings, kOutputs[i]);
    if (path.empty()) continue;
    for (const std::string_view input : {"model", "file", "chat-template", "moe-cache-profile", "replay"}) {
      if (settings.has(input)) refuse_overwriting(settings, kOutputs[i], {input});
    }
    for (size_t other = 0; other < i; ++other) {
      if (path == output(settings, kOutputs[other]))
        usage_error("--{} and --{} name the same file; choose another for one of them", kOutputs[other], kOutputs[i]);
    }
  }
}

std::unique_ptr<AtomicFile> open_output(const Settings& settings, std::string_view name) {
  const std::string path = output(settings, name);
  return path.empty() ? nullptr : std::make_unique<AtomicFile>(path);
}

void write_json(AtomicFile& file, const Json& json) {
  file.write(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  file.commit();
}

}  // namespace

ParamList stats_params() {
  return {{.name = "stats-json",
           .type = ParamType::path,
           .value = "FILE",
           .help =
               "Writes what the run cost (JSON, docs/records.md): hit rate, reads, waits, faults, memory, per layer, "
               "prefill and decode apart."}};
}

ParamList token_params() {
  return {{.name = "csv",
           .type = ParamType::path,
           .value = "FILE",
           .help = "Writes a row for each token (CSV, docs/records.md): every wait, faults, memory."},
          {.name = "progress",
           .type = ParamType::flag,
           .help = "Prints a line of JSON for each token on standard error (docs/records.md)."}};
}

RunFiles::RunFiles(const Settings& settings) : settings_(settings) {
  check_outputs(settings);
  record_file_ = open_output(settings, "record");
  stats_file_ = open_output(settings, "stats-json");
  if (const std::string csv = output(settings, "csv"); !csv.empty()) csv_file_ = std::make_unique<LogFile>(csv);
}

void RunFiles::begin(Context& context, RunRecord& record, const Json& config, int64_t steps, RouteLog* trace) {
  context_ = &context;
  record_ = &record;
  trace_ = trace;
  std::vector<GenerateWatcher*> watchers = {&record.meters()};
  const bool progress = settings_.has("progress") && settings_.flag("progress");
  if (csv_file_ != nullptr || progress) {
    log_ = std::make_unique<TokenLog>(context, config, TokenLogOptions{progress, steps}, std::move(csv_file_));
    watchers.push_back(log_.get());
  }
  if (trace != nullptr) watchers.push_back(trace);
  watchers_ = std::make_unique<Watchers>(std::move(watchers));
}

void RunFiles::add_text(std::string_view text) {
  if (log_ != nullptr) log_->add_text(text);
}

void RunFiles::finish(const Json& json) {
  const bool verbose = settings_.flag("verbose");
  for (const std::string& line : residency_lines(*context_, record_->meters(), verbose)) log::info("{}", line);
  if (context_->engine().store() != nullptr) log::info("{}", account(account_input(*context_, record_->meters())));
  Engine& engine = context_->engine();
  if (settings_.has("profile-token") && settings_.flag("profile-token")) {
    for (const std::string& line : token_lines(engine, record_->meters())) fmt::print(stderr, "{}\n", line);
  }
  if (settings_.has("profile-ops") && settings_.flag("profile-ops")) {
    for (const std::string& line : op_lines(engine)) fmt::print(stderr, "{}\n", line);
  }
  Cost total = record_->meters().prompt().cost;
  total.add(record_->meters().decode().cost);
  constexpr uint64_t kMuchSwap = uint64_t{1} << 20;
  if (total.swapped_in_bytes.value_or(0) >= kMuchSwap) {
    log::warn("{} came back from swap while this ran: memory is short, here or elsewhere on this machine",
              format_bytes(*total.swapped_in_bytes));
  }
  std::vector<std::string> problems;
  const auto attempt = [&problems](auto&& write) {
    try {
      write();
    } catch (const Error& error) {
      problems.emplace_back(error.what());
    }
  };
  if (record_file_ != nullptr) attempt([&] { write_json(*record_file_, json); });
  if (stats_file_ != nullptr) attempt([&] { write_json(*stats_file_, stats_json(*context_, record_->meters())); });
  if (log_ != nullptr) {
    if (const std::string& problem = log_->close(record_->meters()); !problem.empty()) problems.push_back(problem);
  }
  if (trace_ != nullptr) attempt([&] { trace_->finish(); });
  if (!problems.empty()) fail("{}", fmt::join(problems, "; "));
}

}  // namespace moetier::cli
