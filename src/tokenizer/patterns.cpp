#include <array>
#include <string>
#include <utility>

#include "base/error.h"
#include "tokenizer/pretokenizer.h"

namespace moetier {

namespace {

// Each pattern matches what the published one of architectures.md 5.8 matches as stock llama.cpp runs it. There white
// space belongs to `\s` and to no range, so the ranges below leave it out. Where a pattern has a lookahead inside a
// repeated group, which makes an engine remember every character of a long word, one class stands for it: `[^\P{L}a-z]`
// is any letter but a-z.

// English contractions, in both cases.
#define CONTRACTION R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))"
// The common tail: a run of white space gives its last character to the word that follows.
#define SPACES R"(\s*[\r\n]+|\s+(?!\S)|\s+)"

constexpr const char* kGpt2Words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";

constexpr const char* kLlama3 = CONTRACTION R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" SPACES;

constexpr const char* kQwen2 = CONTRACTION R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" SPACES;

constexpr const char* kQwen35 =
    CONTRACTION R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" SPACES;

constexpr const char* kGpt4o = R"([^\r\n\p{L}\p{N}]?[^\P{L}a-z]*[^\P{L}A-Z]+)" CONTRACTION
                               "?"
                               R"(|[^\r\n\p{L}\p{N}]?[^\P{L}a-z]+[^\P{L}A-Z]*)" CONTRACTION
                               "?"
                               R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" SPACES;

constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[^\P{L}a-z]*[^\P{L}A-Z]+|[^\r\n\p{L}\p{N}]?[^\P{L}a-z]+[^\P{L}A-Z]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" SPACES;

constexpr const char* kBailing =
    R"('(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]|\s+(?!\S)|\s+)";

constexpr const char* kDeepseek3Words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)" SPACES;

using Range = std::pair<uint32_t, uint32_t>;

// The cased letters of the scripts that DeepSeek's first models knew.
constexpr Range kCasedLetters[] = {
    {'A', 'Z'},         {'a', 'z'},         {0xB5, 0xB5},       {0xC0, 0xD6},       {0xD8, 0xF6},
    {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},     {0x295, 0x2AF},     {0x370, 0x373},
    {0x376, 0x377},     {0x37B, 0x37D},     {0x37F, 0x37F},     {0x386, 0x386},     {0x388, 0x38A},
    {0x38C, 0x38C},     {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},     {0x48A, 0x52F},
    {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},   {0x1C90, 0x1CBA},
    {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},   {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},
    {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},   {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},
    {0x1F5B, 0x1F5B},   {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},   {0x1FB6, 0x1FBC},
    {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},   {0x1FD6, 0x1FDB},
    {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},   {0x2102, 0x2102},   {0x2107, 0x2107},
    {0x210A, 0x2113},   {0x2115, 0x2115},   {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},
    {0x2128, 0x2128},   {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},   {0x213C, 0x213F},
    {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2184},   {0x2C00, 0x2C7B},   {0x2C7E, 0x2CE4},
    {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF3},   {0xA640, 0xA66D},   {0xA680, 0xA69B},   {0xA722, 0xA76F},
    {0xA771, 0xA787},   {0xA78B, 0xA78E},   {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},
    {0xFF21, 0xFF3A},   {0xFF41, 0xFF5A},   {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB},
    {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943}};

constexpr Range kAsciiAndWidePunctuation[] = {{'!', '/'},       {':', '~'},       {0xFF01, 0xFF0F},
                                              {0xFF1A, 0xFF5E}, {0x2018, 0x201F}, {0x3001, 0x3002}};
// U+0800 to U+9FA5 and Hangul, less the white space among them.
constexpr Range kEastAsian[] = {{0x800, 0x167F},  {0x1681, 0x1FFF}, {0x200B, 0x2027}, {0x202A, 0x202E},
                                {0x2030, 0x205E}, {0x2060, 0x2FFF}, {0x3001, 0x9FA5}, {0xAC00, 0xD7FF}};
constexpr Range kHanAndKana[] = {{0x4E00, 0x9FA5}, {0x3040, 0x309F}, {0x30A0, 0x30FF}};

// Ideographs by block, as kimi-k2's splitter knows them.
constexpr Range kHan[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                          {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
                          {0x2B820, 0x2CEAF}, {0x2CEB0, 0x2EBEF}, {0x2F800, 0x2FA1F}};

/// The inside of a class.
template <size_t N>
std::string class_of(const Range (&ranges)[N]) {
  std::string out;
  for (const Range& range : ranges) out += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", range.first, range.second);
  return out;
}

template <size_t N>
std::string one_or_more(const Range (&ranges)[N]) {
  return fmt::format("[{}]+", class_of(ranges));
}

std::string optional_space(const std::string& pattern) {
  return fmt::format("\\s?{}", pattern);
}

/// Runs of ideographs, and words of other letters whatever their case.
std::string kimi_k2_pattern() {
  std::string out = one_or_more(kHan);
  out.append(R"(|[^\r\n\p{L}\p{N}]?[^\P{L})").append(class_of(kHan)).append("]+" CONTRACTION "?");
  return out.append(R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" SPACES);
}

struct NamedPretokenizer {
  std::string_view name;
  PretokenizerInfo info;
};

constexpr PretokenizerInfo keep(PatternSet set) {
  return {.set = set, .clean_spaces = false};
}
constexpr PretokenizerInfo clean(PatternSet set) {
  return {.set = set};
}
constexpr PretokenizerInfo kLlama3Info = {.set = PatternSet::llama3, .ignore_merges = true, .add_bos = true};
constexpr PretokenizerInfo kGlm4Info = {.set = PatternSet::llama3, .no_default_bos = true};
constexpr PretokenizerInfo kTekkenInfo = {
    .set = PatternSet::tekken, .clean_spaces = false, .ignore_merges = true, .add_bos = true};
constexpr PretokenizerInfo kGemma4Info = {.set = PatternSet::gemma4, .clean_spaces = false, .raw_utf8 = true};

constexpr auto kPretokenizers = std::to_array<NamedPretokenizer>({
    {"default", clean(PatternSet::fallback)},
    {"llama3", kLlama3Info},
    {"llama-v3", kLlama3Info},
    {"llama-bpe", kLlama3Info},
    {"falcon3", kLlama3Info},
    {"falcon-h1", kLlama3Info},
    {"pixtral", kLlama3Info},
    {"midm-2.0", kLlama3Info},
    {"lfm2", kLlama3Info},
    {"jina-v5-nano", kLlama3Info},
    {"dbrx", clean(PatternSet::llama3)},
    {"smaug-bpe", clean(PatternSet::llama3)},
    {"glm4", kGlm4Info},
    {"chatglm-bpe", kGlm4Info},
    {"qwen2", keep(PatternSet::qwen2)},
    {"deepseek-r1-qwen", keep(PatternSet::qwen2)},
    {"kormo", keep(PatternSet::qwen2)},
    {"f2llmv2", keep(PatternSet::qwen2)},
    {"hunyuan", keep(PatternSet::qwen2)},
    {"solar-open", keep(PatternSet::qwen2)},
    {"grok-2", keep(PatternSet::qwen2)},
    {"megrez", clean(PatternSet::qwen2)},
    {"stablelm2", clean(PatternSet::qwen2)},
    {"qwen35", keep(PatternSet::qwen35)},
    {"gpt-4o", keep(PatternSet::gpt4o)},
    {"llama4", keep(PatternSet::gpt4o)},
    {"kanana2", keep(PatternSet::gpt4o)},
    {"talkie", keep(PatternSet::gpt4o)},
    {"minimax-m2", keep(PatternSet::gpt4o)},
    {"deepseek-llm", keep(PatternSet::deepseek_llm)},
    {"deepseek-coder", keep(PatternSet::deepseek_coder)},
    {"deepseek-v3", keep(PatternSet::deepseek3)},
    {"hunyuan-dense", keep(PatternSet::deepseek3)},
    {"joyai-llm", keep(PatternSet::deepseek3)},
    {"hy_v4", keep(PatternSet::deepseek3)},
    {"olmo", clean(PatternSet::gpt2)},
    {"gpt-2", clean(PatternSet::gpt2)},
    {"phi-2", clean(PatternSet::gpt2)},
    {"mpt", clean(PatternSet::gpt2)},
    {"jais", clean(PatternSet::gpt2)},
    {"gigachat", clean(PatternSet::gpt2)},
    {"mellum", clean(PatternSet::gpt2)},
    {"modern-bert", clean(PatternSet::gpt2)},
    {"exaone4", clean(PatternSet::gpt2)},
    {"a.x-4.0", clean(PatternSet::gpt2)},
    {"trillion", keep(PatternSet::gpt2)},
    {"granite-docling", keep(PatternSet::gpt2)},
    {"starcoder", clean(PatternSet::starcoder)},
    {"refact", clean(PatternSet::starcoder)},
    {"codeshell", clean(PatternSet::starcoder)},
    {"exaone", clean(PatternSet::starcoder)},
    {"minerva-7b", clean(PatternSet::starcoder)},
    {"mellum2", clean(PatternSet::starcoder)},
    {"command-r", keep(PatternSet::starcoder)},
    {"smollm", keep(PatternSet::starcoder)},
    {"bailingmoe", keep(PatternSet::bailing)},
    {"bailingmoe2", keep(PatternSet::bailing)},
    {"llada-moe", keep(PatternSet::bailing)},
    {"tekken", kTekkenInfo},
    {"kimi-k2", keep(PatternSet::kimi_k2)},
    {"gemma4", kGemma4Info},
    {"granite-embed-multi-311m", kGemma4Info},
});

}  // namespace

std::vector<std::string> patterns_of(PatternSet set) {
  switch (set) {
    case PatternSet::fallback:
      return {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Words, R"(\p{N}+)", "[0-9][0-9][0-9]"};
    case PatternSet::gpt2:
      return {kGpt2Words};
    case PatternSet::starcoder:
      return {R"(\p{N})", kGpt2Words};
    case PatternSet::llama3:
      return {kLlama3};
    case PatternSet::qwen2:
      return {kQwen2};
    case PatternSet::qwen35:
      return {kQwen35};
    case PatternSet::gpt4o:
      return {kGpt4o};
    // `\s+\z` looks only at the start of a run, or a long run in the middle of a piece would be tried from each of its
    // characters.
    case PatternSet::deepseek_llm:
      return {R"([\r\n])",
              optional_space(one_or_more(kCasedLetters)),
              optional_space(one_or_more(kAsciiAndWidePunctuation)),
              R"((?<!\s)\s+\z)",
              one_or_more(kEastAsian),
              R"(\p{N}+)"};
    case PatternSet::deepseek_coder:
      return {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", one_or_more(kEastAsian), R"(\p{N})"};
    case PatternSet::deepseek3:
      return {R"(\p{N}{1,3})", one_or_more(kHanAndKana), kDeepseek3Words};
    case PatternSet::bailing:
      return {kBailing};
    case PatternSet::tekken:
      return {kTekken};
    case PatternSet::kimi_k2:
      return {kimi_k2_pattern()};
    case PatternSet::gemma4:
      return {R"([^\n]+|[\n]+)"};
  }
  return {};
}

const PretokenizerInfo& find_pretokenizer(std::string_view name, std::string_view file) {
  if (name.empty()) name = "default";
  std::string known;
  for (const NamedPretokenizer& entry : kPretokenizers) {
    if (entry.name == name) return entry.info;
    known += known.empty() ? "" : ", ";
    known += entry.name;
  }
  fail("{}: the pre-tokenizer '{}' (tokenizer.ggml.pre) is not supported; known are {}", file, name, known);
}

}  // namespace moetier
