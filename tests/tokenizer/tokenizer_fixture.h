// Small vocabularies that the tests build by hand, and the ways to load one.
#pragma once

#include <fmt/core.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/bpe.h"
#include "tokenizer/gguf_tokenizer.h"

namespace moetier::test {

/// A vocabulary under construction, which owns what VocabSource only points to.
struct VocabDraft {
  VocabSource source;
  std::vector<std::string> merges;

  /// Adds a token of a type as files number them (1 normal, 3 control, 4 user-defined, ...); returns its id.
  TokenId add(const std::string& text, int64_t type = 1, float score = 0) {
    source.tokens.push_back(text);
    source.types.push_back(type);
    source.scores.push_back(score);
    return static_cast<TokenId>(source.tokens.size()) - 1;
  }
  std::unique_ptr<Tokenizer> build() const {
    VocabSource copy = source;
    if (source.model != "llama") copy.merges = &merges;
    return std::make_unique<GgufTokenizer>(std::move(copy));
  }
};

/// Byte-level BPE: the 256 bytes (ids 0 to 255), " t", " th" and " the".
inline VocabDraft byte_level_draft(const std::string& pre = "qwen2") {
  VocabDraft draft;
  draft.source.model = "gpt2";
  draft.source.pre = pre;
  for (int byte = 0; byte < 256; ++byte) draft.add(ByteAlphabet::get().stand_in(static_cast<uint8_t>(byte)));
  const std::string space = ByteAlphabet::get().stand_in(' ');
  draft.merges = {space + " t", "h e", space + "t he"};
  for (const std::string& text : {space + "t", std::string("he"), space + "the"}) draft.add(text);
  return draft;
}

/// SentencePiece: <unk>, <s>, </s>, the 256 bytes (ids 3 to 258), some letters and pieces.
inline VocabDraft spm_draft() {
  VocabDraft draft;
  draft.source.model = "llama";
  draft.add("<unk>", 2);
  draft.add("<s>", 3);
  draft.add("</s>", 3);
  for (int byte = 0; byte < 256; ++byte) draft.add(fmt::format("<0x{:02X}>", byte), 6);
  for (const char* text : {"a", "b", "c", "\xE2\x96\x81"}) draft.add(text, 1, -100);
  draft.add("ab", 1, -1);
  draft.add("bc", 1, -2);
  draft.add(
      "\xE2\x96\x81"
      "ab",
      1, -3);
  draft.add("abc", 1, -4);
  return draft;
}

inline std::string data_path(const std::string& name) {
  return std::string(MOETIER_TEST_DATA) + "/tokenizer/" + name;
}

inline std::unique_ptr<Tokenizer> load_fixture(const std::string& name) {
  const GgufFile file = GgufFile::open(data_path(name));
  return Tokenizer::load(file);
}

/// A committed vocabulary with another pre-tokenizer.
inline std::unique_ptr<Tokenizer> load_fixture_as(const std::string& name, const std::string& pre) {
  const GgufFile file = GgufFile::open(data_path(name));
  VocabSource source = read_vocab_source(file);
  source.pre = pre;
  return std::make_unique<GgufTokenizer>(std::move(source));
}

/// All pieces, byte for byte.
inline std::string raw_bytes(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string out;
  for (const TokenId id : ids) out += tokenizer.piece(id, true);
  return out;
}

}  // namespace moetier::test
