// Special tokens: how they are cut out, which end a generation, what prints.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tokenizer_fixture.h"

namespace moetier::test {
namespace {

using Ids = std::vector<TokenId>;

TEST(SpecialTokens, TheLongestWinsWhateverItsPlace) {
  VocabDraft draft = byte_level_draft();
  const TokenId early = draft.add("<ab", 3);
  const TokenId longer = draft.add("b>>x", 3);
  const auto tokenizer = draft.build();
  // "<ab" begins first, but the longer token takes its b.
  EXPECT_EQ(tokenizer->encode("<ab>>x", {false, true}), (Ids{tokenizer->find("<"), tokenizer->find("a"), longer}));
  EXPECT_EQ(tokenizer->encode("<ab<ab", {false, true}), (Ids{early, early}));
}

TEST(SpecialTokens, UserDefinedOnesAreCutOutEvenUnparsed) {
  VocabDraft draft = byte_level_draft();
  const TokenId control = draft.add("<c>", 3);
  const TokenId unknown = draft.add("<u>", 2);
  const TokenId defined = draft.add("<d>", 4);
  const auto tokenizer = draft.build();
  EXPECT_EQ(tokenizer->encode("<c><d><u>", {false, true}), (Ids{control, defined, unknown}));
  const Ids plain = tokenizer->encode("<c><d><u>", {false, false});
  EXPECT_EQ(plain.size(), 7u);
  EXPECT_EQ(plain[3], defined);
  EXPECT_EQ(raw_bytes(*tokenizer, plain), "<c><d><u>");
}

TEST(SpecialTokens, BosAndEosStandWhereTheFileWantsThem) {
  VocabDraft draft = byte_level_draft();
  const TokenId bos = draft.add("<bos>", 3), eos = draft.add("<end>", 3);
  draft.source.ids = {{"bos", bos}, {"eos", eos}};
  EXPECT_EQ(draft.build()->encode("a"), (Ids{draft.build()->find("a")}));
  draft.source.add_bos = true;
  draft.source.add_eos = true;
  const auto tokenizer = draft.build();
  const TokenId a = tokenizer->find("a");
  EXPECT_EQ(tokenizer->encode("a"), (Ids{bos, a, eos}));
  EXPECT_EQ(tokenizer->encode("", {true, true}), (Ids{bos, eos}));
  EXPECT_EQ(tokenizer->encode("a", {false, true}), (Ids{a}));
  EXPECT_EQ(tokenizer->encode("<bos>a", {true, true}), (Ids{bos, bos, a, eos}));  // written twice means twice
  EXPECT_TRUE(tokenizer->add_bos());
  EXPECT_EQ(tokenizer->bos(), bos);
  EXPECT_EQ(tokenizer->eos(), eos);
}

TEST(SpecialTokens, SpmPutsASpaceFirstAndAfterSpecialTokens) {
  const auto tokenizer = spm_draft().build();
  const TokenId mark_ab = tokenizer->find(
      "\xE2\x96\x81"
      "ab");
  const TokenId c = tokenizer->find("c"), mark = tokenizer->find("\xE2\x96\x81");
  EXPECT_EQ(tokenizer->encode("ab</s>ab c"), (Ids{1, mark_ab, 2, mark_ab, mark, c}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("ab c")), "ab c");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("  ab c ", {false, true})), "  ab c ");
  VocabDraft without = spm_draft();
  without.source.add_space_prefix = false;
  EXPECT_EQ(without.build()->encode("ab", {false, true}), (Ids{without.build()->find("ab")}));
  EXPECT_EQ(without.build()->decode(without.build()->encode(" ab")), " ab");
}

TEST(SpecialTokens, SpmMergesTheBestScoreThenTheLeftmost) {
  VocabDraft draft = spm_draft();
  draft.source.add_space_prefix = false;
  const auto tokenizer = draft.build();
  // "ab" (-1) comes before "bc" (-2), and both before "abc" (-4).
  EXPECT_EQ(tokenizer->encode("abc", {false, true}), (Ids{tokenizer->find("abc")}));
  EXPECT_EQ(tokenizer->encode("bcbc", {false, true}), (Ids{tokenizer->find("bc"), tokenizer->find("bc")}));
  EXPECT_EQ(tokenizer->encode("\xC3\xA9\xFF", {false, true}), (Ids{3 + 0xC3, 3 + 0xA9, 3 + 0xFF}));
}

TEST(SpecialTokens, EndOfGenerationIsKnownByTextAndById) {
  VocabDraft draft = byte_level_draft();
  const TokenId im_end = draft.add("<|im_end|>", 4);
  const TokenId eot = draft.add("<turn done>", 3);
  const TokenId eos = draft.add("<finis>", 3);
  const TokenId pad = draft.add("<|fim_pad|>", 3);
  const TokenId start = draft.add("<|im_start|>", 3);
  draft.source.ids = {{"eot", eot}, {"eos", eos}};
  const auto tokenizer = draft.build();
  for (const TokenId id : {im_end, eot, eos, pad})
    EXPECT_TRUE(tokenizer->is_end_of_generation(id)) << tokenizer->text(id);
  EXPECT_FALSE(tokenizer->is_end_of_generation(start));
  EXPECT_FALSE(tokenizer->is_end_of_generation(-1));
  EXPECT_FALSE(tokenizer->is_end_of_generation(tokenizer->vocab_size()));
  EXPECT_TRUE(tokenizer->is_control(im_end));  // though the file calls it user-defined
  EXPECT_EQ(tokenizer->piece(im_end), "");
  EXPECT_EQ(tokenizer->piece(im_end, true), "<|im_end|>");
}

