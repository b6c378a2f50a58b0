#include "tokenizer/fixups.h"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string_view>

#include "base/log.h"

namespace moetier {

namespace {

using Texts = std::span<const std::string_view>;

// DeepSeek writes its special tokens with fullwidth bars (U+FF5C) and U+2581 between words.
constexpr std::string_view kDeepseekEnd =
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>";
constexpr std::string_view kDeepseekFimBegin =
    "<\xEF\xBD\x9C"
    "fim\xE2\x96\x81"
    "begin\xEF\xBD\x9C>";
constexpr std::string_view kDeepseekFimHole =
    "<\xEF\xBD\x9C"
    "fim\xE2\x96\x81hole\xEF\xBD\x9C>";
constexpr std::string_view kDeepseekFimEnd =
    "<\xEF\xBD\x9C"
    "fim\xE2\x96\x81"
    "end\xEF\xBD\x9C>";

constexpr std::string_view kEndOfTurn[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",     "<|end_of_text|>",
    "<EOT>",      "_<EOT>",     "[EOT]",   kDeepseekEnd,    "<end_of_utterance>"};
constexpr std::string_view kEndOfMessage[] = {"<|eom_id|>"};
constexpr std::string_view kFimPrefix[] = {"<|fim_prefix|>", "<fim-prefix>",      "<fim_prefix>",    kDeepseekFimBegin,
                                           "<PRE>",          "\xE2\x96\x81<PRE>", "<|code_prefix|>", "<|prefix|>"};
constexpr std::string_view kFimSuffix[] = {"<|fim_suffix|>", "<fim-suffix>",      "<fim_suffix>",    kDeepseekFimHole,
                                           "<SUF>",          "\xE2\x96\x81<SUF>", "<|code_suffix|>", "<|suffix|>"};
constexpr std::string_view kFimMiddle[] = {"<|fim_middle|>", "<fim-middle>",      "<fim_middle>",    kDeepseekFimEnd,
                                           "<MID>",          "\xE2\x96\x81<MID>", "<|code_middle|>", "<|middle|>"};
constexpr std::string_view kFimPad[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"};
constexpr std::string_view kFimRepo[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"};
constexpr std::string_view kFimSeparator[] = {"<|file_sep|>"};
constexpr std::string_view kEndsGeneration[] = {"<|eot_id|>",
                                                "<|im_end|>",
                                                "<|end|>",
                                                "<|return|>",
                                                "<|call|>",
                                                "<|flush|>",
                                                "<|calls|>",
                                                "<end_of_turn>",
                                                "<|endoftext|>",
                                                "</s>",
                                                "<|eom_id|>",
                                                "<EOT>",
                                                "_<EOT>",
                                                "[EOT]",
                                                "[EOS]",
                                                "<|end_of_text|>",
                                                "<end_of_utterance>",
                                                "<eos>",
                                                "<turn|>",
                                                "<|tool_response>",
                                                kDeepseekEnd,
                                                "[e~["};

/// The id the file names under one of `keys`, else the first token written like one of `texts`, which is then a control
/// token.
TokenId named_or_found(Vocab& vocab, const VocabSource& source, std::initializer_list<std::string_view> keys,
                       Texts texts) {
  for (const std::string_view key : keys) {
    const auto named = source.ids.find(key);
    if (named == source.ids.end()) continue;
    if (vocab.has(named->second)) return static_cast<TokenId>(named->second);
    log::warn("{}: tokenizer.ggml.{}_token_id is {}, outside the {} tokens; it is ignored", source.file, key,
              named->second, vocab.size());
  }
  for (const std::string_view text : texts) {
    const TokenId id = vocab.find(text);
    if (id < 0) continue;
    vocab.flags[static_cast<size_t>(id)] |= kTokenControl;
    return id;
  }
  return -1;
}

void mark_end(Vocab& vocab, TokenId id) {
  if (id >= 0) vocab.ends_generation[static_cast<size_t>(id)] = true;
}

void collect_ends(Vocab& vocab) {
  vocab.ends_generation.assign(vocab.texts.size(), false);
  for (const TokenId id : {vocab.fim_pad, vocab.fim_repo, vocab.fim_separator, vocab.eos, vocab.eot, vocab.eom})
    mark_end(vocab, id);
  for (const std::string_view text : kEndsGeneration) {
    const TokenId id = vocab.find(text);
    if (id < 0) continue;
    mark_end(vocab, id);
    vocab.flags[static_cast<size_t>(id)] |= kTokenControl;
  }
}

bool ends(const Vocab& vocab, std::string_view text) {
  const TokenId id = vocab.find(text);
  return id >= 0 && vocab.ends_generation[static_cast<size_t>(id)];
}

/// The harmony format (gpt-oss) writes messages with control tokens that a reader must see, and `<|end|>` ends a
/// message, not a turn.
void correct_harmony(Vocab& vocab) {
  const auto make_visible = [&vocab](std::string_view text) {
    const TokenId id = vocab.find(text);
    if (id >= 0) vocab.flags[static_cast<size_t>(id)] = kTokenUserDefined;
    return id;
  };
  for (const std::string_view text : {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"}) make_visible(text);
  const bool calls = ends(vocab, "<|call|>") || ends(vocab, "<|calls|>");
  const bool closes = ends(vocab, "<|return|>") || ends(vocab, "<|flush|>");
  if (calls && closes && ends(vocab, "<|end|>"))
    vocab.ends_generation[static_cast<size_t>(make_visible("<|end|>"))] = false;
}

/// gemma 4 has `</s>` as an HTML tag among its words.
void correct_gemma4(Vocab& vocab) {
  if (!ends(vocab, "<|tool_response>") || !ends(vocab, "</s>")) return;
  const auto id = static_cast<size_t>(vocab.find("</s>"));
  vocab.ends_generation[id] = false;
  vocab.flags[id] = kTokenNormal;
}

void mark_unused(Vocab& vocab) {
  for (size_t i = 0; i < vocab.texts.size(); ++i) {
    if ((vocab.flags[i] & kTokenControl) != 0 && vocab.texts[i].find("unused") != std::string::npos)
      vocab.flags[i] |= kTokenUnused;
  }
}

/// The special tokens of phi-3 swallow the white space behind them; the file doesn't say so.
void correct_phi3(Vocab& vocab, const VocabSource& source) {
  std::string name = source.model_name;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (name.find("phi-3") == std::string::npos && name.find("phi3") == std::string::npos) return;
  for (size_t i = 0; i < vocab.texts.size(); ++i) {
    if ((vocab.flags[i] & (kTokenControl | kTokenUserDefined | kTokenUnknown)) == 0) continue;
    const std::string& text = vocab.texts[i];
    if (text != "<unk>" && text != "<s>" && text != "<|endoftext|>") vocab.flags[i] |= kTokenStripRight;
  }
  const TokenId end = vocab.find("</s>");
  if (end >= 0) vocab.flags[static_cast<size_t>(end)] |= kTokenStripRight;
}

}  // namespace

void apply_fixups(Vocab& vocab, const VocabSource& source) {
  vocab.eot = named_or_found(vocab, source, {"eot"}, kEndOfTurn);
  vocab.eom = named_or_found(vocab, source, {"eom"}, kEndOfMessage);
  named_or_found(vocab, source, {"fim_pre", "prefix"}, kFimPrefix);
  named_or_found(vocab, source, {"fim_suf", "suffix"}, kFimSuffix);
  named_or_found(vocab, source, {"fim_mid", "middle"}, kFimMiddle);
  vocab.fim_pad = named_or_found(vocab, source, {"fim_pad"}, kFimPad);
  vocab.fim_repo = named_or_found(vocab, source, {"fim_rep"}, kFimRepo);
  vocab.fim_separator = named_or_found(vocab, source, {"fim_sep"}, kFimSeparator);
  mark_unused(vocab);
  collect_ends(vocab);
  correct_harmony(vocab);
  correct_gemma4(vocab);
  correct_phi3(vocab, source);
}

}  // namespace moetier
