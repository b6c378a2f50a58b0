// Committed models, and tokens to feed them.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/context.h"
#include "engine/random.h"

namespace moetier::testing_support {

inline std::string model_path(const std::string& name) {
  return std::string(MOETIER_TEST_DATA) + "/models/" + name + ".gguf";
}

inline std::unique_ptr<Engine> load(const std::string& name, int threads = 1, Isa isa = Isa::automatic) {
  EngineOptions options;
  options.cpu.threads = threads;
  options.cpu.isa = isa;
  return Engine::load(model_path(name), options);
}

/// `n` tokens of the model's vocabulary, the same for the same seed.
inline std::vector<TokenId> some_tokens(const Engine& engine, size_t n, uint64_t seed) {
  Random random(seed);
  const auto vocab = static_cast<uint64_t>(engine.model().hparams().vocab);
  std::vector<TokenId> tokens(n);
  for (TokenId& t : tokens) t = static_cast<TokenId>(random.next() % vocab);
  return tokens;
}

inline ContextOptions small_context(TensorType kv = TensorType::f32, int64_t ubatch = 512, int sequences = 1) {
  ContextOptions o;
  o.context = 256;
  o.sequences = sequences;
  o.ubatch = ubatch;
  o.kv_type = kv;
  return o;
}

/// Feeds tokens to a sequence in one call; the logits of all rows are wanted.
inline std::vector<float> feed(Context& context, SequenceState& sequence, std::span<const TokenId> tokens) {
  std::vector<BatchRow> rows;
  for (const TokenId t : tokens) rows.push_back({t, &sequence, true});
  context.decode(rows);
  std::vector<float> all;
  for (int64_t i = 0; i < context.logits_count(); ++i) {
    const std::span<const float> l = context.logits(i);
    all.insert(all.end(), l.begin(), l.end());
  }
  return all;
}

/// The same one token at a time.
inline std::vector<float> feed_singly(Context& context, SequenceState& sequence, std::span<const TokenId> tokens) {
  std::vector<float> all;
  for (const TokenId& t : tokens) {
    const std::vector<float> one = feed(context, sequence, {&t, 1});
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace moetier::testing_support
