#include "model/synth.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "base/error.h"
#include "model/hparams.h"
#include "model/synth_blocks.h"
#include "model/synth_deepseek4.h"
#include "model/synth_plan.h"
#include "model/synth_vocab.h"
#include "quant/mixture.h"

namespace moetier {
namespace {

// Numbers as the models' own configurations give them.
constexpr SynthShape kShapes[] = {
    // name, architecture, L, D, H, KV, hd, F, E, K, Fs, V, context, eps, rope base, tied, rope factors
    {"qwen3-30b-a3b", "qwen3moe", 48, 2048, 32, 4, 128, 768, 128, 8, 0, 151936, 40960, 1e-6, 1e6, false, false},
    {"qwen3-235b-a22b", "qwen3moe", 94, 4096, 64, 4, 128, 1536, 128, 8, 0, 151936, 40960, 1e-6, 1e6, false, false},
    {"qwen3-coder-480b-a35b", "qwen3moe", 62, 6144, 96, 8, 128, 2560, 160, 8, 0, 151936, 262144, 1e-6, 1e7, false,
     false},
    {"qwen1.5-moe-a2.7b", "qwen2moe", 24, 2048, 16, 16, 128, 1408, 60, 4, 5632, 151936, 8192, 1e-6, 1e6, false, false},
    {"olmoe-1b-7b", "olmoe", 16, 2048, 16, 16, 128, 1024, 64, 8, 0, 50304, 4096, 1e-5, 1e4, false, false},
    {"mixtral-8x7b", "llama", 32, 4096, 32, 8, 128, 14336, 8, 2, 0, 32000, 32768, 1e-5, 1e6, false, false},
    {"mixtral-8x22b", "llama", 56, 6144, 48, 8, 128, 16384, 8, 2, 0, 32768, 65536, 1e-5, 1e6, false, false},
    {"gpt-oss-20b", "gpt-oss", 24, 2880, 64, 8, 64, 2880, 32, 4, 0, 201088, 131072, 1e-5, 1.5e5, false, false},
    {"gpt-oss-120b", "gpt-oss", 36, 2880, 64, 8, 64, 2880, 128, 4, 0, 201088, 131072, 1e-5, 1.5e5, false, false},
    {"deepseek-v3", "deepseek2", 61, 7168, 128, 1, 128, 2048, 256, 8, 2048, 129280, 163840, 1e-6, 1e4, false, false},
    {"kimi-k2", "deepseek2", 61, 7168, 64, 1, 128, 2048, 384, 8, 2048, 163840, 131072, 1e-6, 5e4, false, false},
    {"qwen3-next-80b-a3b", "qwen3next", 48, 2048, 16, 2, 256, 512, 512, 10, 512, 151936, 262144, 1e-6, 1e7, false,
     false},
    {"llama-3.2-1b", "llama", 16, 2048, 32, 8, 64, 8192, 0, 0, 0, 128256, 131072, 1e-5, 5e5, true, true},
    {"qwen2.5-0.5b", "qwen2", 24, 896, 14, 2, 64, 4864, 0, 0, 0, 151936, 32768, 1e-6, 1e6, true, false},
    {"qwen3-0.6b", "qwen3", 28, 1024, 16, 8, 128, 3072, 0, 0, 0, 151936, 40960, 1e-6, 1e6, true, false},
    {"tiny", "qwen3moe", 2, 256, 4, 2, 64, 256, 8, 3, 512, 512, 4096, 1e-6, 1e6, false, false},
};

/// silu(gate) * up is smaller than its input; this makes up for most of it.
constexpr double kDownGain = 1.5;

enum class HeadNorm { none, per_head, whole };

/// What tells an architecture's tensors from another's.
struct Family {
  std::string_view name;
  bool dense = false;         ///< has no experts, whatever the shape says
  bool needs_experts = true;  ///< cannot do without
  bool qkv_bias = false;
  HeadNorm qk_norm = HeadNorm::none;
  bool shared_expert = false;
  bool square_heads = false;   ///< H * hd must be D
  bool may_tie = true;         ///< output.weight may be absent
  bool gpt_oss = false;        ///< sinks, windows, YaRN, and biases everywhere
  bool latent = false;         ///< attention as deepseek2 has it, and its router
  bool delta = false;          ///< gated delta nets, and attention in every fourth layer
  bool blocks = false;         ///< attention and streams as deepseek4 has them, and its router
  bool own_expert_key = true;  ///< the experts' width is in expert_feed_forward_length, not in feed_forward_length
};

constexpr Family kFamilies[] = {
    {.name = "qwen3moe", .qk_norm = HeadNorm::per_head},
    {.name = "qwen2moe", .qkv_bias = true, .shared_expert = true, .square_heads = true, .may_tie = false},
    {.name = "olmoe", .qk_norm = HeadNorm::whole, .square_heads = true, .may_tie = false, .own_expert_key = false},
    {.name = "gpt-oss", .qkv_bias = true, .may_tie = false, .gpt_oss = true},
    {.name = "deepseek2", .shared_expert = true, .latent = true},
    {.name = "deepseek4", .shared_expert = true, .may_tie = false, .blocks = true},
    {.name = "qwen3next", .qk_norm = HeadNorm::per_head, .shared_expert = true, .delta = true},
    {.name = "llama", .needs_experts = false, .own_expert_key = false},
    {.name = "qwen2", .dense = true, .needs_experts = false, .qkv_bias = true},
    {.name = "qwen3", .dense = true, .needs_experts = false, .qk_norm = HeadNorm::per_head},
};

constexpr auto kArchitectures = [] {
  std::array<std::string_view, std::size(kFamilies)> names;
  std::ranges::transform(kFamilies, names.begin(), &Family::name);
  return names;
}();

/// What follows from a head's length in DeepSeek V3: 128 elements, 64 more that are rotated, rows of 512 and 1536.
struct Latent {
  int64_t plain, rotated, rank, query_rank;
  explicit Latent(const SynthShape& s)
      : plain(s.head_length), rotated(s.head_length / 2), rank(4 * s.head_length), query_rank(12 * s.head_length) {}
};
/// Layers without experts (DeepSeek V3 has 3, Kimi K2 with more experts 1), and how many times as wide as an expert
/// their FFN is.
int64_t leading_dense(const SynthShape& s) {
  return std::min<int64_t>(s.experts > 256 ? 1 : 3, s.layers - 1);
}
constexpr int64_t kDenseWidths = 9;
/// V3 routes in 8 groups, 4 of which are used.
bool has_groups(const SynthShape& s) {
  return s.experts % 8 == 0 && s.experts >= 16 && s.experts <= 256 && s.top_k <= s.experts / 2;
}

/// What follows from heads and their length in Qwen3-Next: 16 of 256 in attention, 32 value heads of 128.
struct Delta {
  int64_t head_length, key_heads, value_heads, keys, values;
  static constexpr int64_t kTaps = 4, kInterval = 4;
  explicit Delta(const SynthShape& s)
      : head_length(s.head_length / 2),
        key_heads(s.heads),
        value_heads(2 * s.heads),
        keys(head_length * key_heads),
        values(head_length * value_heads) {}
};
bool is_delta(const Family& family, int64_t layer) {
  return family.delta && (layer + 1) % Delta::kInterval != 0;
}

struct Draft {
  SynthShape shape;
  Family family;
  std::vector<Planned> tensors;
};

const SynthShape& find_shape(std::string_view name) {
  const auto* found = std::ranges::find(kShapes, name, &SynthShape::name);
  if (found != std::end(kShapes)) return *found;
  std::vector<std::string_view> names;
  for (const SynthShape& shape : kShapes) names.push_back(shape.name);
  usage_error("there is no shape \"{}\"; known are {}", name, fmt::join(names, ", "));
}

const Family& find_family(std::string_view name) {
  const auto* found = std::ranges::find(kFamilies, name, &Family::name);
  if (found != std::end(kFamilies)) return *found;
  usage_error("models of architecture \"{}\" cannot be made; known are {}", name, fmt::join(kArchitectures, ", "));
}

void apply_overrides(SynthShape& shape, const SynthOptions& options) {
  struct Knob {
    std::string_view name;
    int64_t SynthShape::*number;
    int64_t low, high;
  };
  // What a file may say to be loaded, and for widths and the vocabulary less: sizes whose sums cannot overflow.
  constexpr int64_t kMaxSynthWidth = std::min<int64_t>(kMaxWidth, 1 << 20);
  constexpr int64_t kMaxSynthVocab = std::min<int64_t>(kMaxPositions, 1 << 22);
  static constexpr Knob kKnobs[] = {
      {"L", &SynthShape::layers, 1, kMaxLayers},
      {"D", &SynthShape::width, 1, kMaxSynthWidth},
      {"F", &SynthShape::ffn_width, 1, kMaxSynthWidth},
      {"E", &SynthShape::experts, 0, kMaxExpertCount},
      {"K", &SynthShape::top_k, 0, kMaxExpertCount},
      {"H", &SynthShape::heads, 1, kMaxHeads},
      {"KV", &SynthShape::kv_heads, 1, kMaxHeads},
      {"hd", &SynthShape::head_length, 2, kMaxHeadLength},
      {"V", &SynthShape::vocab, kMinSynthVocab, kMaxSynthVocab},
      {"Fs", &SynthShape::shared_width, 0, kMaxSynthWidth},
  };
  const auto apply = [&](std::string_view name, int64_t value) {
    const auto* knob = std::ranges::find(kKnobs, name, &Knob::name);
    if (knob == std::end(kKnobs))
      usage_error("a model's shape has no number \"{}\"; known are L, D, F, E, K, H, KV, hd, V and Fs", name);
    if (value < knob->low || value > knob->high)
      usage_error("{} = {} is out of range, {} to {} are allowed", name, value, knob->low, knob->high);
    shape.*(knob->number) = value;
  };
  if (options.layers != 0) apply("L", options.layers);
  for (const auto& [name, value] : options.set) apply(name, value);
}

/// The shape as the family can have it; an error where that is impossible.
void fit_shape(SynthShape& s, const Family& family, const SynthOptions& options) {
  if (family.dense) s.experts = 0;
  if (s.experts == 0) s.top_k = 0;
  if (!family.shared_expert) s.shared_width = 0;
  if (!family.may_tie) s.tied = false;
  if (family.name != "llama") s.rope_factors = false;
  if (family.qk_norm == HeadNorm::whole && !options.set.contains("KV")) s.kv_heads = s.heads;
  if (family.latent || family.blocks) s.kv_heads = 1;
  const std::string who = fmt::format("a {} model of shape {}", family.name, s.name);
  if ((family.latent || family.blocks) && s.shared_width % std::max<int64_t>(s.ffn_width, 1) != 0)
    usage_error("{} needs a shared expert as wide as some routed ones; Fs = {} is no multiple of F = {}", who,
                s.shared_width, s.ffn_width);
  if (family.latent && s.head_length % 4 != 0)
    usage_error("{} rotates half as many elements more, an even number: hd = {} is no multiple of 4", who,
                s.head_length);
  if (family.blocks && s.head_length % 32 != 0)
    usage_error("{} needs heads of a multiple of 32, hd = {} is none", who, s.head_length);
  if (family.delta && s.head_length % 32 != 0)
    usage_error("{} needs heads of a multiple of 32, hd = {} is none", who, s.head_length);
  if (family.needs_experts && s.experts == 0) usage_error("{} needs experts; set E and K", who);
  if (s.experts > 0 && (s.top_k < 1 || s.top_k > s.experts))
    usage_error("{} cannot pick K = {} of E = {} experts", who, s.top_k, s.experts);
  if (family.shared_expert && s.shared_width == 0) usage_error("{} needs a shared expert; set Fs", who);
  if (s.heads % s.kv_heads != 0) usage_error("{} cannot share KV = {} heads among H = {}", who, s.kv_heads, s.heads);
  if (s.head_length % 2 != 0) usage_error("{} cannot rotate heads of odd length hd = {}", who, s.head_length);
  if (family.square_heads && s.heads * s.head_length != s.width) {
    usage_error("{} must have H * hd = D, but {} * {} is not {}", who, s.heads, s.head_length, s.width);
  }
  if (family.qk_norm == HeadNorm::whole && s.heads != s.kv_heads)
    usage_error("{} must have KV = H, but they are {} and {}", who, s.kv_heads, s.heads);
}

void add_latent_attention(Adder& add, const SynthShape& s) {
  const Latent l(s);
  const int64_t key = l.plain + l.rotated;
  add.norm("attn_norm", s.width);
  add.matrix("attn_q_a", {s.width, l.query_rank});
  add.norm("attn_q_a_norm", l.query_rank);
  add.matrix("attn_q_b", {l.query_rank, s.heads * key});
  add.matrix("attn_kv_a_mqa", {s.width, l.rank + l.rotated});
  add.norm("attn_kv_a_norm", l.rank);
  add.matrix("attn_k_b", {l.plain, l.rank, s.heads},
             std::sqrt(static_cast<double>(l.plain) / static_cast<double>(l.rank)));
  add.matrix("attn_v_b", {l.rank, l.plain, s.heads});
  add.matrix("attn_output", {s.heads * l.plain, s.width}, 0.3);
}

void add_delta_net(Adder& add, const SynthShape& s, const std::string& layer) {
  const Delta d(s);
  add.norm("attn_norm", s.width);
  add.matrix("attn_qkv", {s.width, 2 * d.keys + d.values});
  add.matrix("attn_gate", {s.width, d.values});
  add.matrix("ssm_conv1d", {Delta::kTaps, 2 * d.keys + d.values});
  add.bias("ssm_dt", {d.value_heads});
  add.add(planned(layer + "ssm_a", {d.value_heads}, 0.2, -0.5));
  add.matrix("ssm_ba", {s.width, 2 * d.value_heads});
  add.norm("ssm_norm", d.head_length);
  add.matrix("ssm_out", {d.values, s.width}, 0.3);
}

void add_attention(Adder& add, const SynthShape& s, const Family& family, const std::string& layer) {
  const int64_t q = s.heads * s.head_length, kv = s.kv_heads * s.head_length;
  const int64_t beside = family.delta ? q : 0;  // the queries' gates
  const auto projection = [&](const char* name, int64_t out) {
    add.matrix(name, {s.width, out});
    if (family.qkv_bias) add.bias(name, {out});
  };
  add.norm("attn_norm", s.width);
  projection("attn_q", q + beside);
  projection("attn_k", kv);
  projection("attn_v", kv);
  if (family.qk_norm != HeadNorm::none) {
    const bool whole = family.qk_norm == HeadNorm::whole;
    add.norm("attn_q_norm", whole ? q : s.head_length);
    add.norm("attn_k_norm", whole ? kv : s.head_length);
  }
  // Attention of random weights is nearly an average, the same for all positions: kept small, or deep layers would see
  // all tokens alike and pick the same experts for each.
  add.matrix("attn_output", {q, s.width}, 0.3);
  if (!family.gpt_oss) return;
  add.bias("attn_output", {s.width});
  add.add(planned(layer + "attn_sinks.weight", {s.heads}, 1.0));
}

void add_experts(Adder& add, const SynthShape& s, const Family& family, const std::string& layer) {
  // Router logits with a deviation of 4: far enough apart that rounding seldom turns a pick, near enough that all picks
  // count.
  Planned router =
      planned(layer + "ffn_gate_inp.weight", {s.width, s.experts}, 4.0 / std::sqrt(static_cast<double>(s.width)));
  router.router = true;
  add.add(std::move(router));
  add.matrix("ffn_gate_exps", {s.width, s.ffn_width, s.experts});
  add.matrix("ffn_up_exps", {s.width, s.ffn_width, s.experts});
  add.matrix("ffn_down_exps", {s.ffn_width, s.width, s.experts}, kDownGain);
  if (family.gpt_oss) {
    add.bias("ffn_gate_inp", {s.experts});
    add.bias("ffn_gate_exps", {s.ffn_width, s.experts});
    add.bias("ffn_up_exps", {s.ffn_width, s.experts});
    add.bias("ffn_down_exps", {s.width, s.experts});
  }
  if (family.latent) add.bias("exp_probs_b", {s.experts});
  if (!family.shared_expert) return;
  if (!family.latent && !family.blocks) add.matrix("ffn_gate_inp_shexp", {s.width});
  add.matrix("ffn_gate_shexp", {s.width, s.shared_width});
  add.matrix("ffn_up_shexp", {s.width, s.shared_width});
  add.matrix("ffn_down_shexp", {s.shared_width, s.width}, kDownGain);
}

/// Llama 3's frequency factors: low frequencies are slowed 32 times, high ones not, those between in part.
std::vector<float> rope_factors(const SynthShape& s) {
  constexpr double kFactor = 32, kLow = 1, kHigh = 4, kOriginal = 8192;
  std::vector<float> factors;
  for (int64_t i = 0; i < s.head_length / 2; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(s.head_length);
    const double wavelength = 2 * std::numbers::pi * std::pow(s.rope_base, exponent);
    const double smooth = std::clamp((kOriginal / wavelength - kLow) / (kHigh - kLow), 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / ((1 - smooth) / kFactor + smooth)));
  }
  return factors;
}

void list_tensors(Draft& draft, uint64_t seed) {
  const SynthShape& s = draft.shape;
  Adder top(draft.tensors, "");
  const double logits = 2.5 / std::sqrt(static_cast<double>(s.width));
  top.add(planned("token_embd.weight", {s.width, s.vocab}, s.tied ? logits : 1.0));
  if (s.rope_factors) {
    Planned factors = planned("rope_freqs.weight", {s.head_length / 2}, 0);
    factors.values = rope_factors(s);
    top.add(std::move(factors));
  }
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string layer = fmt::format("blk.{}.", i);
    Adder add(draft.tensors, layer);
    if (draft.family.latent) {
      add_latent_attention(add, s);
    } else if (draft.family.blocks) {
      add_deepseek4_layer(add, s, i, seed);
    } else if (is_delta(draft.family, i)) {
      add_delta_net(add, s, layer);
    } else {
      add_attention(add, s, draft.family, layer);
    }
    add.norm(draft.family.gpt_oss || draft.family.delta ? "post_attention_norm" : "ffn_norm", s.width);
    const bool leading = draft.family.latent && i < leading_dense(s);
    if (s.experts > 0 && !leading) {
      add_experts(add, s, draft.family, layer);
    } else {
      const int64_t width = leading ? kDenseWidths * s.ffn_width : s.ffn_width;
      add.matrix("ffn_gate", {s.width, width});
      add.matrix("ffn_up", {s.width, width});
      add.matrix("ffn_down", {width, s.width}, kDownGain);
    }
  }
  if (draft.family.blocks) add_deepseek4_ends(top, s);
  top.norm("output_norm", s.width);
  if (!s.tied) top.add(planned("output.weight", {s.width, s.vocab}, logits));
}

