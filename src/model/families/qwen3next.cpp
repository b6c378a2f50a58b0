// qwen3next and qwen35moe (Qwen3.5): most layers are gated delta nets, the others attention whose result is gated; all
// have experts and a gated shared one.
#include "base/error.h"
#include "model/decoder.h"
#include "model/delta_net.h"
#include "model/families/families.h"

namespace moetier {
namespace {

/// Rotation by sections, of time and two axes of an image: in text all are the position, so that it is ordinary
/// rotation, if every pair belongs to one of them.
void check_sections(const GgufFile& file, const HParams& h) {
  const std::string name = h.architecture + ".rope.dimension_sections";
  const auto sections = file.get_ints(name);
  if (!sections || sections->size() != 4)
    fail("{}: the key {} is missing or does not have four values", file.path(), name);
  int64_t sum = 0;
  for (const int64_t section : *sections) {
    if (section < 0 || section > kMaxHeadLength) fail("{}: {} holds {}", file.path(), name, section);
    sum += section;
  }
  constexpr size_t kTime = 0, kHeight = 1, kWidth = 2;
  for (int64_t pair = 0; pair < h.rope.dims / 2; ++pair) {
    const int64_t sector = sum > 0 ? pair % sum : 0;
    const size_t axis = sector % 3 == 1 ? kHeight : sector % 3 == 2 ? kWidth : kTime;
    if (sum == 0 || sector >= 3 * (*sections)[axis])
      fail("{}: {} leaves pair {} of {} without a position, which is not supported", file.path(), name, pair,
           h.rope.dims / 2);
  }
}

std::unique_ptr<Model> load(const GgufFile& file, Compute& compute, HParams h, const DeltaShape& shape) {
  h.rope_pairs = RopePairs::halves;
  h.expert_width = read_expert_width(file, h);
  h.shared_width = read_count(file, "expert_shared_feed_forward_length", 1, kMaxWidth, h.ffn_width);
  if (h.shared_width == 0)
    fail("{}: the key {}.expert_shared_feed_forward_length is missing", file.path(), h.architecture);
  if (h.key_length != h.value_length)
    fail("{}: {}.attention.key_length and value_length are {} and {}, but the gate of attention needs them equal",
         file.path(), h.architecture, h.key_length, h.value_length);
  DecoderTraits traits{.attention = {.qk_norm = QkNorm::per_head, .gated = true},
                       .moe = {.normalize = true, .shared = SharedForm::gated},
                       .ffn_norm = "post_attention_norm.weight",
                       .tied_output = true,
                       .partial_rotation = true};
  traits.mixer = [shape, attention = traits.attention](WeightBinder& binder, const HParams& hparams,
                                                       int layer) -> std::unique_ptr<Mixer> {
    if (hparams.recurrent[static_cast<size_t>(layer)].heads > 0) return bind_delta_net(binder, hparams, layer, shape);
    return std::make_unique<AttentionBlock>(bind_attention(binder, hparams, layer, attention));
  };
  return load_decoder(file, compute, std::move(h), traits);
}

}  // namespace

HParams read_qwen3next(const GgufFile& file) {
  HParams h = read_hparams(file);
  read_delta_shape(file, h);
  return h;
}

std::unique_ptr<Model> load_qwen3next(const GgufFile& file, Compute& compute) {
  HParams h = read_hparams(file);
  require_experts(file, h);
  DeltaShape shape = read_delta_shape(file, h);
  shape.joined_gates = true;
  return load(file, compute, std::move(h), shape);
}

std::unique_ptr<Model> load_qwen35moe(const GgufFile& file, Compute& compute) {
  HParams h = read_hparams(file);
  require_experts(file, h);
  check_sections(file, h);
  DeltaShape shape = read_delta_shape(file, h);
  shape.tiled = true;
  return load(file, compute, std::move(h), shape);
}

}  // namespace moetier
