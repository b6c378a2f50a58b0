// bench: prompt and decode speed.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/route_trace.h"
#include "cli/support.h"
#include "engine/run_record.h"

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

/// Tokens per second of a prompt of `count` tokens from an empty sequence.
double measure_prompt(Context& context, int64_t count, RouteLog* trace) {
  if (trace != nullptr) trace->begin_turn();
  SequenceState sequence = context.new_sequence();
  const int64_t vocab = context.engine().model().hparams().vocab;
  std::vector<BatchRow> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back({bench_token(i, vocab), &sequence, i + 1 == count});
  const auto start = Clock::now();
  context.decode(rows);
  return static_cast<double>(count) / seconds_since(start);
}

struct DecodeSample {
  double tok_s;          ///< over all steps but the first
  double first_seconds;  ///< of the first step, which pays for what was not in memory yet
};

/// `count` single steps behind a first one, from an empty sequence.
DecodeSample measure_decode(Context& context, int64_t count, RouteLog* trace) {
  if (trace != nullptr) {
    trace->begin_turn();
    trace->begin_decode();
  }
  SequenceState sequence = context.new_sequence();
  const int64_t vocab = context.engine().model().hparams().vocab;
  BatchRow row{bench_token(0, vocab), &sequence, true};
  const auto first = Clock::now();
  context.decode({&row, 1});
  const double first_seconds = seconds_since(first);
  const auto start = Clock::now();
  for (int64_t i = 1; i <= count; ++i) {
    if (interrupted()) break;
    row.token = bench_token(i, vocab);
    context.decode({&row, 1});
  }
  return {static_cast<double>(count) / seconds_since(start), first_seconds};
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

}  // namespace

int run_bench(const Settings& settings) {
  const int64_t prompt = settings.integer("prompt-tokens"), generate = settings.integer("n"),
                repeat = settings.integer("repeat");
  if (prompt == 0 && generate == 0) usage_error("--prompt-tokens and --n are both 0: there is nothing to measure");
  const auto engine = load_engine(settings, std::max(prompt, generate + 1));
  Context context(*engine, context_options(settings, *engine, std::max(prompt, generate + 1)));
  const auto trace = open_route_trace(settings, context);
  std::vector<double> prompt_samples, decode_samples, first_samples;
  {
    Progress progress("bench");
    // One warm-up of each brings weights into memory and scratch to its size.
    if (prompt > 0) measure_prompt(context, prompt, trace.get());
    if (generate > 0) measure_decode(context, std::min<int64_t>(generate, 16), trace.get());
    for (int64_t i = 0; i < repeat; ++i) {
      if (prompt > 0) prompt_samples.push_back(measure_prompt(context, prompt, trace.get()));
      if (generate > 0) {
        const DecodeSample sample = measure_decode(context, generate, trace.get());
        decode_samples.push_back(sample.tok_s);
        first_samples.push_back(sample.first_seconds);
      }
      if (interrupted()) fail("interrupted: the measurement is not complete");
      progress.update(static_cast<uint64_t>(i + 1), static_cast<uint64_t>(repeat));
    }
  }
  if (trace != nullptr) trace->finish();
  const Json prompt_json = spread(prompt_samples), decode_json = spread(decode_samples);
  if (settings.flag("json")) {
    print_json({{"prompt_tok_s", prompt_json},
                {"decode_tok_s", decode_json},
                {"first_token_seconds", spread(first_samples)},
                {"prompt_tokens", prompt},
                {"decode_tokens", generate},
                {"threads", thread_count(settings)},
                {"compute", engine->compute().name()},
                {"config", settings.json()},
                {"model", model_json(*engine)},
                {"memory", memory_json(context)},
                {"machine", machine_json()}});
  } else {
    print_out(line("prompt", prompt, prompt_json) + line("decode", generate, decode_json));
  }
  return 0;
}

}  // namespace moetier::cli