void set_metadata(GgufWriter& writer, const Draft& draft, const SynthOptions& options, uint32_t file_type) {
  const SynthShape& s = draft.shape;
  const std::string a = std::string(draft.family.name) + ".";
  const auto number = [&](std::string_view key, int64_t value) {
    writer.set(fmt::format("{}{}", a, key), static_cast<uint32_t>(value));
  };
  const auto real = [&](std::string_view key, double value) {
    writer.set(fmt::format("{}{}", a, key), static_cast<float>(value));
  };
  writer.set("general.architecture", std::string(draft.family.name));
  writer.set("general.name", fmt::format("random weights in the shape of {}", s.name));
  writer.set("general.description", fmt::format("made by moetier synth, type {}, seed {}", options.type, options.seed));
  writer.set("general.file_type", file_type);
  writer.set("general.quantization_version", uint32_t{2});
  number("context_length", s.context_length);
  number("embedding_length", s.width);
  number("block_count", s.layers);
  number("feed_forward_length", draft.family.latent ? kDenseWidths * s.ffn_width : s.ffn_width);
  number("attention.head_count", s.heads);
  number("attention.head_count_kv", s.kv_heads);
  const Latent latent(s);
  number("attention.key_length", draft.family.latent ? latent.rank + latent.rotated : s.head_length);
  number("attention.value_length", draft.family.latent ? latent.rank : s.head_length);
  real("attention.layer_norm_rms_epsilon", s.rms_eps);
  number("rope.dimension_count", draft.family.latent   ? latent.rotated
                                 : draft.family.delta  ? s.head_length / 4
                                 : draft.family.blocks ? s.head_length / 2
                                                       : s.head_length);
  real("rope.freq_base", s.rope_base);
  if (draft.family.latent) {
    number("attention.q_lora_rank", latent.query_rank);
    number("attention.kv_lora_rank", latent.rank);
    number("attention.key_length_mla", latent.plain + latent.rotated);
    number("attention.value_length_mla", latent.plain);
    number("leading_dense_block_count", leading_dense(s));
    number("expert_shared_count", s.shared_width / s.ffn_width);
    number("expert_gating_func", 2);
    writer.set(a + "expert_weights_norm", true);
    real("expert_weights_scale", 2.5);
    if (has_groups(s)) {
      number("expert_group_count", 8);
      number("expert_group_used_count", 4);
    }
    writer.set(a + "rope.scaling.type", std::string("yarn"));
    real("rope.scaling.factor", 40);
    number("rope.scaling.original_context_length", 4096);
    real("rope.scaling.yarn_log_multiplier", 0.1);
  }
  if (draft.family.blocks) set_deepseek4_metadata(writer, a, s);
  if (draft.family.delta) {
    const Delta delta(s);
    number("ssm.conv_kernel", Delta::kTaps);
    number("ssm.inner_size", delta.values);
    number("ssm.state_size", delta.head_length);
    number("ssm.time_step_rank", delta.value_heads);
    number("ssm.group_count", delta.key_heads);
    number("full_attention_interval", Delta::kInterval);
  }
  if (draft.family.gpt_oss) {
    number("attention.sliding_window", 128);
    writer.set(a + "rope.scaling.type", std::string("yarn"));
    real("rope.scaling.factor", 32);
    number("rope.scaling.original_context_length", 4096);
  }
  number("vocab_size", s.vocab);
  if (s.experts > 0) {
    number("expert_count", s.experts);
    number("expert_used_count", s.top_k);
    if (draft.family.own_expert_key) number("expert_feed_forward_length", s.ffn_width);
    if (s.shared_width > 0) number("expert_shared_feed_forward_length", s.shared_width);
  }
  set_synth_vocab(writer, s.vocab);
}

