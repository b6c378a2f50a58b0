#include "model/synth_vocab.h"

#include <string>
#include <vector>

#include "base/error.h"

namespace moetier {
namespace {

/// UTF-8 of a code point below 0x800.
std::string utf8(int code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

/// The printable characters that stand for bytes in byte-level BPE: printable Latin-1 for itself, the rest from 256 on.
std::vector<std::string> byte_tokens() {
  std::vector<std::string> tokens;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    tokens.push_back(utf8(itself ? byte : next++));
  }
  return tokens;
}

/// Tokens and merges as they grow.
struct Vocab {
  size_t wanted;
  std::vector<std::string> tokens, merges;
  /// The token made of two others, and its merge; nothing once there are enough.
  void join(const std::string& left, const std::string& right) {
    if (tokens.size() >= wanted) return;
    tokens.push_back(left + right);
    merges.push_back(left + " " + right);
  }
};

void add_words(Vocab& vocab) {
  const std::string space = utf8(0x120);  // stands for the byte 0x20
  const size_t first_syllable = vocab.tokens.size();
  for (const char consonant : std::string_view("bcdfghjklmnpqrstvwxyz")) {
    for (const char vowel : std::string_view("aeiou")) vocab.join({consonant}, {vowel});
  }
  const std::vector<std::string> syllables(vocab.tokens.begin() + static_cast<std::ptrdiff_t>(first_syllable),
                                           vocab.tokens.end());
  size_t next = vocab.tokens.size();
  for (const std::string& syllable : syllables) vocab.join(space, syllable);
  // Every word so far, then each of those, is followed by every syllable.
  for (; vocab.tokens.size() < vocab.wanted; ++next) {
    const std::string word = vocab.tokens[next];
    for (const std::string& syllable : syllables) vocab.join(word, syllable);
  }
}

constexpr const char* kChatTemplate =
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

}  // namespace

void set_synth_vocab(GgufWriter& writer, int64_t n) {
  if (n < kMinSynthVocab) fail("a vocabulary of {} tokens is too small, at least {} are needed", n, kMinSynthVocab);
  constexpr int32_t kNormal = 1, kControl = 3;
  Vocab vocab{static_cast<size_t>(n), byte_tokens(), {}};
  std::vector<int32_t> types(vocab.wanted, kNormal);
  const auto control = [&](const char* text) {
    types[vocab.tokens.size()] = kControl;
    vocab.tokens.emplace_back(text);
    return static_cast<uint32_t>(vocab.tokens.size() - 1);
  };
  const uint32_t end_of_text = control("<|endoftext|>");
  control("<|im_start|>");
  const uint32_t end_of_turn = control("<|im_end|>");
  add_words(vocab);

  writer.set("tokenizer.ggml.model", std::string("gpt2"));
  writer.set("tokenizer.ggml.pre", std::string("qwen2"));
  writer.set_strings("tokenizer.ggml.tokens", std::move(vocab.tokens));
  writer.set_ints("tokenizer.ggml.token_type", std::move(types));
  writer.set_strings("tokenizer.ggml.merges", std::move(vocab.merges));
  writer.set("tokenizer.ggml.bos_token_id", end_of_text);
  writer.set("tokenizer.ggml.eos_token_id", end_of_turn);
  writer.set("tokenizer.ggml.padding_token_id", end_of_text);
  writer.set("tokenizer.ggml.add_bos_token", false);
  writer.set("tokenizer.chat_template", std::string(kChatTemplate));
}

}  // namespace moetier
