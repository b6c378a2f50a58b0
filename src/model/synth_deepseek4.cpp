#include "model/synth_deepseek4.h"

#include <numeric>

#include "model/synth_blocks.h"

namespace moetier {
namespace {

constexpr int64_t kStreams = 4, kIterations = 4, kIndexHeads = 8, kLookedUp = 2;

/// What follows from heads and their length.
struct Sizes {
  int64_t query_rank, groups, output_rank, index_length;
  explicit Sizes(const SynthShape& s)
      : query_rank(2 * s.head_length),
        groups(s.heads % 4 == 0 ? 4 : 1),
        output_rank(2 * s.head_length),
        index_length(s.head_length) {}
};

int64_t ratio_of(int64_t layer) {
  constexpr int64_t kRatios[] = {0, 4, 128, 4};
  return kRatios[layer % 4];
}

int64_t looked_up(const SynthShape& s) {
  return std::min<int64_t>(kLookedUp, s.layers);
}

void add_streams(Adder& add, std::string_view name, const SynthShape& s, int64_t numbers, int64_t scales) {
  add.matrix(fmt::format("{}_fn", name), {kStreams * s.width, numbers});
  add.add(planned(fmt::format("{}{}_base.weight", add.prefix(), name), {numbers}, 0.5));
  add.add(planned(fmt::format("{}{}_scale.weight", add.prefix(), name), {scales}, 0.1, 0.7));
}

void add_compressor(Adder& add, std::string_view name, const SynthShape& s, int64_t width, int64_t ratio) {
  const int64_t channels = ratio == 4 ? 2 * width : width;
  add.matrix(fmt::format("{}_kv", name), {s.width, channels});
  add.matrix(fmt::format("{}_gate", name), {s.width, channels});
  add.matrix(fmt::format("{}_ape", name), {channels, ratio});
  add.norm(fmt::format("{}_norm", name), width);
}

/// Some distinct experts for each token of the vocabulary.
std::vector<int32_t> lookup_table(const SynthShape& s, uint64_t seed) {
  WeightRandom random(seed);
  std::vector<int32_t> table, all(static_cast<size_t>(s.experts));
  std::iota(all.begin(), all.end(), 0);
  table.reserve(static_cast<size_t>(s.vocab * s.top_k));
  for (int64_t token = 0; token < s.vocab; ++token) {
    for (int64_t k = 0; k < s.top_k; ++k) {
      const uint64_t at = random.next() % static_cast<uint64_t>(s.experts - k);
      std::swap(all[static_cast<size_t>(k)], all[static_cast<size_t>(k) + at]);
    }
    table.insert(table.end(), all.begin(), all.begin() + s.top_k);
  }
  return table;
}

}  // namespace

void add_deepseek4_layer(Adder& add, const SynthShape& s, int64_t layer, uint64_t seed) {
  const Sizes sizes(s);
  const int64_t ratio = ratio_of(layer), q = s.heads * s.head_length;
  for (const char* part : {"hc_attn", "hc_ffn"}) add_streams(add, part, s, kStreams * (2 + kStreams), 3);
  add.norm("attn_norm", s.width);
  add.add(planned(add.prefix() + "attn_sinks.weight", {s.heads}, 1.0));
  add.matrix("attn_q_a", {s.width, sizes.query_rank});
  add.norm("attn_q_a_norm", sizes.query_rank);
  add.matrix("attn_q_b", {sizes.query_rank, q});
  add.matrix("attn_kv", {s.width, s.head_length});
  add.norm("attn_kv_a_norm", s.head_length);
  add.matrix("attn_output_a", {q / sizes.groups, sizes.output_rank * sizes.groups});
  add.matrix("attn_output_b", {sizes.output_rank * sizes.groups, s.width}, 0.3);
  if (ratio > 0) add_compressor(add, "attn_compressor", s, s.head_length, ratio);
  if (ratio == 4) {
    add.matrix("indexer.proj", {s.width, kIndexHeads});
    add.matrix("indexer.attn_q_b", {sizes.query_rank, kIndexHeads * sizes.index_length});
    add_compressor(add, "indexer_compressor", s, sizes.index_length, ratio);
  }
  if (layer >= looked_up(s)) return add.bias("exp_probs_b", {s.experts});
  Planned table = planned(add.prefix() + "ffn_gate_tid2eid.weight", {s.top_k, s.vocab}, 0.0);
  table.numbers = lookup_table(s, tensor_seed(seed, table.tensor.name));
  add.add(std::move(table));
}

void add_deepseek4_ends(Adder& add, const SynthShape& s) {
  add_streams(add, "output_hc", s, kStreams, 1);
}

void set_deepseek4_metadata(GgufWriter& writer, const std::string& a, const SynthShape& s) {
  const Sizes sizes(s);
  const auto number = [&](std::string_view key, int64_t value) {
    writer.set(fmt::format("{}{}", a, key), static_cast<uint32_t>(value));
  };
  const auto real = [&](std::string_view key, float value) { writer.set(fmt::format("{}{}", a, key), value); };
  number("attention.q_lora_rank", sizes.query_rank);
  number("attention.sliding_window", 128);
  number("attention.output_group_count", sizes.groups);
  number("attention.output_lora_rank", sizes.output_rank);
  number("attention.indexer.head_count", kIndexHeads);
  number("attention.indexer.key_length", sizes.index_length);
  number("attention.indexer.top_k", 512);
  real("attention.compress_rope_freq_base", 160000.0f);
  std::vector<int32_t> ratios;
  for (int64_t i = 0; i < s.layers; ++i) ratios.push_back(static_cast<int32_t>(ratio_of(i)));
  writer.set_ints(a + "attention.compress_ratios", ratios);
  number("hyper_connection.count", kStreams);
  number("hyper_connection.sinkhorn_iterations", kIterations);
  real("hyper_connection.epsilon", 1e-6f);
  number("hash_layer_count", looked_up(s));
  number("expert_shared_count", s.shared_width / s.ffn_width);
  number("expert_gating_func", 4);
  writer.set(a + "expert_weights_norm", true);
  real("expert_weights_scale", 1.5f);
  real("swiglu_clamp_exp", 10.0f);
  writer.set(a + "rope.scaling.type", std::string("yarn"));
  real("rope.scaling.factor", 16.0f);
  number("rope.scaling.original_context_length", 4096);
}

}  // namespace moetier
