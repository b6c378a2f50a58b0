// bench: prompt and decode speed.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/progress.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/replay.h"
#include "cli/route_trace.h"
#include "cli/run_audit.h"
#include "cli/run_files.h"
#include "cli/support.h"
#include "engine/machine_limits.h"
#include "engine/residency_report.h"
#include "engine/run_meters.h"
#include "engine/run_record.h"
#include "model/model.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Tokens that are neither all alike (they would meet the same experts) nor the same from call to call in any harmful
/// way: a fixed multiplicative walk over the vocabulary.
TokenId bench_token(int64_t i, int64_t vocab) {
  return static_cast<TokenId>((i * 7919 + 13) % vocab);
}

/// What is measured, and who is told.
struct Bench {
  Context& context;
  RouteLog* trace;
  const SequenceState* held = nullptr;  // what every measurement goes on from, if anything
  int64_t parallel = 1;                 // sequences that decode together
  GenerateWatcher* watcher = nullptr;   // none during the warm-up

  SequenceState begin() const { return held != nullptr ? held->fork() : context.new_sequence(); }
  TokenId token(int64_t i) const { return bench_token(i, context.engine().model().hparams().vocab); }
};

/// Tokens per second of a prompt of `count` tokens after what is held.
double measure_prompt(const Bench& bench, int64_t count) {
  if (bench.trace != nullptr) bench.trace->begin_turn();
  SequenceState sequence = bench.begin();
  std::vector<BatchRow> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back({bench.token(i), &sequence, i + 1 == count});
  if (bench.watcher != nullptr) bench.watcher->started();
  const auto start = Clock::now();
  bench.context.decode(rows);
  const double seconds = seconds_since(start);
  if (bench.watcher != nullptr) {
    bench.watcher->prompt_done(count, seconds);
    bench.watcher->finished();
  }
  return static_cast<double>(count) / seconds;
}

/// Fills a sequence with `depth` positions.
void fill(const Bench& bench, SequenceState& sequence, int64_t depth) {
  std::vector<BatchRow> rows;
  for (int64_t i = 0; i < depth; ++i) rows.push_back({bench.token(i), &sequence, i + 1 == depth});
  bench.context.decode(rows);
}

struct DecodeSample {
  double tok_s = 0;  ///< of all sequences, over all steps but the first, which pays for what was not in memory yet
  /// Wall seconds of the first steps, RunMeters::kFirstTokens at most.
  std::vector<double> first;
};

/// Tells a watcher of one step, each sequence's token as an equal share of it.
void note_step(GenerateWatcher& watcher, std::span<const BatchRow> rows, double wall, double computing) {
  const auto count = static_cast<double>(rows.size());
  for (const BatchRow& row : rows) watcher.token_done(row.token, {wall / count, computing / count, 0});
}

/// `count` single steps of all sequences behind a first one, after what is held. The first is not metered.
DecodeSample measure_decode(const Bench& bench, int64_t count) {
  if (bench.trace != nullptr) {
    bench.trace->begin_turn();
    bench.trace->begin_decode();
  }
  std::vector<SequenceState> sequences;
  for (int64_t s = 0; s < bench.parallel; ++s) sequences.push_back(bench.begin());
  std::vector<BatchRow> rows;
  for (SequenceState& sequence : sequences) rows.push_back({0, &sequence, true});
  const auto step = [&](int64_t i) {
    for (size_t s = 0; s < rows.size(); ++s) rows[s].token = bench.token(i * bench.parallel + static_cast<int64_t>(s));
    bench.context.decode(rows);
  };
  DecodeSample sample;
  const auto first = Clock::now();
  step(0);
  sample.first.push_back(seconds_since(first));
  if (bench.watcher != nullptr) bench.watcher->started();
  const auto start = Clock::now();
  auto last = start;
  for (int64_t i = 1; i <= count; ++i) {
    const auto before = Clock::now();
    step(i);
    if (sample.first.size() < RunMeters::kFirstTokens) sample.first.push_back(seconds_since(before));
    if (bench.watcher == nullptr) continue;
    const auto now = Clock::now();
    const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
    note_step(*bench.watcher, rows, seconds(now - last), seconds(now - before));
    last = now;
  }
  sample.tok_s = static_cast<double>(count * bench.parallel) / seconds_since(start);
  if (bench.watcher != nullptr) bench.watcher->finished();
  return sample;
}

