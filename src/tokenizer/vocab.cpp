#include "tokenizer/vocab.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/log.h"
#include "tokenizer/fixups.h"
#include "tokenizer/pretokenizer.h"

namespace moetier {

namespace {

/// The ids a file may name, as `tokenizer.ggml.<name>_token_id`. `prefix`, `suffix` and `middle` are older names of the
/// three FIM ids.
constexpr std::string_view kIdNames[] = {"bos",     "eos",     "eot",     "eom",     "unknown",
                                         "padding", "fim_pre", "fim_suf", "fim_mid", "fim_pad",
                                         "fim_rep", "fim_sep", "prefix",  "suffix",  "middle"};

/// Token type numbers as files write them.
uint8_t flag_of_type(int64_t type) {
  switch (type) {
    case 1:
      return kTokenNormal;
    case 2:
      return kTokenUnknown;
    case 3:
      return kTokenControl;
    case 4:
      return kTokenUserDefined;
    case 5:
      return kTokenUnused;
    case 6:
      return kTokenByte;
    default:
      return 0;
  }
}

void set_texts(Vocab& vocab, VocabSource& source) {
  if (source.tokens.empty()) fail("{}: the vocabulary has no tokens (tokenizer.ggml.tokens)", source.file);
  if (source.tokens.size() > static_cast<size_t>(std::numeric_limits<TokenId>::max()))
    fail("{}: the vocabulary has {} tokens, more than ids can number", source.file, source.tokens.size());
  vocab.texts = std::move(source.tokens);
  vocab.index.reserve(vocab.texts.size());
  for (TokenId id = 0; id < vocab.size(); ++id) {
    std::string& text = vocab.texts[static_cast<size_t>(id)];
    if (text.empty()) text = fmt::format("[EMPTY_{}]", id);
    const TokenId first = vocab.index.insert(id);
    if (first != id)
      fail("{}: tokens {} and {} of the vocabulary have the same text; every token needs its own", source.file, first,
           id);
  }
}

void set_scores(Vocab& vocab, const VocabSource& source) {
  if (!source.scores.empty() && source.scores.size() != vocab.texts.size())
    fail("{}: tokenizer.ggml.scores has {} values for {} tokens", source.file, source.scores.size(),
         vocab.texts.size());
  vocab.scores.assign(vocab.texts.size(), 0.0f);
  for (size_t i = 0; i < source.scores.size(); ++i) {
    const float score = source.scores[i];
    vocab.scores[i] = std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
  }
}

void set_flags(Vocab& vocab, const VocabSource& source) {
  if (!source.types.empty() && source.types.size() != vocab.texts.size())
    fail("{}: tokenizer.ggml.token_type has {} values for {} tokens", source.file, source.types.size(),
         vocab.texts.size());
  vocab.flags.assign(vocab.texts.size(), kTokenNormal);
  size_t odd_bytes = 0;
  for (size_t i = 0; i < source.types.size(); ++i) {
    vocab.flags[i] = flag_of_type(source.types[i]);
    if (vocab.flags[i] == kTokenByte && byte_of_token_text(vocab.texts[i]) < 0) {
      vocab.flags[i] = kTokenNormal;
      ++odd_bytes;
    }
  }
  if (odd_bytes > 0)
    log::warn("{}: {} tokens are typed as bytes but not written <0xXX>; they are taken as normal tokens", source.file,
              odd_bytes);
}

/// An id the file names, or `fallback`; one outside the vocabulary counts as absent, with a warning.
TokenId named_id(const Vocab& vocab, const VocabSource& source, std::string_view name, TokenId fallback) {
  const auto found = source.ids.find(name);
  if (found == source.ids.end()) return vocab.has(fallback) ? fallback : -1;
  if (vocab.has(found->second)) return static_cast<TokenId>(found->second);
  log::warn("{}: tokenizer.ggml.{}_token_id is {}, outside the {} tokens; it is ignored", source.file, name,
            found->second, vocab.size());
  return vocab.has(fallback) ? fallback : -1;
}

/// What each model takes for granted where the file is silent (architectures.md, 5.2).
void set_model_defaults(Vocab& vocab, const VocabSource& source) {
  const bool spm = vocab.model == VocabModel::spm;
  const bool byte_level = vocab.model == VocabModel::byte_level_bpe;
  TokenId bos = -1, eos = -1, unknown = -1;
  if (spm) {
    bos = 1;
    eos = 2;
    unknown = 0;
    vocab.add_bos = true;
    vocab.add_space_prefix = true;
  } else if (source.model == "gpt2") {
    if (source.pre.empty())
      log::warn("{}: no tokenizer.ggml.pre, so words are cut by the default patterns, which may not be the model's own",
                source.file);
    const PretokenizerInfo& info = find_pretokenizer(source.pre, source.file);
    bos = info.no_default_bos ? -1 : 11;
    eos = 11;
    vocab.add_bos = info.add_bos;
    vocab.ignore_merges = info.ignore_merges;
    vocab.clean_spaces = info.clean_spaces;
  }
  vocab.bos = named_id(vocab, source, "bos", bos);
  vocab.eos = named_id(vocab, source, "eos", eos);
  vocab.unknown = named_id(vocab, source, "unknown", unknown);
  vocab.add_bos = source.add_bos.value_or(vocab.add_bos);
  vocab.add_eos = source.add_eos.value_or(false);
  vocab.add_space_prefix = source.add_space_prefix.value_or(vocab.add_space_prefix);
  if (!spm && !byte_level) vocab.add_bos = true;
}

VocabModel model_of(const VocabSource& source) {
  if (source.model == "llama") return VocabModel::spm;
  if (source.model == "gemma4") return VocabModel::raw_bpe;
  if (source.model == "gpt2")
    return find_pretokenizer(source.pre, source.file).raw_utf8 ? VocabModel::raw_bpe : VocabModel::byte_level_bpe;
  if (source.model.empty()) fail("{}: no tokenizer.ggml.model, so text can't become tokens", source.file);
  fail("{}: the tokenizer model '{}' is not supported; known are llama (SPM), gpt2 (byte-level BPE) and gemma4",
       source.file, source.model);
}

std::vector<int64_t> ints_of(const GgufFile& file, std::string_view key) {
  return file.get_ints(key).value_or(std::vector<int64_t>{});
}

}  // namespace

int byte_of_token_text(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  int value = 0;
  for (const char digit : text.substr(3, 2)) {
    value *= 16;
    if (digit >= '0' && digit <= '9') {
      value += digit - '0';
    } else if (digit >= 'A' && digit <= 'F') {
      value += digit - 'A' + 10;
    } else if (digit >= 'a' && digit <= 'f') {
      value += digit - 'a' + 10;
    } else {
      return -1;
    }
  }
  return value;
}

TokenId Vocab::find_byte(uint8_t byte) const {
  constexpr char digits[] = "0123456789ABCDEF";
  const char text[6] = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
  return find(std::string_view(text, 6));
}

VocabSource read_vocab_source(const GgufFile& file) {
  VocabSource source;
  source.file = file.path();
  source.model_name = file.get_string("general.name").value_or("");
  source.model = file.get_string("tokenizer.ggml.model").value_or("");
  source.pre = file.get_string("tokenizer.ggml.pre").value_or("");
  if (const auto* tokens = file.get_strings("tokenizer.ggml.tokens")) source.tokens = *tokens;
  source.merges = file.get_strings("tokenizer.ggml.merges");
  source.scores = file.get_floats("tokenizer.ggml.scores").value_or(std::vector<float>{});
  source.types = ints_of(file, "tokenizer.ggml.token_type");
  for (const std::string_view name : kIdNames) {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    if (const auto id = file.get_int(key)) source.ids.emplace(name, *id);
  }
  source.add_bos = file.get_bool("tokenizer.ggml.add_bos_token");
  source.add_eos = file.get_bool("tokenizer.ggml.add_eos_token");
  source.add_space_prefix = file.get_bool("tokenizer.ggml.add_space_prefix");
  source.suppressed = ints_of(file, "tokenizer.ggml.suppress_tokens");
  source.chat_template = file.get_string("tokenizer.chat_template").value_or("");
  return source;
}

void fill_vocab(Vocab& vocab, VocabSource& source) {
  vocab.model = model_of(source);
  set_texts(vocab, source);
  set_scores(vocab, source);
  set_flags(vocab, source);
  set_model_defaults(vocab, source);
  for (const int64_t id : source.suppressed) {
    if (vocab.has(id)) {
      vocab.suppressed.push_back(static_cast<TokenId>(id));
    } else {
      log::warn("{}: tokenizer.ggml.suppress_tokens names token {}, outside the {} tokens; it is ignored", source.file,
                id, vocab.size());
    }
  }
  vocab.chat_template = std::move(source.chat_template);
  apply_fixups(vocab, source);
}

}  // namespace moetier
