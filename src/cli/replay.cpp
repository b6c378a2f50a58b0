#include "cli/replay.h"

#include <algorithm>

#include "base/error.h"

namespace moetier::cli {
namespace {

constexpr std::string_view kRandom = "random";
constexpr uint64_t kSeed = 1;

}  // namespace

ParamList replay_params() {
  return {{.name = "replay",
           .type = ParamType::text,
           .value = "TRACE|random",
           .help =
               "Uses a recorded trace's routing in place of the router's (or experts drawn by chance): real routing, "
               "sizes and reads, without the weights that would choose so. The model needs as many experts as the "
               "trace; its layer l of L plays the trace's layer floor(l x T / L), a token uses as many experts as in "
               "the trace, and tokens wrap around.",
           .lossy = true}};
}

Replay::Replay(const Settings& settings) : name_(settings.text("replay")) {
  if (!active() || name_ == kRandom) return;
  trace_ = read_trace(name_);
  const int64_t asked = settings.integer("n-expert-used");
  if (asked != 0 && asked != trace_->top_k) {
    usage_error("--n-expert-used {} contradicts --replay: {} has {} experts per token", asked, name_, trace_->top_k);
  }
}

void Replay::install(Context& context) {
  if (!active()) return;
  ExpertStore* store = context.engine().store();
  if (store == nullptr) {
    usage_error("--replay is for models with experts, and {} has none", context.engine().file().path());
  }
  const std::vector<LayerEntries>& layers = store->map().layers;
  const HParams& hparams = context.engine().model().hparams();
  const auto count = static_cast<int>(layers.size());
  // A trace of a text alone has no decoded tokens: then its prompt is what there is to play.
  const bool decoded = trace_ && std::any_of(trace_->routings.begin(), trace_->routings.end(),
                                             [](const Routing& r) { return !r.prompt; });
  source_ = trace_ ? replay_trace(*trace_, name_, count, hparams.experts, decoded)
                   : random_routing(kSeed, count, hparams.experts, hparams.top_k);
  trace_.reset();  // the source has what it needs
  place_.assign(static_cast<size_t>(hparams.layers), -1);
  for (int i = 0; i < count; ++i) place_.at(static_cast<size_t>(layers[static_cast<size_t>(i)].layer)) = i;
  next_row_.assign(layers.size(), 0);
  context.moe()->replace_picks(&Replay::replace, this);
}

void Replay::replace(void* self, int layer, std::span<int32_t> ids, std::span<float> weights, int64_t rows) {
  auto& replay = *static_cast<Replay*>(self);
  const int place = replay.place_.at(static_cast<size_t>(layer));
  int64_t& next = replay.next_row_.at(static_cast<size_t>(place));
  const size_t top_k = ids.size() / static_cast<size_t>(rows);
  for (size_t first = 0; first < ids.size(); first += top_k) {
    const RoutingSource::Picks picks = replay.source_->picks(place, next++);
    if (picks.ids.size() != top_k) {
      fail("layer {} wants {} experts for a token, and {} has {}", layer, top_k, replay.source_->describe(),
           picks.ids.size());
    }
    std::copy(picks.ids.begin(), picks.ids.end(), ids.begin() + static_cast<ptrdiff_t>(first));
    std::copy(picks.weights.begin(), picks.weights.end(), weights.begin() + static_cast<ptrdiff_t>(first));
  }
}

}  // namespace moetier::cli