/// One of each brings weights into memory and scratch to its size. Gives the seconds of the first tokens after load:
/// decoded before anything else, so they show what the dense policy and the cache had to fetch.
std::vector<double> warm_up(const Bench& bench, int64_t prompt, int64_t generate) {
  std::vector<double> first;
  if (generate > 0) first = measure_decode(bench, std::min<int64_t>(generate, 16)).first;
  if (prompt > 0) measure_prompt(bench, prompt);
  return first;
}

struct Samples {
  std::vector<double> prompt, decode, first;
};

Samples measure(const Bench& bench, int64_t prompt, int64_t generate, int64_t repeat) {
  Progress progress("bench");
  Samples samples;
  for (int64_t i = 0; i < repeat; ++i) {
    if (prompt > 0) samples.prompt.push_back(measure_prompt(bench, prompt));
    if (generate > 0) {
      const DecodeSample sample = measure_decode(bench, generate);
      samples.decode.push_back(sample.tok_s);
      samples.first.push_back(sample.first.front());
    }
    progress.update(static_cast<uint64_t>(i + 1), static_cast<uint64_t>(repeat));
  }
  return samples;
}

Json spread(std::vector<double> samples) {
  if (samples.empty()) return nullptr;
  Json in_order = samples;
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  const double median = n % 2 == 1 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
  return {{"median", median}, {"min", samples.front()}, {"max", samples.back()}, {"samples", in_order}};
}

std::string line(const char* what, int64_t tokens, const Json& s) {
  if (s.is_null()) return "";
  return fmt::format("{:<7} {:>6} tokens: {:>9.2f} tok/s (median of {}; {:.2f} to {:.2f})\n", what, tokens,
                     s["median"].get<double>(), s["samples"].size(), s["min"].get<double>(), s["max"].get<double>());
}

std::string first_line(const std::vector<double>& seconds) {
  if (seconds.empty()) return "";
  std::string text = fmt::format("first   {:>6} tokens after load:", seconds.size());
  for (const double s : seconds) text += fmt::format(" {:.1f}", 1000 * s);
  return text + " ms\n";
}

/// The limits of the machine and of the drive that the model is on.
int run_machine(const Settings& settings) {
  LimitsOptions options;
  options.most_threads = thread_count(settings);
  options.isa = parse_isa(settings.text("isa"));
  options.work = settings.text("work");
  if (settings.is_set("model")) {
    const GgufFile file = open_model_file(settings);
    options.file = file.path();
    const int top_k = read_top_k(file);
    const EntryMap map = top_k > 0 ? EntryMap::from_gguf(file, top_k) : EntryMap{};
    if (!map.layers.empty()) options.request_bytes = map.layers.front().slices.front().slice_bytes;
  }
  const MachineLimits limits = measure_machine(options);
  if (settings.flag("json")) {
    Json json = limits_json(limits);
    json["machine"] = machine_json();
    print_json(json);
  } else {
    print_out(limits_text(limits));
  }
  return 0;
}

/// How much of the memory's read bandwidth decoding reached: weights that a token reads, over what could be read.
struct Share {
  double bandwidth = 0;        ///< bytes per second; 0 = not measured
  double bytes_per_token = 0;  ///< of weights

  Json json(const Json& decode) const {
    if (bandwidth <= 0 || decode.is_null()) return nullptr;
    return {
        {"read_bytes_per_second", bandwidth}, {"weight_bytes_per_token", bytes_per_token}, {"share", share(decode)}};
  }
  double share(const Json& decode) const { return bytes_per_token * decode["median"].get<double>() / bandwidth; }
  std::string line(const Json& decode) const {
    if (bandwidth <= 0 || decode.is_null()) return "";
    return fmt::format(
        "memory  {:.2f} GB/s can be read, {:.3f} GB of weights a token: decoding reached {:.1f} % of it\n",
        bandwidth / 1e9, bytes_per_token / 1e9, 100 * share(decode));
  }
};

