#include "engine/route_log.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "experts/trace_writer.h"

namespace moetier {
namespace {

TraceHead head_of(Engine& engine, const EntryMap& map) {
  const HParams& h = engine.model().hparams();
  TraceHead head;
  head.model = std::filesystem::path(engine.file().path()).filename().string();
  head.arch = h.architecture;
  head.n_layer = h.layers;
  head.n_expert = h.experts;
  head.top_k = h.top_k;
  head.entry_bytes.resize(static_cast<size_t>(h.layers));
  head.dense_bytes.resize(static_cast<size_t>(h.layers));
  for (const TensorInfo& tensor : engine.file().tensors()) {
    const int layer = block_number(tensor.name);
    if (layer >= 0 && layer < h.layers) head.dense_bytes[static_cast<size_t>(layer)] += tensor.bytes;
  }
  for (const LayerEntries& entries : map.layers) {
    if (entries.layer < 0 || entries.layer >= h.layers) continue;
    const auto layer = static_cast<size_t>(entries.layer);
    head.entry_bytes[layer] = entries.entry_bytes();
    head.dense_bytes[layer] -= entries.entry_bytes() * static_cast<uint64_t>(entries.n_expert);
  }
  return head;
}

}  // namespace

TraceKind trace_kind_of(const std::string& path) {
  return path.ends_with(".csv") ? TraceKind::csv : TraceKind::binary;
}

struct RouteLog::Impl {
  /// What a layer saw, and of a binary trace what is not written yet: the rows of one pass through all layers.
  struct Layer {
    int64_t rows = 0;  // of this turn
    std::vector<int32_t> ids;
    std::vector<float> weights;
  };

  void saw(const RoutedPicks& picks);
  template <typename Action>
  void attempt(Action&& action);
  void begin_pass();
  void find_misses(const RoutedPicks& picks);
  void write_rows(const RoutedPicks& picks);
  void write_pending();
  Layer& at(int layer) { return layers[static_cast<size_t>(layer)]; }

  Context* context = nullptr;
  ExpertStore* store = nullptr;
  std::vector<int> moe_layers;  // ascending
  std::vector<uint64_t> entry_bytes;
  std::optional<CsvTraceWriter> csv;
  std::optional<BinaryTraceWriter> binary;
  bool real_weights = true, prompt = true;
  std::string problem;        // why the CSV ended
  std::vector<Layer> layers;  // by the model's layer number
  int last_layer = -1;
  int64_t earlier_tokens = 0;  // of earlier turns
  size_t picks_a_row = 0;      // of the pending rows
  // Of the ubatch at hand, by pick.
  std::vector<int8_t> residency;
  std::vector<uint64_t> bytes;
  std::vector<int8_t> seen;  // by expert: -1 not yet
};

/// Does what writes the CSV, unless that failed before.
template <typename Action>
void RouteLog::Impl::attempt(Action&& action) {
  if (!problem.empty()) return;
  try {
    action();
  } catch (const Error& error) {
    problem = error.what();
    log::warn_once(problem + "; the routing trace ends here");
  }
}

void RouteLog::Impl::saw(const RoutedPicks& picks) {
  const auto& [layer, rows, ids, weights, dropped] = picks;
  if (layer < 0 || static_cast<size_t>(layer) >= layers.size() || rows <= 0) return;
  if (layer == moe_layers.front()) begin_pass();
  last_layer = layer;
  if (csv) {
    attempt([&] {
      find_misses(picks);
      write_rows(picks);
    });
  } else {
    picks_a_row = ids.size() / static_cast<size_t>(rows);
    Layer& pending = at(layer);
    pending.ids.insert(pending.ids.end(), ids.begin(), ids.end());
    pending.weights.insert(pending.weights.end(), weights.begin(), weights.end());
  }
  at(layer).rows += rows;
}

/// The rows before have passed all layers, unless more of them come first in a group of ubatches, or their batch
/// failed midway: then the tokens that some layers did not see are dropped from a binary trace, and their numbers are
/// not given again.
void RouteLog::Impl::begin_pass() {
  if (last_layer == moe_layers.front() && moe_layers.size() > 1) return;  // the next ubatch of a group
  if (csv) attempt([this] { csv->flush(); });
  write_pending();
  int64_t most = 0;
  for (const int layer : moe_layers) most = std::max(most, at(layer).rows);
  for (const int layer : moe_layers) at(layer).rows = most;
}

/// Asked before the entries are fetched, so the store still tells which are misses and which were read ahead. The first
/// pick of a miss carries its bytes; a dropped one is not read.
void RouteLog::Impl::find_misses(const RoutedPicks& picks) {
  const auto& [layer, rows, ids, weights, dropped] = picks;
  residency.assign(ids.size(), 0);
  bytes.assign(ids.size(), 0);
  std::fill(seen.begin(), seen.end(), int8_t{-1});
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!dropped.empty() && dropped[i] != 0) {
      residency[i] = -1;
      continue;
    }
    int8_t& state = seen[static_cast<size_t>(ids[i])];
    if (state < 0) {
      state = store->holds(layer, ids[i]) ? 1 : store->read_ahead(layer, ids[i]) ? 2 : 0;
      if (state == 0) bytes[i] = entry_bytes[static_cast<size_t>(layer)];
    }
    residency[i] = state;
  }
}

