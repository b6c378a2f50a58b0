#include "engine/token_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "engine/machine.h"
#include "engine/residency.h"

namespace moetier {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMiB = 1048576.0;

double mib(uint64_t bytes) {
  return static_cast<double>(bytes) / kMiB;
}

std::optional<double> mib(const std::optional<uint64_t>& bytes) {
  return bytes ? std::optional(mib(*bytes)) : std::nullopt;
}

std::optional<double> hit_percent(const StoreCounters& c) {
  const uint64_t asked = c.hits + c.misses;
  if (asked == 0) return std::nullopt;
  return 100 * static_cast<double>(c.hits) / static_cast<double>(asked);
}

Json json_number(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace

LogFile::LogFile(const std::string& path)
    : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (fd_ < 0) fail("cannot write {}: {}", path, std::strerror(errno));
}

LogFile::~LogFile() {
  if (fd_ >= 0) ::close(fd_);
}

void LogFile::write(std::string_view text) {
  while (fd_ >= 0 && !text.empty()) {
    const ssize_t n = ::write(fd_, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      problem_ = fmt::format("{} ends early: {}", path_, std::strerror(n < 0 ? errno : ENOSPC));
      log::warn("{}", problem_);
      ::close(fd_);
      fd_ = -1;
      return;
    }
    text.remove_prefix(static_cast<size_t>(n));
  }
}

const std::vector<Column>& token_columns() {
  static const std::vector<Column> all = {
      {"turn", "the answer that the row belongs to, from 0"},
      {"phase", "prompt (all of it in one row) or decode"},
      {"step", "0 for the prompt, then the token's number; the first is sampled from the prompt's logits"},
      {"steps", "tokens wanted; nan if that was left open"},
      {"token", "id sampled; nan for the prompt"},
      {"wall_ms", "time since the row before"},
      {"read_wait_ms", "blocked until a read came"},
      {"manage_ms", "the store's bookkeeping, submitting and reaping of reads"},
      {"compute_ms", "computing outside of waits for experts; faults of mapped weights are in it"},
      {"sampling_ms", "choosing the token"},
      {"loop_overhead_ms", "wall time minus computing batches and sampling"},
      {"expert_compute_ms", "of compute_ms, experts"},
      {"hits", "distinct experts picked that were in memory, per ubatch and layer"},
      {"misses", "those that were not"},
      {"cache_hit_pct", "hits of hits and misses; nan without a cache or a pick"},
      {"evictions", "entries evicted"},
      {"rereads", "misses of entries that had been read before"},
      {"swaps", "entries that the adaptive policy brought in"},
      {"read_bytes", "read from the file by the store"},
      {"device_read_bytes", "fetched from drives for this process, faults and read-ahead too"},
      {"majflt", "major page faults of this process"},
      {"minflt", "minor ones"},
      {"cpu_ms", "CPU time of this process"},
      {"other_cpu_pct", "share of the machine's CPUs that others took"},
      {"swapped_in_bytes", "read back from swap by the whole machine"},
      {"cache_budget_mib", "what the cache may take; nan without a cache"},
      {"cache_resident_mib", "entries it holds; nan without a cache"},
      {"rss_mib", "resident memory"},
      {"rss_anon_mib", "of it, the program's own"},
      {"rss_file_mib", "of it, mapped files"},
      {"swap_mib", "of this process, in swap"},
      {"mem_available_mib", "memory that this process could still have"},
      {"cgroup_usage_mib", "used by the tightest memory cgroup around it; nan without one"},
      {"copied_bytes", "of entries, copied from the page cache when they were used again"},
      {"copy_ms", "copying them"},
  };
  return all;
}

struct TokenLog::Row {
  bool prompt = false;
  int64_t step = 0;
  TokenId token = -1;
  Cost cost;
};

TokenLog::TokenLog(Context& context, const Json& config, const TokenLogOptions& options, std::unique_ptr<LogFile> csv)
    : context_(context), options_(options), csv_(std::move(csv)), last_(read_meters(context, true)) {
  if (csv_ == nullptr) return;
  Engine& engine = context.engine();
  const HParams& h = engine.model().hparams();
  std::string text = fmt::format("# moetier_metrics v1\n# program=moetier version={}\n", MOETIER_VERSION);
  text += fmt::format("# model={} arch={} n_layer={} n_expert={} n_expert_used={} compute={} n_ctx={} n_ubatch={}\n",
                      engine.file().path(), h.architecture, h.layers, h.experts, h.top_k, engine.compute().name(),
                      context.options().context, context.options().ubatch);
  if (ExpertStore* store = engine.store(); store != nullptr) {
    const StoreStatus s = store->status();
    text += fmt::format(
        "# mode={} policy={} io={} dense_weights={} cache_budget_mb={:.2f} cache_cycle_mb={:.2f} transit_mb={:.2f} "
        "slots={} prefilled={}\n",
        to_string(s.mode), s.policy.empty() ? "none" : s.policy, s.io.empty() ? "none" : s.io,
        to_string(engine.residency().dense), mib(s.budget_bytes), mib(store->map().token_cycle_bytes()),
        mib(s.transit_bytes), s.slots, s.prefilled);
  }
  for (const auto& [name, setting] : config.items()) {
    if (!setting.is_object() || !setting.contains("value")) continue;
    text +=
        fmt::format("# config {}={} ({})\n", name, setting["value"].dump(-1, ' ', true, Json::error_handler_t::replace),
                    setting.value("source", "default"));
  }
  std::string header;
  for (const Column& c : token_columns()) {
    text += fmt::format("# column {}: {}\n", c.name, c.meaning);
    header += fmt::format("{}{}", header.empty() ? "" : ",", c.name);
  }
  csv_->write(text + header + "\n");
}

void TokenLog::started() {
  ++turn_;
  step_ = 0;
  text_.clear();
  last_ = read_meters(context_, true);
}

void TokenLog::prompt_done(int64_t, double seconds) {
  const Reading now = read_meters(context_, true);
  Row row{true, 0, -1, cost_between(last_, now)};
  row.cost.wall_seconds = seconds;
  last_ = now;
  write_row(row);
  progress_line(row);
}

void TokenLog::token_done(TokenId token, const TokenTimes& times) {
  const Reading now = read_meters(context_, true);
  Row row{false, ++step_, token, cost_between(last_, now)};
  row.cost.wall_seconds = times.wall;
  row.cost.sampling_seconds = times.sampling;
  last_ = now;
  write_row(row);
  progress_line(row);
}

void TokenLog::write_row(const Row& row) {
  if (csv_ == nullptr || !csv_->open()) return;
  std::string line;
  const auto put = [&line](std::string_view cell) {
    if (!line.empty()) line += ',';
    line += cell;
  };
  const auto number = [&](double value) { put(fmt::format("{:.6g}", value)); };
  const auto count = [&](uint64_t value) { put(fmt::format("{}", value)); };
  const auto maybe = [&](const std::optional<double>& value) { value ? number(*value) : put("nan"); };
  const Cost& c = row.cost;
  count(static_cast<uint64_t>(turn_));
  put(row.prompt ? "prompt" : "decode");
  count(static_cast<uint64_t>(row.step));
  put(options_.steps < 0 ? "nan" : fmt::format("{}", options_.steps));
  put(row.prompt ? "nan" : fmt::format("{}", row.token));
  for (const double seconds : {c.wall_seconds, c.store.read_wait_seconds, c.store.manage_seconds, c.compute_seconds(),
                               c.sampling_seconds, c.loop_seconds(), c.moe_compute_seconds}) {
    number(1000 * seconds);
  }
  ExpertStore* store = context_.engine().store();
  const StoreStatus status = store != nullptr ? store->status() : StoreStatus{};
  count(c.counters.hits + c.counters.large_hits);
  count(c.counters.misses + c.counters.large_misses);
  maybe(has_cache(status) ? hit_percent(c.counters) : std::nullopt);
  count(c.counters.evictions);
  count(c.counters.rereads);
  count(c.counters.swaps);
  count(c.counters.bytes_read);
  put(c.device_bytes ? fmt::format("{}", *c.device_bytes) : "nan");
  count(c.faults.major);
  count(c.faults.minor);
  maybe(c.cpu_seconds ? std::optional(1000 * *c.cpu_seconds) : std::nullopt);
  const auto others = c.other_cpu_share();
  maybe(others ? std::optional(100 * *others) : std::nullopt);
  put(c.swapped_in_bytes ? fmt::format("{}", *c.swapped_in_bytes) : "nan");
  maybe(has_cache(status) ? std::optional(mib(status.budget_bytes)) : std::nullopt);
  maybe(has_cache(status) ? std::optional(mib(store->resident_bytes())) : std::nullopt);
  const ProcessMemory memory = process_memory();
  const MemoryState state = memory_state();
  for (const uint64_t bytes : {memory.resident, memory.anonymous, memory.file}) number(mib(bytes));
  maybe(mib(memory.swapped));
  maybe(mib(state.available));
  maybe(state.tightest ? std::optional(mib(state.tightest->usage)) : std::nullopt);
  count(c.store.copied_bytes);
  number(1000 * c.store.copy_seconds);
  csv_->write(line + "\n");
}

void TokenLog::progress_line(const Row& row) {
  if (!options_.progress) return;
  const Cost& c = row.cost;
  Json line{{"event", row.prompt ? "prompt" : "token"}, {"turn", turn_}, {"step", row.step}};
  line["steps"] = options_.steps < 0 ? Json(nullptr) : Json(options_.steps);
  if (row.prompt) {
    line["prompt_rows"] = c.rows;
  } else {
    line["token"] = row.token;
    line["text"] = text_;
  }
  line["wall_ms"] = 1000 * c.wall_seconds;
  line["read_wait_ms"] = 1000 * c.store.read_wait_seconds;
  line["manage_ms"] = 1000 * c.store.manage_seconds;
  line["compute_ms"] = 1000 * c.compute_seconds();
  line["sampling_ms"] = 1000 * c.sampling_seconds;
  line["loop_overhead_ms"] = 1000 * c.loop_seconds();
  line["read_mib"] = mib(c.counters.bytes_read);
  ExpertStore* store = context_.engine().store();
  const bool cached = store != nullptr && has_cache(store->status());
  line["cache_hit_pct"] = json_number(cached ? hit_percent(c.counters) : std::nullopt);
  line["majflt"] = c.faults.major;
  fmt::print(stderr, "{}\n", line.dump(-1, ' ', false, Json::error_handler_t::replace));
  text_.clear();
}

const std::string& TokenLog::close(const RunMeters& meters) {
  if (csv_ == nullptr) return problem_;
  const RunMeters::Phase& decode = meters.decode();
  const Cost& c = decode.cost;
  const double tokens = static_cast<double>(std::max<uint64_t>(decode.tokens, 1));
  ExpertStore* store = context_.engine().store();
  const StoreStatus status = store != nullptr ? store->status() : StoreStatus{};
  const auto hits = has_cache(status) ? hit_percent(c.counters) : std::nullopt;
  csv_->write(
      fmt::format("# summary tokens={} s/tok={:.6f} tok/s={:.4f} read_MiB={:.2f} read_wait_s={:.6f} manage_s={:.6f} "
                  "compute_s={:.6f} sampling_s={:.6f} loop_overhead_s={:.6f} cache_hit_pct={} token_demand_MiB={:.2f} "
                  "layer_demand_MiB={:.2f} majflt={} evictions={} rereads={} load_s={:.3f} first_token_s={:.3f}\n",
                  decode.tokens, c.wall_seconds / tokens, c.wall_seconds > 0 ? tokens / c.wall_seconds : 0.0,
                  mib(c.counters.bytes_read), c.store.read_wait_seconds, c.store.manage_seconds, c.compute_seconds(),
                  c.sampling_seconds, c.loop_seconds(), hits ? fmt::format("{:.2f}", *hits) : "nan",
                  mib(status.token_demand_bytes), mib(status.layer_demand_bytes), c.faults.major, c.counters.evictions,
                  c.counters.rereads, context_.engine().load_seconds(), context_.engine().first_token().after_start));
  problem_ = csv_->problem();
  return problem_;
}

}  // namespace moetier
