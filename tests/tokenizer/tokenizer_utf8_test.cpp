#include <gtest/gtest.h>

#include <random>

#include "tokenizer/unicode_additions.h"
#include "tokenizer/utf8.h"

namespace moetier::test {
namespace {

std::string encoded(char32_t code) {
  std::string out;
  append_utf8(out, code);
  return out;
}

std::string cleaned(std::string_view bytes) {
  std::string out, pending;
  append_whole_utf8(out, pending, bytes);
  finish_utf8(out, pending);
  return out;
}

TEST(Utf8, EveryCodePointSurvives) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    const std::string bytes = encoded(code);
    const Utf8Char read = utf8_at(bytes, 0);
    ASSERT_EQ(read.kind, Utf8Char::Kind::valid) << static_cast<uint32_t>(code);
    ASSERT_EQ(read.code, code);
    ASSERT_EQ(read.bytes, bytes.size());
    for (size_t cut = 1; cut < bytes.size(); ++cut)
      ASSERT_EQ(utf8_at(bytes.substr(0, cut), 0).kind, Utf8Char::Kind::truncated) << static_cast<uint32_t>(code);
  }
}

TEST(Utf8, SurrogatesOverlongAndTooLargeAreInvalid) {
  for (const char* bytes : {"\xED\xA0\x80", "\xED\xBF\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF",
                            "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\x80", "\xBF"}) {
    const Utf8Char read = utf8_at(bytes, 0);
    EXPECT_EQ(read.kind, Utf8Char::Kind::invalid) << testing::PrintToString(bytes);
    EXPECT_EQ(read.bytes, 1u) << testing::PrintToString(bytes);
  }
}

TEST(Utf8, OneReplacementPerLongestBeginningOfACharacter) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(cleaned("a\xE2\x82z"), "a" + r + "z");
  EXPECT_EQ(cleaned("\xF0\x9F\x98"), r);
  EXPECT_EQ(cleaned("\xE2\x82\xE2\x82\xAC"), r + "\xE2\x82\xAC");
  EXPECT_EQ(cleaned("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(cleaned("\xC3\xA4"), "\xC3\xA4");
  EXPECT_EQ(cleaned("\xFF\xFF"), r + r);
}

TEST(Utf8, CuttingTheBytesAnywhereChangesNothing) {
  std::mt19937 random(11);
  const std::string alphabet = "a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80\xED\xFF";
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (size_t i = random() % 12; i > 0; --i) bytes += alphabet[random() % alphabet.size()];
    std::string out, pending;
    for (size_t at = 0; at < bytes.size();) {
      const size_t length = 1 + random() % 3;
      append_whole_utf8(out, pending, std::string_view(bytes).substr(at, length));
      ASSERT_LE(pending.size(), 3u);
      at += length;
    }
    finish_utf8(out, pending);
    ASSERT_EQ(out, cleaned(bytes)) << testing::PrintToString(bytes);
  }
}

TEST(UnicodeAdditions, StandInsAreOlderAndAsLong) {
  int replaced = 0;
  for (char32_t code = 0x80; code <= 0x10FFFF; ++code) {
    const char32_t old = older_stand_in(code);
    if (old == code) continue;
    ++replaced;
    ASSERT_EQ(encoded(old).size(), encoded(code).size()) << static_cast<uint32_t>(code);
    ASSERT_EQ(older_stand_in(old), old) << static_cast<uint32_t>(code);
  }
  // Unicode 15.0 added 4489 characters and 15.1 627; 7 of them are format characters.
  EXPECT_EQ(replaced, 4489 + 627 - 7);
  EXPECT_NE(older_stand_in(0x1FA77), 0x1FA77u);  // pink heart, 15.0
  EXPECT_EQ(older_stand_in(0x1F600), 0x1F600u);
}

}  // namespace
}  // namespace moetier::test