void RouteLog::Impl::write_rows(const RoutedPicks& picks) {
  const auto& [layer, rows, ids, weights, dropped] = picks;
  const size_t k = ids.size() / static_cast<size_t>(rows);
  for (int64_t row = 0; row < rows; ++row) {
    const size_t first = static_cast<size_t>(row) * k;
    csv->add({prompt, at(layer).rows + row, layer, ids.subspan(first, k), weights.subspan(first, k),
              std::span<const int8_t>(residency).subspan(first, k),
              std::span<const uint64_t>(bytes).subspan(first, k)});
  }
}

void RouteLog::Impl::write_pending() {
  if (!binary || picks_a_row == 0) return;
  size_t rows = SIZE_MAX;
  for (const int layer : moe_layers) rows = std::min(rows, at(layer).ids.size() / picks_a_row);
  for (size_t row = 0; row < rows; ++row) {
    for (const int layer : moe_layers) {
      Layer& pending = at(layer);
      if (!real_weights) std::fill(pending.weights.begin(), pending.weights.end(), 0.0f);
      binary->add(layer, std::span<const int32_t>(pending.ids).subspan(row * picks_a_row, picks_a_row),
                  std::span<const float>(pending.weights).subspan(row * picks_a_row, picks_a_row));
    }
  }
  for (const int layer : moe_layers) {
    at(layer).ids.clear();
    at(layer).weights.clear();
  }
}

RouteLog::RouteLog(Context& context, const std::string& path, TraceKind kind, bool weights)
    : impl_(std::make_unique<Impl>()) {
  Engine& engine = context.engine();
  Impl& log = *impl_;
  log.context = &context;
  log.store = engine.store();
  if (log.store == nullptr) fail("{} has no experts, so there is no routing to trace", engine.file().path());
  const EntryMap& map = log.store->map();
  const TraceHead head = head_of(engine, map);
  for (const LayerEntries& entries : map.layers) log.moe_layers.push_back(entries.layer);
  if (log.moe_layers.empty()) fail("{} has no experts, so there is no routing to trace", engine.file().path());
  log.layers.resize(static_cast<size_t>(log.moe_layers.back()) + 1);
  log.entry_bytes = head.entry_bytes;
  log.entry_bytes.resize(std::max(log.entry_bytes.size(), log.layers.size()));
  log.seen.resize(static_cast<size_t>(head.n_expert));
  log.real_weights = weights;
  if (kind == TraceKind::csv) {
    log.csv.emplace(path, head, context.moe() != nullptr && context.moe()->drop_share() > 0);
    log.csv->flush();  // a full disk is told before any work
  } else {
    log.binary.emplace(path);
  }
  context.observe_picks([](void* user, const RoutedPicks& picks) { static_cast<Impl*>(user)->saw(picks); },
                        impl_.get());
}

RouteLog::~RouteLog() {
  impl_->context->observe_picks(nullptr, nullptr);
}

int64_t RouteLog::tokens() const {
  int64_t least = INT64_MAX;
  for (const int layer : impl_->moe_layers) least = std::min(least, impl_->at(layer).rows);
  return impl_->earlier_tokens + least;
}

void RouteLog::begin_turn() {
  Impl& log = *impl_;
  log.prompt = true;
  const int64_t before = tokens();
  if (before == log.earlier_tokens) return;  // nothing was seen since the last turn began
  log.write_pending();
  for (const int layer : log.moe_layers) log.at(layer).rows = 0;
  log.earlier_tokens = before;
  log.last_layer = -1;
  if (log.csv) log.attempt([&log] { log.csv->flush(); });
  if (log.csv) log.csv->next_turn();
}

void RouteLog::begin_decode() {
  impl_->prompt = false;
}

void RouteLog::finish() {
  impl_->write_pending();
  if (impl_->csv) impl_->attempt([this] { impl_->csv->flush(); });
  if (!impl_->problem.empty()) fail("{}", impl_->problem);
  if (impl_->binary) impl_->binary->commit();
}

}  // namespace moetier