/// Types of all tensors, and what general.file_type says.
std::pair<std::vector<TensorType>, uint32_t> types_of(const Draft& draft, std::string_view name, bool pure) {
  std::vector<MixtureTensor> tensors;
  for (const Planned& p : draft.tensors) tensors.push_back(p.tensor);
  std::vector<TensorType> types;
  if (const FileTypeInfo* file_type = find_file_type(name)) {
    const SynthShape& s = draft.shape;
    MixtureModel mixture;
    mixture.architecture = draft.family.name;
    mixture.layers = static_cast<int>(s.layers);
    mixture.heads = static_cast<int>(s.heads);
    mixture.kv_heads = static_cast<int>(s.kv_heads);
    mixture.experts = static_cast<int>(s.experts);
    for (const TypeChoice& choice : choose_types(file_type->file_type, mixture, tensors, pure))
      types.push_back(choice.keep ? TensorType::f32 : choice.type);
    return {types, static_cast<uint32_t>(file_type->file_type)};
  }
  const TypeInfo* type = find_type(name);
  if (type == nullptr || !type->computable) {
    std::vector<std::string_view> names;
    for (const FileTypeInfo& info : known_file_types()) names.push_back(info.name);
    for (const TypeInfo& info : known_types()) {
      if (info.computable && find_file_type(info.name) == nullptr) names.push_back(info.name);
    }
    usage_error("models of type \"{}\" cannot be made; known are {}", name, fmt::join(names, ", "));
  }
  for (const MixtureTensor& tensor : tensors) {
    const bool fits = tensor.shape[0] % type->block_length == 0;
    types.push_back(keeps_type(tensor) ? TensorType::f32 : fits ? type->type : TensorType::f16);
  }
  constexpr uint32_t kUnknownFile = 1024;  // a file "of guessed type" for readers that show it
  return {types, kUnknownFile};
}

