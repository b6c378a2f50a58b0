#include "experts/entry_map.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "base/error.h"

namespace moetier {
namespace {

constexpr int kMaxLayer = 65535;

/// The expert stacks of one layer while they are gathered.
struct Stacks {
  const TensorInfo* of[4] = {};  ///< by Projection
  const TensorInfo* get(Projection p) const { return of[static_cast<size_t>(p)]; }
};

constexpr std::pair<std::string_view, Projection> kStackNames[] = {{"ffn_gate_exps.weight", Projection::gate},
                                                                   {"ffn_up_exps.weight", Projection::up},
                                                                   {"ffn_down_exps.weight", Projection::down},
                                                                   {"ffn_gate_up_exps.weight", Projection::gate_up}};

/// Layer and projection of `blk.N.ffn_*_exps.weight`; nullopt for any other name.
std::optional<std::pair<int, Projection>> stack_name(std::string_view name) {
  constexpr std::string_view kStart = "blk.";
  if (!name.starts_with(kStart)) return std::nullopt;
  name.remove_prefix(kStart.size());
  int layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  const auto digits = static_cast<size_t>(end - name.data());
  if (error != std::errc() || layer < 0 || layer > kMaxLayer || digits == 0 || name[0] == '-') return std::nullopt;
  if (name[0] == '0' && digits > 1) return std::nullopt;
  name.remove_prefix(digits);
  if (!name.starts_with('.')) return std::nullopt;
  name.remove_prefix(1);
  for (const auto& [text, projection] : kStackNames) {
    if (name == text) return std::pair(layer, projection);
  }
  return std::nullopt;
}

SliceSource slice_source(Projection projection, const TensorInfo& tensor) {
  SliceSource slice;
  slice.projection = projection;
  slice.type = tensor.type;
  slice.columns = tensor.shape[0];
  slice.rows = tensor.shape[1];
  slice.shard = tensor.shard;
  slice.offset = tensor.offset;
  slice.slice_bytes = tensor.bytes / static_cast<uint64_t>(tensor.shape[2]);
  return slice;
}

/// `tensor` must have the given matrix per expert, and as many experts as `like`.
void check_shape(const GgufFile& file, const TensorInfo& tensor, int64_t columns, int64_t rows,
                 const TensorInfo& like) {
  if (tensor.shape[2] != like.shape[2]) {
    fail("{}: tensor {} has {} experts, but {} has {}", file.path(), tensor.name, tensor.shape[2], like.name,
         like.shape[2]);
  }
  if (tensor.shape[0] != columns || tensor.shape[1] != rows) {
    fail("{}: tensor {} has matrices of {} columns and {} rows, but {} calls for {} and {}", file.path(), tensor.name,
         tensor.shape[0], tensor.shape[1], like.name, columns, rows);
  }
}

void check_stacks(const GgufFile& file, int layer, const Stacks& stacks) {
  for (const TensorInfo* tensor : stacks.of) {
    if (tensor == nullptr) continue;
    if (tensor->shape[3] != 1 || tensor->n_dims < 3) {
      fail("{}: tensor {} has {} dimensions, and an expert stack has three", file.path(), tensor->name, tensor->n_dims);
    }
    if (tensor->shape[2] > INT32_MAX)
      fail("{}: tensor {} has {} experts, which is too many", file.path(), tensor->name, tensor->shape[2]);
  }
  const TensorInfo* gate = stacks.get(Projection::gate);
  const TensorInfo* up = stacks.get(Projection::up);
  const TensorInfo* down = stacks.get(Projection::down);
  const TensorInfo* fused = stacks.get(Projection::gate_up);
  if (fused != nullptr && (gate != nullptr || up != nullptr)) {
    fail("{}: layer {} has {} beside {}, and only one of the two forms can be right", file.path(), layer, fused->name,
         (gate != nullptr ? gate : up)->name);
  }
  if (fused == nullptr && up == nullptr) {
    fail("{}: layer {} has expert tensors, but blk.{}.ffn_up_exps.weight is missing", file.path(), layer, layer);
  }
  if (down == nullptr)
    fail("{}: layer {} has expert tensors, but blk.{}.ffn_down_exps.weight is missing", file.path(), layer, layer);
  if (fused != nullptr && fused->shape[1] % 2 != 0) {
    fail("{}: tensor {} has {} rows, and gate and up must be halves of them", file.path(), fused->name,
         fused->shape[1]);
  }
  const TensorInfo& first = fused != nullptr ? *fused : *up;
  const int64_t width = fused != nullptr ? fused->shape[1] / 2 : up->shape[1];
  if (gate != nullptr) check_shape(file, *gate, up->shape[0], width, *up);
  check_shape(file, *down, width, first.shape[0], first);
}

}  // namespace

uint64_t LayerEntries::entry_bytes() const {
  uint64_t sum = 0;
  for (const SliceSource& slice : slices) sum += slice.slice_bytes;
  return sum;
}

uint64_t EntryMap::total_bytes() const {
  uint64_t sum = 0;
  for (const LayerEntries& layer : layers) sum += layer.entry_bytes() * static_cast<uint64_t>(layer.n_expert);
  return sum;
}

uint64_t EntryMap::token_cycle_bytes() const {
  uint64_t sum = 0;
  for (const LayerEntries& layer : layers) {
    sum += layer.entry_bytes() * static_cast<uint64_t>(std::min(layer.top_k, layer.n_expert));
  }
  return sum;
}

const LayerEntries* EntryMap::find(int layer) const {
  const auto at = std::ranges::lower_bound(layers, layer, {}, &LayerEntries::layer);
  return at != layers.end() && at->layer == layer ? &*at : nullptr;
}

EntryMap EntryMap::from_gguf(const GgufFile& file, int top_k, int layers) {
  std::map<int, Stacks> by_layer;
  for (const TensorInfo& tensor : file.tensors()) {
    if (const auto name = stack_name(tensor.name); name && name->first < layers)
      by_layer[name->first].of[static_cast<size_t>(name->second)] = &tensor;
  }
  if (!by_layer.empty() && top_k < 1) {
    fail("{}: the model has experts, but uses {} of them per token; key expert_used_count must be at least 1",
         file.path(), top_k);
  }
  EntryMap map;
  map.executed = layers;
  for (const auto& [layer, stacks] : by_layer) {
    check_stacks(file, layer, stacks);
    LayerEntries entries;
    entries.layer = layer;
    entries.n_expert = static_cast<int>(stacks.get(Projection::down)->shape[2]);
    entries.top_k = top_k;
    for (const Projection p : {Projection::gate_up, Projection::gate, Projection::up, Projection::down}) {
      if (const TensorInfo* tensor = stacks.get(p)) entries.slices.push_back(slice_source(p, *tensor));
    }
    map.layers.push_back(std::move(entries));
  }
  return map;
}

}  // namespace moetier
