// Vocabularies that are wrong: each its own error, none a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/error.h"
#include "gguf/writer.h"
#include "tokenizer_fixture.h"

namespace moetier::test {
namespace {

using testing::HasSubstr;

template <typename Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::failed);
    return error.what();
  }
  return "no error";
}

std::string build_error(const std::function<void(VocabDraft&)>& spoil, const VocabDraft& from = byte_level_draft()) {
  VocabDraft draft = from;
  draft.source.file = "bad.gguf";
  spoil(draft);
  const std::string error = error_of([&] { draft.build(); });
  EXPECT_THAT(error, HasSubstr("bad.gguf"));
  return error;
}

TEST(HostileVocabulary, EachFaultHasItsSentence) {
  EXPECT_THAT(build_error([](VocabDraft& d) { d.source.model = "wordpiece"; }), HasSubstr("'wordpiece'"));
  EXPECT_THAT(build_error([](VocabDraft& d) { d.source.model = ""; }), HasSubstr("no tokenizer.ggml.model"));
  const std::string unknown_pre = build_error([](VocabDraft& d) { d.source.pre = "novel-9"; });
  EXPECT_THAT(unknown_pre, HasSubstr("'novel-9'"));
  EXPECT_THAT(unknown_pre, HasSubstr("qwen35"));
  EXPECT_THAT(build_error([](VocabDraft& d) {
                d.source.tokens.clear();
                d.source.types.clear();
                d.source.scores.clear();
              }),
              HasSubstr("no tokens"));
  EXPECT_THAT(build_error([](VocabDraft& d) { d.source.tokens[7] = d.source.tokens[3]; }), HasSubstr("tokens 3 and 7"));
  EXPECT_THAT(build_error([](VocabDraft& d) {
                d.source.tokens[9] = "[EMPTY_5]";
                d.source.tokens[5] = "";
              }),
              HasSubstr("tokens 5 and 9"));
  EXPECT_THAT(build_error([](VocabDraft& d) { d.source.scores.pop_back(); }),
              HasSubstr("tokenizer.ggml.scores has 258 values for 259"));
  EXPECT_THAT(build_error([](VocabDraft& d) { d.source.types.push_back(1); }),
              HasSubstr("tokenizer.ggml.token_type has 260 values"));
  EXPECT_THAT(build_error([](VocabDraft& d) { d.merges.push_back("nospace"); }), HasSubstr("merge 3"));
  EXPECT_THAT(build_error([](VocabDraft& d) { d.merges[0] = ""; }), HasSubstr("merge 0"));
  EXPECT_THAT(build_error([](VocabDraft& d) { d.merges[1] = " x"; }), HasSubstr("merge 1"));
  EXPECT_THAT(build_error([](VocabDraft& d) { d.merges[1] = "x "; }), HasSubstr("merge 1"));
}

TEST(HostileVocabulary, MergesAreMandatoryForBpe) {
  VocabDraft draft = byte_level_draft();
  EXPECT_THAT(error_of([&] { GgufTokenizer{VocabSource(draft.source)}; }), HasSubstr("tokenizer.ggml.merges"));
}

TEST(HostileVocabulary, MergesOfUnknownPartsStillWork) {
  VocabDraft draft = byte_level_draft();
  // "qz" is no token, so a text that ends as "qz" falls apart again; "qzx" is one.
  draft.merges = {"q z", "qz x", "nothing like-this", "q z"};
  const TokenId whole = draft.add("qzx");
  const auto tokenizer = draft.build();
  EXPECT_EQ(tokenizer->encode("qzx"), (std::vector<TokenId>{whole}));
  EXPECT_EQ(tokenizer->encode("qz"), (std::vector<TokenId>{tokenizer->find("q"), tokenizer->find("z")}));
}

TEST(HostileVocabulary, IdsOutsideTheVocabularyCountAsAbsent) {
  VocabDraft draft = byte_level_draft("glm4");
  draft.source.ids = {{"bos", 259}, {"eos", -1}, {"eot", std::numeric_limits<int64_t>::max()}, {"fim_pad", 4000000000}};
  draft.source.add_bos = true;
  const auto tokenizer = draft.build();
  EXPECT_EQ(tokenizer->bos(), -1);
  EXPECT_EQ(tokenizer->eos(), 11);  // what the model falls back to
  EXPECT_EQ(tokenizer->encode("a").size(), 1u);
}

TEST(HostileVocabulary, AVocabularyOfOneTokenLoads) {
  VocabDraft draft;
  draft.source.model = "gpt2";
  draft.source.pre = "llama3";
  draft.add("a");
  const auto tokenizer = draft.build();
  EXPECT_EQ(tokenizer->encode("aba"), (std::vector<TokenId>{0, 0}));  // there is no way to write b
  EXPECT_EQ(tokenizer->bos(), -1);
  EXPECT_EQ(tokenizer->eos(), -1);
  draft.source.model = "llama";
  EXPECT_EQ(draft.build()->encode("ab"), (std::vector<TokenId>{0, 0, 0, 0, 0}));  // unknown (id 0) for each lost byte
}

