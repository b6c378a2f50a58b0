#include "model/hparams.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "model/model.h"
#include "model/survey.h"

namespace moetier {
namespace {

std::string full_key(const GgufFile& file, std::string_view key) {
  return fmt::format("{}.{}", file.need_string("general.architecture"), key);
}

/// The value that all have, which must be within [low, high].
int64_t agreed(const GgufFile& file, const std::string& name, const std::vector<int64_t>& values, int64_t low,
               int64_t high) {
  for (const int64_t value : values) {
    if (value < low || value > high) {
      fail_or_note(fmt::format("{}: {} is {}, but it must be between {} and {}", file.path(), name, value, low, high),
                   true);
      return std::clamp(value, low, high);
    }
    if (value != values.front()) {
      fail_or_note(
          fmt::format("{}: {} differs between layers ({} and {}), which this architecture's graph does not know",
                      file.path(), name, values.front(), value),
          true);
      break;
    }
  }
  return values.front();
}

/// A count that may be written once or once per layer; per-layer values must agree.
std::optional<int64_t> find_count(const GgufFile& file, std::string_view key, int64_t low, int64_t high) {
  const std::string name = full_key(file, key);
  const auto values = file.get_ints(name);
  if (!values) return std::nullopt;
  if (values->empty()) fail("{}: {} is an empty array", file.path(), name);
  return agreed(file, name, *values, low, high);
}

/// The same of experts: what is written for layers that have no FFN at all (feed_forward_length is 0) does not count.
std::optional<int64_t> find_expert_count(const GgufFile& file, std::string_view key, int64_t low, int64_t high) {
  const std::string name = full_key(file, key);
  const auto values = file.get_ints(name), widths = file.get_ints(full_key(file, "feed_forward_length"));
  if (!values || values->size() == 1 || !widths || widths->size() != values->size())
    return find_count(file, key, low, high);
  std::vector<int64_t> of_experts;
  for (size_t i = 0; i < values->size(); ++i) {
    if ((*widths)[i] != 0) of_experts.push_back((*values)[i]);
  }
  if (of_experts.empty()) return find_count(file, key, low, high);
  return agreed(file, name, of_experts, low, high);
}

double checked_number(const GgufFile& file, const std::string& name, double value, double low, double high) {
  if (value >= low && value <= high) return value;
  fail_or_note(fmt::format("{}: {} is {}, but it must be between {} and {}", file.path(), name, value, low, high));
  return low;
}

double need_number(const GgufFile& file, std::string_view key, double low, double high) {
  const std::string name = full_key(file, key);
  if (file.find(name) == nullptr) {
    fail_or_note(fmt::format("{}: the key {} is missing", file.path(), name));
    return low;
  }
  return checked_number(file, name, file.need_float(name), low, high);
}

/// Heads of each layer, where windowed layers have sizes of their own.
void read_kv_shapes(const GgufFile& file, HParams& h) {
  read_windows(file, h, 0);
  const int64_t key = read_count(file, "attention.key_length_swa", 1, kMaxHeadLength, h.key_length);
  const int64_t value = read_count(file, "attention.value_length_swa", 1, kMaxHeadLength, h.value_length);
  for (int i = 0; i < h.layers; ++i) {
    const bool windowed = h.window(i) > 0;
    h.kv_shapes.push_back(
        {h.layer_kv_heads[static_cast<size_t>(i)], windowed ? key : h.key_length, windowed ? value : h.value_length});
  }
}

double number_or(const GgufFile& file, std::string_view key, double absent, double low, double high) {
  const std::string name = full_key(file, key);
  return checked_number(file, name, file.get_float(name).value_or(absent), low, high);
}

void check_sharing(const GgufFile& file, const HParams& h, int64_t kv_heads) {
  if (h.heads % kv_heads != 0)
    fail("{}: {} query heads cannot share {} key/value heads evenly ({}.attention.head_count, head_count_kv)",
         file.path(), h.heads, kv_heads, h.architecture);
}

/// Numbers of key/value heads, one for all layers or one for each.
void read_layer_kv_heads(const GgufFile& file, HParams& h, HeadsPerLayer per_layer) {
  const bool some_without = per_layer == HeadsPerLayer::some_without;
  const std::string name = full_key(file, "attention.head_count_kv");
  std::vector<int64_t> counts = file.get_ints(name).value_or(std::vector<int64_t>{h.heads});
  if (counts.size() == 1) counts.resize(static_cast<size_t>(h.layers), counts.front());
  if (counts.size() < static_cast<size_t>(h.layers))
    fail("{}: {} has {} values for {} layers", file.path(), name, counts.size(), h.layers);
  counts.resize(static_cast<size_t>(h.layers));
  for (const int64_t count : counts) {
    if (some_without && count == 0) continue;
    if (count < 1 || count > kMaxHeads)
      fail("{}: {} is {}, but it must be between {} and {}", file.path(), name, count, some_without ? 0 : 1, kMaxHeads);
    check_sharing(file, h, count);
    if (some_without && h.kv_heads > 0 && h.kv_heads != count)
      fail("{}: {} differs between layers with attention ({} and {}), which this architecture's graph does not know",
           file.path(), name, h.kv_heads, count);
    h.kv_heads = std::max(h.kv_heads, static_cast<int>(count));
  }
  if (h.kv_heads == 0) fail("{}: {} is 0 in all layers, but some need attention", file.path(), name);
  h.layer_kv_heads = std::move(counts);
}

/// Widths of the dense FFN, one for all layers or one for each.
void read_layer_ffn_widths(const GgufFile& file, HParams& h) {
  const std::string name = full_key(file, "feed_forward_length");
  std::vector<int64_t> widths = file.get_ints(name).value_or(std::vector<int64_t>{0});
  if (widths.size() == 1) widths.resize(static_cast<size_t>(h.layers), widths.front());
  if (widths.size() < static_cast<size_t>(h.layers))
    fail("{}: {} has {} values for {} layers", file.path(), name, widths.size(), h.layers);
  widths.resize(static_cast<size_t>(h.layers));
  for (const int64_t width : widths) {
    if (width < 0 || width > kMaxWidth)
      fail("{}: {} is {}, but it must be between 0 and {}", file.path(), name, width, kMaxWidth);
    if (width > 0 && h.ffn_width > 0 && width != h.ffn_width)
      fail("{}: {} differs between layers with an FFN ({} and {}), which this architecture's graph does not know",
           file.path(), name, h.ffn_width, width);
    h.ffn_width = std::max(h.ffn_width, width);
  }
  h.layer_ffn_widths = std::move(widths);
}

void read_heads(const GgufFile& file, HParams& h, HeadsPerLayer per_layer) {
  h.heads = static_cast<int>(need_count(file, "attention.head_count", 1, kMaxHeads));
  if (per_layer != HeadsPerLayer::same) {
    read_layer_kv_heads(file, h, per_layer);
  } else {
    h.kv_heads = static_cast<int>(read_count(file, "attention.head_count_kv", 1, kMaxHeads, h.heads));
    check_sharing(file, h, h.kv_heads);
  }
  const int64_t even = h.width % h.heads == 0 ? h.width / h.heads : 0;
  h.key_length = read_count(file, "attention.key_length", 1, kMaxHeadLength, even);
  h.value_length = read_count(file, "attention.value_length", 1, kMaxHeadLength, even);
  if (h.key_length == 0 || h.value_length == 0)
    fail("{}: {} heads do not divide a width of {}, and {}.attention.key_length or value_length is absent", file.path(),
         h.heads, h.width, h.architecture);
  if (h.key_length > kMaxHeadLength || h.value_length > kMaxHeadLength)
    fail("{}: a head would be {} wide; at most {} is supported", file.path(), std::max(h.key_length, h.value_length),
         kMaxHeadLength);
}

/// What YaRN multiplies cos and sin with for a context stretched by `factor`.
double yarn_magnitude(double factor) {
  return factor <= 1.0 ? 1.0 : 0.1 * std::log(factor) + 1.0;
}

void read_rope_scaling(const GgufFile& file, HParams& h) {
  const std::string type = file.get_string(full_key(file, "rope.scaling.type")).value_or("linear");
  const double old_factor = number_or(file, "rope.scale_linear", 0.0, 0.0, 1e6);
  const double factor = number_or(file, "rope.scaling.factor", old_factor, 0.0, 1e6);
  const double stretch = factor == 0.0 ? 1.0 : factor;
  const double magnitude = number_or(file, "rope.scaling.attn_factor", 1.0, 1e-3, 1e3);
  h.rope.original_context =
      read_count(file, "rope.scaling.original_context_length", 1, kMaxPositions, h.context_length);
  h.rope.magnitude = magnitude;
  if (type == "none") return;
  if (type == "linear" || type == "yarn" || type == "longrope") {
    if (!(stretch >= 1e-6)) fail("{}: {}.rope.scaling.factor is {}", file.path(), h.architecture, stretch);
    h.rope.freq_scale = 1.0 / stretch;
    h.long_rope = type == "longrope";
    if (type != "yarn") return;
    if (h.rope.base <= 1.0)
      fail("{}: YaRN needs {}.rope.freq_base above 1, it is {}", file.path(), h.architecture, h.rope.base);
    h.rope.ext_factor = 1.0;
    h.rope.magnitude = magnitude * yarn_magnitude(stretch);
    return;
  }
  fail("{}: {}.rope.scaling.type is \"{}\"; supported are none, linear, yarn and longrope", file.path(), h.architecture,
       type);
}

void read_rope(const GgufFile& file, HParams& h) {
  h.rope.dims = read_count(file, "rope.dimension_count", 1, kMaxHeadLength, h.key_length);
  if (h.rope.dims % 2 != 0 || h.rope.dims > h.key_length)
    fail("{}: {}.rope.dimension_count is {}, but it must be even and at most the head size {}", file.path(),
         h.architecture, h.rope.dims, h.key_length);
  h.rope.base = number_or(file, "rope.freq_base", 10000.0, 1e-3, 1e12);
  read_rope_scaling(file, h);
}

void read_experts(const GgufFile& file, HParams& h) {
  h.experts = static_cast<int>(read_count(file, "expert_count", 0, kMaxExpertCount, 0));
  h.top_k = read_top_k(file);
  if (h.experts == 0) return;
  const auto groups = static_cast<int>(read_count(file, "expert_group_count", 0, kMaxExpertCount, 0));
  if (groups <= 1) return;
  const auto used = static_cast<int>(read_count(file, "expert_group_used_count", 0, kMaxExpertCount, 0));
  if (h.experts % groups != 0 || h.experts / groups < 2 || used < 1 || used >= groups ||
      h.top_k > used * (h.experts / groups))
    fail(
        "{}: {} experts with {} picks cannot be routed as {} of {} groups ({}.expert_group_count, "
        "expert_group_used_count)",
        file.path(), h.experts, h.top_k, used, groups, h.architecture);
  h.expert_groups = groups;
  h.expert_groups_used = used;
}

/// The length of the token list; where the file has none, `vocab_size`, or the embedding's rows.
int64_t read_vocab(const GgufFile& file) {
  if (const auto* tokens = file.get_strings("tokenizer.ggml.tokens")) {
    if (tokens->empty()) fail("{}: tokenizer.ggml.tokens is empty", file.path());
    return static_cast<int64_t>(tokens->size());
  }
  const TensorInfo* embedding = file.find_tensor("token_embd.weight");
  return read_count(file, "vocab_size", 1, kMaxPositions, embedding == nullptr ? 0 : embedding->shape[1]);
}

/// Keys that change the graph and that no family here reads: refused by name, never ignored.
void refuse_unknown_switches(const GgufFile& file) {
  for (const std::string_view key : {"swiglu_clamp_exp", "swiglu_clamp_shexp"}) {
    const std::string name = full_key(file, key);
    const auto limits = file.get_floats(name);
    if (!limits) continue;
    for (const float limit : *limits) {
      if (limit <= 1e-6f) continue;
      fail_or_note(fmt::format("{}: {} clamps the activation, which this architecture's graph does not know",
                               file.path(), name));
      break;
    }
  }
}

}  // namespace

int64_t read_count(const GgufFile& file, std::string_view key, int64_t low, int64_t high, int64_t absent) {
  return find_count(file, key, low, high).value_or(absent);
}

int64_t need_count(const GgufFile& file, std::string_view key, int64_t low, int64_t high) {
  const auto value = find_count(file, key, low, high);
  if (value) return *value;
  fail_or_note(fmt::format("{}: the key {} is missing", file.path(), full_key(file, key)), true);
  return low;
}

double read_number(const GgufFile& file, std::string_view key, double absent, double low, double high) {
  return number_or(file, key, absent, low, high);
}

bool read_flag(const GgufFile& file, std::string_view key, bool absent) {
  return file.get_bool(full_key(file, key)).value_or(absent);
}

Gating read_gating(const GgufFile& file, std::optional<Gating> absent) {
  const int64_t number = read_count(file, "expert_gating_func", 0, 1 << 16, 0);
  if (number == 0 && absent) return *absent;
  if (number == 1) return Gating::softmax;
  if (number == 2) return Gating::sigmoid;
  if (number == 3) return Gating::softmax_of_picks;
  if (number == 4) return Gating::sqrt_softplus;
  const std::string name = full_key(file, "expert_gating_func");
  fail_or_note(number == 0
                   ? fmt::format("{}: the key {} is missing", file.path(), name)
                   : fmt::format("{}: {} is {}; supported are 1 (softmax), 2 (sigmoid), 3 (softmax of the picks) "
                                 "and 4 (square root of softplus)",
                                 file.path(), name, number));
  return Gating::softmax;
}

float read_weights_scale(const GgufFile& file) {
  const double scale = number_or(file, "expert_weights_scale", 1.0, 0.0, 1e6);
  return scale == 0.0 ? 1.0f : static_cast<float>(scale);
}

void read_windows(const GgufFile& file, HParams& h, int64_t period) {
  const int64_t window = need_count(file, "attention.sliding_window", 1, kMaxPositions);
  const std::string name = full_key(file, "attention.sliding_window_pattern");
  const auto pattern = file.get_ints(name);
  const auto blocks = static_cast<size_t>(need_count(file, "block_count", 1, kMaxLayers));
  const bool is_period = !pattern || (pattern->size() == 1 && blocks > 1);
  if (is_period && pattern) period = pattern->front();
  if (!is_period && pattern->size() != blocks)
    fail("{}: {} has {} values, but there are {} blocks", file.path(), name, pattern->size(), blocks);
  if (period < 0) fail("{}: {} is {}, but a period cannot be negative", file.path(), name, period);
  h.windows.assign(static_cast<size_t>(h.layers), 0);
  for (size_t i = 0; i < h.windows.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    const bool windowed = is_period ? period == 0 || layer % period < period - 1 : (*pattern)[i] != 0;
    if (windowed) h.windows[i] = window;
  }
}

void read_leading_dense(const GgufFile& file, HParams& h) {
  h.leading_dense = static_cast<int>(read_count(file, "leading_dense_block_count", 0, kMaxLayers, 0));
}

int read_layers(const GgufFile& file) {
  const int64_t blocks = need_count(file, "block_count", 1, kMaxLayers);
  const int64_t predicting = read_count(file, "nextn_predict_layers", 0, kMaxLayers, 0);
  if (predicting >= blocks)
    fail("{}: {} of {} blocks are for predicting further tokens, so none is left to run", file.path(), predicting,
         blocks);
  return static_cast<int>(blocks - predicting);
}

int read_top_k(const GgufFile& file) {
  const auto experts = read_count(file, "expert_count", 0, kMaxExpertCount, 0);
  if (experts == 0) return 0;
  if (const auto used = find_expert_count(file, "expert_used_count", 1, experts)) return static_cast<int>(*used);
  return static_cast<int>(need_count(file, "expert_used_count", 1, experts));
}

int64_t read_expert_width(const GgufFile& file, const HParams& h) {
  const int64_t width = find_expert_count(file, "expert_feed_forward_length", 0, kMaxWidth).value_or(0);
  if (width > 0) return width;
  // A run may use more or fewer experts than the file says (an override); their shapes stay the file's.
  const int64_t own = file.own_int(full_key(file, "expert_used_count")).value_or(0);
  const int64_t picks = own > 0 && own != read_top_k(file) ? own : h.top_k;
  if (picks == 0 || h.ffn_width == 0 || h.ffn_width % picks != 0)
    fail("{}: {}.expert_feed_forward_length is missing, and feed_forward_length {} is no multiple of {} picks",
         file.path(), h.architecture, h.ffn_width, picks);
  return h.ffn_width / picks;
}

HParams read_hparams(const GgufFile& file, HeadsPerLayer heads, bool limited) {
  HParams h;
  h.architecture = file.need_string("general.architecture");
  h.name = file.get_string("general.name").value_or("");
  h.context_length = need_count(file, "context_length", 1, kMaxPositions);
  h.width = need_count(file, "embedding_length", 1, kMaxWidth);
  h.layers = read_layers(file);
  h.vocab = read_vocab(file);
  if (heads == HeadsPerLayer::some_without) {
    read_layer_ffn_widths(file, h);
  } else {
    h.ffn_width = read_count(file, "feed_forward_length", 0, kMaxWidth, 0);
  }
  // Files of nemotron_h_moe give one epsilon, under the name that other norms have.
  const bool other_name = !file.get_float(full_key(file, "attention.layer_norm_rms_epsilon")) &&
                          file.get_float(full_key(file, "attention.layer_norm_epsilon"));
  h.rms_eps = static_cast<float>(
      need_number(file, other_name ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 0.0, 1.0));
  read_heads(file, h, heads);
  if (heads == HeadsPerLayer::may_differ) read_kv_shapes(file, h);
  read_rope(file, h);
  read_experts(file, h);
  if (!limited) refuse_unknown_switches(file);
  return h;
}

}  // namespace moetier
