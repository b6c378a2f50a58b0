// Ids against the ones that stock llama.cpp gives.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file.h"
#include "tokenizer_fixture.h"

namespace moetier::test {
namespace {

using Ids = std::vector<TokenId>;

nlohmann::json cases() {
  return nlohmann::json::parse(read_file(data_path("cases.json")));
}

class CommittedVocabulary : public testing::TestWithParam<const char*> {};

TEST_P(CommittedVocabulary, GivesTheReferenceIds) {
  const auto tokenizer = load_fixture(std::string(GetParam()) + ".gguf");
  const nlohmann::json all = cases()["vocabularies"][GetParam()];
  ASSERT_GE(all.size(), 90u);
  for (const auto& one : all) {
    const auto text = one[0].get<std::string>();
    const EncodeOptions options{one[1].get<bool>(), one[2].get<bool>()};
    EXPECT_EQ(tokenizer->encode(text, options), one[3].get<Ids>())
        << testing::PrintToString(text) << " add_special " << options.add_special << " parse_special "
        << options.parse_special;
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, CommittedVocabulary, testing::Values("fairytale", "mini-spm", "mini-gemma4"));

/// Tokens: 256 bytes, then all pairs of them; merges in a fixed scrambled order. Two bytes of one word nearly always
/// merge in some place, so a border between words in the wrong place shows. Defined by pair_vocabulary() in
/// make_cases.py.
VocabDraft pair_draft(const std::string& pre) {
  VocabDraft draft;
  draft.source.model = "gpt2";
  draft.source.pre = pre;
  const auto stand_in = [](uint32_t byte) { return ByteAlphabet::get().stand_in(static_cast<uint8_t>(byte)); };
  for (uint32_t byte = 0; byte < 256; ++byte) draft.add(stand_in(byte));
  for (uint32_t pair = 0; pair < 65536; ++pair) draft.add(stand_in(pair >> 8) + stand_in(pair & 255));
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint32_t pair = (40503 * i + 12345) % 65536;
    draft.merges.push_back(stand_in(pair >> 8) + " " + stand_in(pair & 255));
  }
  return draft;
}

TEST(TokenizerReference, EveryPretokenizerCutsAsTheReference) {
  const nlohmann::json all = cases()["pretokenizers"];
  const auto texts = all["texts"].get<std::vector<std::string>>();
  ASSERT_EQ(all["ids"].size(), 15u);
  for (const auto& [pre, expected] : all["ids"].items()) {
    ASSERT_EQ(expected.size(), texts.size());
    const auto tokenizer = pair_draft(pre).build();
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(tokenizer->encode(texts[i], {false, false}), expected[i].get<Ids>())
          << pre << ": " << testing::PrintToString(texts[i]);
    }
  }
}

std::string shared_folder() {
  const char* given = std::getenv("MOETIER_SHARED");
  return given != nullptr ? given : std::string(MOETIER_SOURCE_DIR) + "/../shared";
}

std::vector<std::string> split_cases(const std::string& text) {
  const std::string border = "\n__ggml_vocab_test__\n";
  std::vector<std::string> out;
  for (size_t at = 0;;) {
    const size_t end = text.find(border, at);
    if (end == std::string::npos) {
      if (at < text.size()) out.push_back(text.substr(at));
      break;
    }
    out.push_back(text.substr(at, end - at));
    at = end + border.size();
  }
  return out;
}

std::vector<Ids> id_lines(const std::string& text) {
  std::vector<Ids> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    Ids ids;
    std::istringstream words(line);
    for (TokenId id; words >> id;) ids.push_back(id);
    out.push_back(ids);
  }
  return out;
}

TEST(TokenizerReference, RealVocabulariesGiveTheReferenceIds) {
  const std::filesystem::path folder = shared_folder() + "/vocab";
  if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << "no real vocabularies: " << folder << " is not there";
  int vocabularies = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string path = entry.path().string();
    if (entry.path().extension() != ".gguf" || !std::filesystem::exists(path + ".inp")) continue;
    ++vocabularies;
    const GgufFile file = GgufFile::open(path);
    const auto tokenizer = Tokenizer::load(file);
    const auto texts = split_cases(read_file(path + ".inp"));
    const auto expected = id_lines(read_file(path + ".out"));
    ASSERT_GE(texts.size(), 40u) << path;
    ASSERT_LE(texts.size(), expected.size()) << path;
    for (size_t i = 0; i < texts.size(); ++i) {
      const Ids ids = tokenizer->encode(texts[i], {false, false});
      EXPECT_EQ(ids, expected[i]) << path << " case " << i << ": " << testing::PrintToString(texts[i]);
      EXPECT_EQ(tokenizer->decode(ids), texts[i]) << path << " case " << i;
    }
  }
  EXPECT_GE(vocabularies, 1);
}

}  // namespace
}  // namespace moetier::test