/// Memory's bandwidth now; 0 where it is not wanted. To be asked before a model is loaded, so that the block is no part
/// of what the run takes.
double bandwidth_now(const Settings& settings) {
  if (!settings.flag("read-bandwidth") || settings.integer("n") == 0) return 0;
  return read_bandwidth(thread_count(settings), parse_isa(settings.text("isa")));
}

std::string start_line(Engine& engine) {
  const Engine::FirstToken& first = engine.first_token();
  return fmt::format("start   loaded in {}, first token {} after that\n", format_seconds(engine.load_seconds()),
                     format_seconds(first.after_load));
}

}  // namespace

int run_bench(const Settings& settings) {
  if (settings.flag("machine")) return run_machine(settings);
  const int64_t prompt = settings.integer("prompt-tokens"), generate = settings.integer("n");
  if (prompt == 0 && generate == 0) usage_error("--prompt-tokens and --n are both 0: there is nothing to measure");
  const int64_t depth = settings.integer("depth");
  const int64_t parallel = settings.integer("parallel");
  if (parallel > 1 && (settings.is_set("route-trace") || settings.is_set("replay"))) {
    usage_error("--route-trace and --replay are of one sequence; leave --parallel at 1 with them");
  }
  // A page that is held in part is copied before it is written to.
  const int64_t held = depth + (depth % kPagePositions == 0 ? 0 : kPagePositions);
  RunFiles files(settings);
  Replay replay(settings);
  Share share{bandwidth_now(settings)};
  const auto engine = load_engine(settings, held + std::max(prompt, generate + 1), replay.top_k());
  Context context(*engine, context_options(settings, *engine, held + std::max(prompt, generate + 1)));
  RunAudit audit(settings, context);
  apply_routing(settings, context);
  context.cancel_on(&interrupted());
  SequenceState before = context.new_sequence();
  if (depth > 0) fill({context, nullptr}, before, depth);
  replay.install(context);
  const auto trace = open_route_trace(settings, context);
  Bench bench{context, trace.get(), depth > 0 ? &before : nullptr, parallel};
  const std::vector<double> first = warm_up(bench, prompt, generate);
  RunRecord record(context, settings.json());
  record.meters().give_first_tokens(first);
  files.begin(context, record, settings.json(), generate);
  bench.watcher = files.watcher();
  const Samples samples = measure(bench, prompt, generate, settings.integer("repeat"));
  if (trace != nullptr) trace->finish();
  const Json prompt_json = spread(samples.prompt), decode_json = spread(samples.decode);
  if (const RunMeters::Phase& decode = record.meters().decode(); decode.tokens > 0) {
    share.bytes_per_token = static_cast<double>(decode.cost.weight_bytes) / static_cast<double>(decode.tokens);
  }
  if (settings.flag("json")) {
    print_json({{"prompt_tok_s", prompt_json},
                {"decode_tok_s", decode_json},
                {"first_token_seconds", spread(samples.first)},
                {"first_tokens_after_load_seconds", first},
                {"prompt_tokens", prompt},
                {"decode_tokens", generate},
                {"depth", depth},
                {"parallel", parallel},
                {"replay", replay.active() ? Json(replay.describe()) : Json(nullptr)},
                {"threads", thread_count(settings)},
                {"compute", engine->compute().name()},
                {"config", settings.json()},
                {"model", model_json(*engine)},
                {"memory", memory_json(context)},
                {"residency", residency_json(context)},
                {"stats", stats_json(context, record.meters())},
                {"machine", machine_json()},
                {"memory_bandwidth", share.json(decode_json)},
                {"load_seconds", engine->load_seconds()},
                {"first_token_after_load_seconds", engine->first_token().after_load}});
  } else {
    print_out(line("prompt", prompt, prompt_json) + line("decode", generate, decode_json) + first_line(first) +
              share.line(decode_json) + start_line(*engine));
  }
  audit.measure(record.meters());
  files.finish(nullptr);
  return 0;
}

}  // namespace moetier::cli