TEST(HostileVocabulary, OddScoresAndTypesAreTamed) {
  VocabDraft draft = spm_draft();
  for (size_t i = 0; i < draft.source.scores.size(); ++i)
    draft.source.scores[i] = i % 3 == 0 ? std::numeric_limits<float>::quiet_NaN() : (i % 3 == 1 ? -INFINITY : INFINITY);
  draft.source.types[3] = 99;
  draft.source.types[4] = -5;
  draft.source.tokens[5] = "not a byte";
  const auto tokenizer = draft.build();
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("abc abc")), "abc abc");
  EXPECT_EQ(tokenizer->piece(3), "");
  EXPECT_EQ(tokenizer->piece(5), "not a byte");
}

TEST(HostileVocabulary, SpecialTokensMayNestAndOverlap) {
  VocabDraft draft = byte_level_draft();
  std::string text = "<";
  std::vector<TokenId> ids;  // ids[i] is written as i + 2 times <
  for (int i = 0; i < 200; ++i) ids.push_back(draft.add(text += '<', 3 + i % 2));
  const auto tokenizer = draft.build();
  const std::string run(1001, '<');
  EXPECT_EQ(tokenizer->encode(run), (std::vector<TokenId>{ids[199], ids[199], ids[199], ids[199], ids[195]}));
  EXPECT_EQ(raw_bytes(*tokenizer, tokenizer->encode(run, {false, false})), run);
}

class Files : public testing::Test {
 protected:
  static std::string load_error(const std::function<void(GgufWriter&)>& fill) {
    GgufWriter writer;
    writer.set("general.architecture", std::string("llama"));
    fill(writer);
    const std::string path = testing::TempDir() + "tokenizer_hostile.gguf";
    writer.write(path);
    return error_of([&] {
      const GgufFile file = GgufFile::open(path);
      Tokenizer::load(file);
    });
  }
};

TEST_F(Files, WithTheWrongKindsAreRefused) {
  EXPECT_THAT(load_error([](GgufWriter&) {}), HasSubstr("tokenizer.ggml.model"));
  EXPECT_THAT(load_error([](GgufWriter& w) { w.set("tokenizer.ggml.model", uint32_t{1}); }),
              HasSubstr("tokenizer.ggml.model"));
  const auto spm = [](GgufWriter& w) { w.set("tokenizer.ggml.model", std::string("llama")); };
  EXPECT_THAT(load_error([&](GgufWriter& w) { spm(w); }), HasSubstr("no tokens"));
  EXPECT_THAT(load_error([&](GgufWriter& w) {
                spm(w);
                w.set_ints("tokenizer.ggml.tokens", {1, 2});
              }),
              HasSubstr("tokenizer.ggml.tokens"));
  EXPECT_THAT(load_error([&](GgufWriter& w) {
                spm(w);
                w.set_strings("tokenizer.ggml.tokens", {"a", "b"});
                w.set_strings("tokenizer.ggml.scores", {"1", "2"});
              }),
              HasSubstr("tokenizer.ggml.scores"));
  EXPECT_THAT(load_error([&](GgufWriter& w) {
                spm(w);
                w.set_strings("tokenizer.ggml.tokens", {"a", "b"});
                w.set("tokenizer.ggml.bos_token_id", std::string("a"));
              }),
              HasSubstr("tokenizer.ggml.bos_token_id"));
}

TEST_F(Files, GoodOnesLoadWithTheirTemplate) {
  GgufWriter writer;
  writer.set("tokenizer.ggml.model", std::string("llama"));
  writer.set_strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "\xE2\x96\x81", "a"});
  writer.set_floats("tokenizer.ggml.scores", {0, 0, 0, -1, -2});
  writer.set_ints("tokenizer.ggml.token_type", {2, 3, 3, 1, 1});
  writer.set("tokenizer.ggml.add_eos_token", true);
  writer.set_ints("tokenizer.ggml.suppress_tokens", {2});
  writer.set("tokenizer.chat_template", std::string("{{ messages }}"));
  const std::string path = testing::TempDir() + "tokenizer_good.gguf";
  writer.write(path);
  std::unique_ptr<Tokenizer> tokenizer;
  {
    const GgufFile file = GgufFile::open(path);
    tokenizer = Tokenizer::load(file);
  }
  EXPECT_EQ(tokenizer->encode("a a"), (std::vector<TokenId>{1, 3, 4, 3, 4, 2}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a a")), "a a");
  EXPECT_EQ(tokenizer->chat_template(), "{{ messages }}");
  EXPECT_EQ(tokenizer->suppressed().size(), 1u);
}

}  // namespace
}  // namespace moetier::test