/// Router rows of unequal length: an expert with a long row wins more tokens.
std::function<void(const GgufWriter::Sink&)> skewed_router(const Planned& router, double skew, uint64_t seed) {
  const auto columns = static_cast<size_t>(router.tensor.shape[0]);
  const int64_t rows = router.tensor.shape[1];
  return [=, deviation = router.deviation](const GgufWriter::Sink& sink) {
    WeightRandom random(seed);
    std::vector<float> row(columns);
    for (int64_t e = 0; e < rows; ++e) {
      const double length = deviation * std::sqrt(3.0) * std::exp(skew * random.normal());
      for (float& w : row) w = static_cast<float>(length * random.uniform());
      sink(row.data(), row.size() * sizeof(float));
    }
  };
}

/// NVFP4's block scales have few bits, so weights come with a factor of their own: one for a matrix, one for each
/// expert. Token embeddings have none, nor has what is added and not multiplied.
bool has_factor(const Planned& p, TensorType type) {
  return type == TensorType::nvfp4 && p.tensor.name != "token_embd.weight" && !p.tensor.name.ends_with("_ape.weight");
}
constexpr double kUnderFactor = 2.0;  ///< the deviation of weights that have one

void add_factor(GgufWriter& writer, const Planned& p, const SynthOptions& options) {
  std::string name = p.tensor.name;
  name.replace(name.rfind(".weight"), std::string::npos, ".scale");
  WeightRandom random(tensor_seed(options.seed, name));
  const bool experts = p.tensor.name.find("_exps.") != std::string::npos;
  std::vector<float> factors(static_cast<size_t>(experts ? p.tensor.shape[2] : 1));
  for (float& f : factors) f = static_cast<float>(p.deviation / kUnderFactor * (1 + 0.1 * random.uniform()));
  std::vector<std::byte> data(factors.size() * sizeof(float));
  std::memcpy(data.data(), factors.data(), data.size());
  writer.add_tensor(name, TensorType::f32, {static_cast<int64_t>(factors.size())}, std::move(data));
}

