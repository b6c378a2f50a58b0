// Any text over small vocabularies, and any vocabulary over its own text: no crash, no loss, streams equal wholes.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "tokenizer/gguf_tokenizer.h"

namespace {

using namespace moetier;

constexpr std::string_view kMark = "\xE2\x96\x81";

void require(bool holds) {
  if (!holds) std::abort();
}

VocabSource byte_level(const std::string& pre, std::vector<std::string>& merges) {
  VocabSource source;
  source.model = "gpt2";
  source.pre = pre;
  const auto stand_in = [](int byte) { return ByteAlphabet::get().stand_in(static_cast<uint8_t>(byte)); };
  for (int byte = 0; byte < 256; ++byte) source.tokens.push_back(stand_in(byte));
  for (const auto& [left, right] :
       std::initializer_list<std::pair<std::string, std::string>>{{stand_in(' '), stand_in(' ')},
                                                                  {stand_in('\n'), stand_in('\n')},
                                                                  {"a", "a"},
                                                                  {"aa", "aa"},
                                                                  {stand_in(' '), "a"},
                                                                  {"1", "1"},
                                                                  {stand_in(0xE2), stand_in(0x80)},
                                                                  {"a", "b"},
                                                                  {"b", "a"},
                                                                  {stand_in(' ') + "a", "b"}}) {
    merges.push_back(left + " " + right);
    source.tokens.push_back(left + right);
  }
  source.types.assign(source.tokens.size(), 1);
  for (const auto& [text, type] : std::initializer_list<std::pair<std::string, int64_t>>{
           {"<s>", 3}, {"<|im_end|>", 3}, {"<a", 4}, {"<a>>", 4}, {"a>>", 3}, {"<unk>", 2}}) {
    source.tokens.push_back(text);
    source.types.push_back(type);
  }
  return source;
}

VocabSource spaced(bool spm, std::vector<std::string>& merges) {
  VocabSource source;
  source.model = spm ? "llama" : "gemma4";
  for (const auto& [text, type] : std::initializer_list<std::pair<std::string, int64_t>>{
           {"<unk>", 2}, {"<s>", 3}, {"</s>", 3}, {"<a", 4}, {"<a>>", 3}}) {
    source.tokens.push_back(text);
    source.types.push_back(type);
  }
  for (int byte = 0; byte < 256; ++byte) {
    source.tokens.push_back(fmt::format("<0x{:02X}>", byte));
    source.types.push_back(6);
  }
  const std::string mark(kMark);
  for (const std::string& text :
       {mark, std::string("a"), std::string("b"), std::string("\n"), mark + mark, mark + "a", std::string("aa"),
        std::string("ab"), mark + "ab", std::string("aaaa"), std::string("\n\n"), std::string("b") + mark}) {
    source.tokens.push_back(text);
    source.types.push_back(1);
  }
  for (size_t i = 0; i < source.tokens.size(); ++i) source.scores.push_back(-static_cast<float>(i % 7));
  for (const auto& [left, right] : std::initializer_list<std::pair<std::string, std::string>>{
           {mark, mark}, {"a", "a"}, {mark, "a"}, {"a", "b"}, {mark, "ab"}, {"aa", "aa"}, {"\n", "\n"}, {"b", mark}})
    merges.push_back(left + " " + right);
  return source;
}

struct Built {
  std::unique_ptr<GgufTokenizer> tokenizer;
  bool byte_level;
  bool space_first;
};

const std::vector<Built>& built_in() {
  static const std::vector<Built> all = [] {
    log::set_level(log::Level::quiet);
    std::vector<Built> out;
    for (const char* pre : {"default", "gpt-2", "starcoder", "llama3", "qwen2", "qwen35", "gpt-4o", "deepseek-llm",
                            "deepseek-coder", "deepseek-v3", "bailingmoe", "tekken", "kimi-k2"}) {
      std::vector<std::string> merges;
      VocabSource source = byte_level(pre, merges);
      source.merges = &merges;
      out.push_back({std::make_unique<GgufTokenizer>(std::move(source)), true, false});
    }
    for (const bool spm : {true, false}) {
      std::vector<std::string> merges;
      VocabSource source = spaced(spm, merges);
      if (!spm) source.merges = &merges;
      out.push_back({std::make_unique<GgufTokenizer>(std::move(source)), false, spm});
    }
    return out;
  }();
  return all;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  StreamDecoder stream(tokenizer, true);
  std::string out;
  for (const TokenId id : ids) out += stream.push(id);
  return out + stream.finish();
}

/// A text over a vocabulary that is known to be good.
void check_text(const Built& built, std::string_view text, bool parse_special) {
  const std::vector<TokenId> ids = built.tokenizer->encode(text, {false, parse_special});
  std::string bytes;
  for (const TokenId id : ids) bytes += built.tokenizer->piece(id, true);
  const std::string whole = built.tokenizer->decode(ids, true), stream = streamed(*built.tokenizer, ids);
  if (built.byte_level) {
    require(bytes == text);
    require(stream == whole);
    return;
  }
  // The space that SPM puts first and after each special token, and the mark itself, don't come back.
  require(stream.size() == whole.size() || (built.space_first && stream.size() == whole.size() + 1));
  if (text.find(kMark) == std::string_view::npos && text.find('<') == std::string_view::npos)
    require(bytes == (built.space_first && !text.empty() ? " " + std::string(text) : std::string(text)));
}

std::string_view take_line(std::string_view& rest, char border) {
  const size_t end = rest.find(border);
  const std::string_view line = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return line;
}

/// A vocabulary from the input: tokens and merges up to 0xFF and 0xFE bytes, then a text.
void check_vocabulary(uint8_t kind, std::string_view input) {
  VocabSource source;
  std::vector<std::string> merges;
  source.model = kind % 3 == 0 ? "llama" : kind % 3 == 1 ? "gpt2" : "gemma4";
  source.pre = kind % 2 == 0 ? "llama3" : "deepseek-llm";
  source.merges = &merges;
  source.model_name = "phi-3";
  std::string_view vocabulary = take_line(input, '\xFE');
  while (!vocabulary.empty() && source.tokens.size() < 200) {
    const std::string line(take_line(vocabulary, '\xFF'));
    if (!line.empty() && line[0] == '\x01') {
      merges.push_back(line.substr(1));
      continue;
    }
    source.types.push_back(line.empty() ? 1 : line.back() % 8);
    source.scores.push_back(line.empty() ? 0.0f : static_cast<float>(line[0]) / 4);
    source.ids.insert_or_assign(line.size() % 2 == 0 ? "bos" : "eot", static_cast<int64_t>(line.size()));
    source.tokens.push_back(line);
  }
  try {
    const GgufTokenizer tokenizer(std::move(source));
    for (const bool parse_special : {false, true}) {
      const std::vector<TokenId> ids = tokenizer.encode(input, {true, parse_special});
      require(ids.size() <= input.size() * 6 + 2);
      tokenizer.decode(ids, true);
      streamed(tokenizer, ids);
    }
  } catch (const Error&) {
    // A wrong vocabulary is an error; anything else would have ended the process.
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (data[0] >= 0xC0) {
    check_vocabulary(data[1], input);
  } else {
    check_text(built_in()[data[0] % built_in().size()], input, data[1] % 2 != 0);
  }
  return 0;
}