TEST(SpecialTokens, HarmonyKeepsItsFramesVisible) {
  VocabDraft draft = byte_level_draft("gpt-4o");
  const TokenId channel = draft.add("<|channel|>", 3), end = draft.add("<|end|>", 3);
  const TokenId returns = draft.add("<|return|>", 3), call = draft.add("<|call|>", 3);
  const auto tokenizer = draft.build();
  EXPECT_EQ(tokenizer->piece(channel), "<|channel|>");
  EXPECT_FALSE(tokenizer->is_control(channel));
  EXPECT_FALSE(tokenizer->is_end_of_generation(end));
  EXPECT_EQ(tokenizer->piece(end), "<|end|>");
  EXPECT_TRUE(tokenizer->is_end_of_generation(returns));
  EXPECT_TRUE(tokenizer->is_end_of_generation(call));

  VocabDraft other = byte_level_draft();
  const TokenId plain_end = other.add("<|end|>", 3);
  EXPECT_TRUE(other.build()->is_end_of_generation(plain_end));
}

TEST(SpecialTokens, Gemma4DoesNotEndAtAnHtmlTag) {
  VocabDraft draft = byte_level_draft("gemma4");
  const TokenId response = draft.add("<|tool_response>", 3), tag = draft.add("</s>", 3);
  const auto tokenizer = draft.build();
  EXPECT_TRUE(tokenizer->is_end_of_generation(response));
  EXPECT_FALSE(tokenizer->is_end_of_generation(tag));
  EXPECT_FALSE(tokenizer->is_control(tag));
}

TEST(SpecialTokens, Phi3TokensSwallowTheSpaceBehindThem) {
  VocabDraft draft = byte_level_draft();
  const TokenId user = draft.add("<|user|>", 3), text_end = draft.add("<|endoftext|>", 3);
  const std::string text = "<|user|> \n x<|endoftext|> x";
  draft.source.model_name = "Phi-3-mini";
  const auto phi = draft.build();
  EXPECT_EQ(raw_bytes(*phi, phi->encode(text)), "<|user|>x<|endoftext|> x");
  EXPECT_EQ(phi->encode("<|user|> "), (Ids{user}));
  EXPECT_EQ(phi->encode(text)[2], text_end);
  draft.source.model_name = "other";
  const auto other = draft.build();
  EXPECT_EQ(raw_bytes(*other, other->encode(text)), text);
}

TEST(SpecialTokens, SuppressedOnesAreListedAndOddIdsIgnored) {
  VocabDraft draft = byte_level_draft();
  draft.source.suppressed = {5, 7, -1, 100000};
  const auto tokenizer = draft.build();
  EXPECT_EQ(Ids(tokenizer->suppressed().begin(), tokenizer->suppressed().end()), (Ids{5, 7}));
}

TEST(Pieces, FollowTheTokenType) {
  VocabDraft draft = spm_draft();
  const TokenId unused = draft.add("spare", 5), undefined = draft.add("odd", 0), defined = draft.add("<d>", 4);
  const auto tokenizer = draft.build();
  EXPECT_EQ(tokenizer->piece(0), "");
  EXPECT_EQ(tokenizer->piece(0, true), "<unk>");
  EXPECT_EQ(tokenizer->piece(1, true), "<s>");
  EXPECT_EQ(tokenizer->piece(3 + 0x41), "A");
  EXPECT_EQ(tokenizer->piece(unused, true), "");
  EXPECT_EQ(tokenizer->piece(undefined), "");
  EXPECT_EQ(tokenizer->piece(defined), "<d>");
  EXPECT_EQ(tokenizer->piece(tokenizer->find("\xE2\x96\x81"
                                             "ab")),
            " ab");
  EXPECT_THROW(tokenizer->piece(-1), Error);
  EXPECT_THROW(tokenizer->piece(tokenizer->vocab_size()), Error);
  EXPECT_THROW(tokenizer->text(tokenizer->vocab_size()), Error);
}

TEST(Pieces, CleanUpDropsSpacesBeforePunctuation) {
  EXPECT_EQ(clean_up_spaces("Hello , world ! Why ? So . "), "Hello, world! Why? So. ");
  EXPECT_EQ(clean_up_spaces("I 'm it 's we 're you 've ' x ' he 'd"), "I'm it's we're you've'x'he 'd");
  EXPECT_EQ(clean_up_spaces(" "), " ");
  EXPECT_EQ(clean_up_spaces("a '"), "a '");
  EXPECT_TRUE(byte_level_draft("llama3").build()->clean_spaces());
  EXPECT_FALSE(byte_level_draft("qwen2").build()->clean_spaces());
}

}  // namespace
}  // namespace moetier::test