void add_tensor(GgufWriter& writer, const Planned& p, TensorType type, const SynthOptions& options) {
  const MixtureTensor& t = p.tensor;
  std::vector<int64_t> shape(t.shape.begin(), t.shape.begin() + t.n_dims);
  if (!p.values.empty() || !p.numbers.empty()) {
    const bool whole = p.values.empty();
    std::vector<std::byte> data((p.values.size() + p.numbers.size()) * sizeof(float));
    std::memcpy(data.data(), whole ? static_cast<const void*>(p.numbers.data()) : p.values.data(), data.size());
    writer.add_tensor(t.name, whole ? TensorType::i32 : type, std::move(shape), std::move(data));
    return;
  }
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  const uint64_t seed = tensor_seed(options.seed, t.name);
  const bool factored = has_factor(p, type);
  const double deviation = factored ? kUnderFactor : p.deviation;
  writer.add_tensor(t.name, type, std::move(shape),
                    p.router && options.skew > 0 ? skewed_router(p, options.skew, seed)
                                                 : random_weights(type, elements, deviation, seed, p.mean));
  if (factored) add_factor(writer, p, options);
}

}  // namespace

std::span<const SynthShape> synth_shapes() {
  return kShapes;
}

std::span<const std::string_view> synth_architectures() {
  return kArchitectures;
}

GgufWriter plan_synthesis(const SynthOptions& options) {
  if (!(options.skew >= 0 && options.skew <= 5))
    usage_error("a router's skew of {} makes no sense, 0 to 5 are allowed", options.skew);
  Draft draft{find_shape(options.like), {}, {}};
  draft.family =
      find_family(options.architecture.empty() ? draft.shape.architecture : std::string_view(options.architecture));
  apply_overrides(draft.shape, options);
  fit_shape(draft.shape, draft.family, options);
  list_tensors(draft, options.seed);
  const auto [types, file_type] = types_of(draft, options.type, options.pure);
  GgufWriter writer;
  set_metadata(writer, draft, options, file_type);
  for (size_t i = 0; i < draft.tensors.size(); ++i) add_tensor(writer, draft.tensors[i], types[i], options);
  return writer;
}

void synthesize(const SynthOptions& options, const std::string& path, const GgufWriter::Progress& progress) {
  plan_synthesis(options).write(path, progress);
}

}  // namespace moetier
