// predict: how well a layer's experts can be known before its attention, and what reading them ahead would cost.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "cli/command.h"
#include "cli/run_audit.h"
#include "cli/support.h"
#include "cli/windows.h"
#include "experts/guess_log.h"
#include "experts/route_predict.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr double kMiB = 1048576.0;

/// Takes a run's picks and guesses down, layer by layer.
class Recorder {
 public:
  Recorder(Context& context, const EntryMap& map) : context_(context) {
    const HParams& hparams = context.engine().model().hparams();
    log_.n_expert = hparams.experts;
    log_.top_k = hparams.top_k;
    log_.width = std::min(hparams.top_k * PredictionScore::kTimes.back(), hparams.experts);
    for (const LayerEntries& layer : map.layers) {
      place_[layer.layer] = log_.layers.size();
      log_.layers.push_back({layer.layer, layer.entry_bytes(), {}, {}});
    }
    context.observe_picks(&Recorder::picked, this);
    context.moe()->observe_guesses(&Recorder::guessed, this, log_.width);
  }
  ~Recorder() {
    context_.observe_picks(nullptr, nullptr);
    context_.moe()->observe_guesses(nullptr, nullptr, 0);
  }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void forget() {
    for (GuessLog::Layer& layer : log_.layers) {
      layer.picks.clear();
      layer.guesses.clear();
    }
  }
  GuessLog take(int64_t tokens) {
    log_.tokens = tokens;
    return std::move(log_);
  }

 private:
  static void picked(void* self, const RoutedPicks& picks) {
    std::vector<int32_t>& to = static_cast<Recorder*>(self)->at(picks.layer).picks;
    to.insert(to.end(), picks.ids.begin(), picks.ids.end());
  }
  static void guessed(void* self, int layer, int64_t, std::span<const int32_t> ids) {
    std::vector<int32_t>& to = static_cast<Recorder*>(self)->at(layer).guesses;
    to.insert(to.end(), ids.begin(), ids.end());
  }
  GuessLog::Layer& at(int layer) { return log_.layers[place_.at(layer)]; }

  Context& context_;
  GuessLog log_;
  std::map<int, size_t> place_;
};

GuessLog record(const Settings& settings) {
  const std::string text = read_input(need(settings, "file"));
  const auto engine = load_engine(settings, kUsualWindow);
  ExpertStore* store = engine->store();
  if (store == nullptr) fail("{} has no experts, so there is nothing to predict", settings.text("model"));
  auto tokens = engine->tokenizer().encode(text, {.add_special = true, .parse_special = false});
  const auto most = static_cast<size_t>(settings.integer("n"));
  if (tokens.size() > most) tokens.resize(most);
  if (tokens.size() < 2) fail("{} holds too little text: two tokens at least are needed", settings.text("file"));
  Context context(*engine, context_options(settings, *engine, usual_window(*engine)));
  RunAudit audit(settings, context);
  context.cancel_on(&interrupted());
  Recorder recorder(context, store->map());
  {
    SequenceState first = context.new_sequence();  // a layer is guessed for once it has run
    const BatchRow row{tokens.front(), &first, false};
    context.decode({&row, 1});
  }
  recorder.forget();
  Stopwatch watch;
  run_windows(context, tokens, "predict");
  audit.measure_prompt(tokens.size(), watch.lap());
  return recorder.take(static_cast<int64_t>(tokens.size()));
}

Json json_of(const GuessLog& log, const Prediction& p) {
  Json predictors = Json::array();
  for (const PredictionScore& s : p.scores) {
    Json at = Json::array();
    for (size_t t = 0; t < s.recall.size(); ++t) {
      const double asked = p.cycle_bytes * s.kTimes[t];
      at.push_back({{"candidates", s.kTimes[t] * log.top_k},
                    {"recall_pct", 100 * s.recall[t]},
                    {"bytes_per_token", asked},
                    {"wasted_bytes_per_token", asked - s.recall[t] * p.cycle_bytes}});
    }
    predictors.push_back({{"predictor", s.name}, {"at", at}});
  }
  return {{"layers", p.layers},      {"n_expert", log.n_expert},  {"top_k", log.top_k},
          {"tokens", log.tokens},    {"scored_tokens", p.scored}, {"cycle_bytes", p.cycle_bytes},
          {"predictors", predictors}};
}

std::string text_of(const GuessLog& log, const Prediction& p) {
  std::string out = fmt::format(
      "{} layers behind the first, {} experts, top {}; {} tokens, of which the last {} are scored\n\nrecall: of a "
      "token's "
      "picks in a layer, the share among so many candidates\n{:<16}",
      p.layers, log.n_expert, log.top_k, log.tokens, p.scored, "candidates");
  for (const int times : PredictionScore::kTimes) out += fmt::format("  {:>9}", times * log.top_k);
  for (const PredictionScore& s : p.scores) {
    out += fmt::format("\n{:<16}", s.name);
    for (const double recall : s.recall) out += fmt::format("  {:>7.1f} %", 100 * recall);
  }
  if (p.cycle_bytes <= 0) return out + '\n';
  out += fmt::format("\n\nprice without a cache: MiB read per token, and of them in vain\n{:<16}", "all candidates");
  for (const int times : PredictionScore::kTimes) out += fmt::format("  {:>9.1f}", times * p.cycle_bytes / kMiB);
  for (const PredictionScore& s : p.scores) {
    out += fmt::format("\n{:<16}", s.name);
    for (size_t t = 0; t < s.recall.size(); ++t)
      out += fmt::format("  {:>9.1f}", (s.kTimes[t] - s.recall[t]) * p.cycle_bytes / kMiB);
  }
  return out + '\n';
}

}  // namespace

int run_predict(const Settings& settings) {
  const bool offline = settings.is_set("from");
  if (offline && settings.is_set("file")) usage_error("--from analyses what was recorded, so it takes no text");
  refuse_overwriting(settings, "dump", {"model", "file", "from"});
  const GuessLog log = offline ? read_guess_log(settings.text("from")) : record(settings);
  if (settings.is_set("dump")) write_guess_log(settings.text("dump"), log);
  const Prediction prediction = predict_routes(log);
  if (settings.flag("json")) {
    print_json(json_of(log, prediction));
  } else {
    print_out(text_of(log, prediction));
  }
  return 0;
}

}  // namespace moetier::cli
