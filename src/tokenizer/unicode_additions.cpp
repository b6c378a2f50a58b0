#include "tokenizer/unicode_additions.h"

#include <algorithm>
#include <iterator>

namespace moetier {

namespace {

// One old character per category. Those below U+10000 take three bytes of UTF-8, as all above U+07FF do; the others
// four.
constexpr char32_t kMark3 = 0x0901, kSpacingMark3 = 0x0903, kSymbol3 = 0x2FF0;
constexpr char32_t kLetter = 0x10450, kLowerCase = 0x1D41A, kModifierLetter = 0x16B40, kHan = 0x20000;
constexpr char32_t kMark = 0x10A01, kSpacingMark = 0x11000, kDigit = 0x1D7CE, kNumber = 0x10107;
constexpr char32_t kPunctuation = 0x10100, kSymbol = 0x1F600;

struct Added {
  char32_t first, last, stand_in;
};

// Derived from the Unicode Character Database: what has a category in 15.1 and none in 14.0 (format characters are left
// out: no pattern tells them from unassigned ones).
constexpr Added kAdded[] = {
    {0x0CF3, 0x0CF3, kSpacingMark3},  {0x0ECE, 0x0ECE, kMark3},         {0x2FFC, 0x2FFF, kSymbol3},
    {0x31EF, 0x31EF, kSymbol3},       {0x10EFD, 0x10EFF, kMark},        {0x1123F, 0x11240, kLetter},
    {0x11241, 0x11241, kMark},        {0x11B00, 0x11B09, kPunctuation}, {0x11F00, 0x11F01, kMark},
    {0x11F02, 0x11F02, kLetter},      {0x11F03, 0x11F03, kSpacingMark}, {0x11F04, 0x11F10, kLetter},
    {0x11F12, 0x11F33, kLetter},      {0x11F34, 0x11F35, kSpacingMark}, {0x11F36, 0x11F3A, kMark},
    {0x11F3E, 0x11F3F, kSpacingMark}, {0x11F40, 0x11F40, kMark},        {0x11F41, 0x11F41, kSpacingMark},
    {0x11F42, 0x11F42, kMark},        {0x11F43, 0x11F4F, kPunctuation}, {0x11F50, 0x11F59, kDigit},
    {0x1342F, 0x1342F, kLetter},      {0x13440, 0x13440, kMark},        {0x13441, 0x13446, kLetter},
    {0x13447, 0x13455, kMark},        {0x1B132, 0x1B132, kLetter},      {0x1B155, 0x1B155, kLetter},
    {0x1D2C0, 0x1D2D3, kNumber},      {0x1DF25, 0x1DF2A, kLowerCase},   {0x1E030, 0x1E06D, kModifierLetter},
    {0x1E08F, 0x1E08F, kMark},        {0x1E4D0, 0x1E4EA, kLetter},      {0x1E4EB, 0x1E4EB, kModifierLetter},
    {0x1E4EC, 0x1E4EF, kMark},        {0x1E4F0, 0x1E4F9, kDigit},       {0x1F6DC, 0x1F6DC, kSymbol},
    {0x1F774, 0x1F776, kSymbol},      {0x1F77B, 0x1F77F, kSymbol},      {0x1F7D9, 0x1F7D9, kSymbol},
    {0x1FA75, 0x1FA77, kSymbol},      {0x1FA87, 0x1FA88, kSymbol},      {0x1FAAD, 0x1FAAF, kSymbol},
    {0x1FABB, 0x1FABD, kSymbol},      {0x1FABF, 0x1FABF, kSymbol},      {0x1FACE, 0x1FACF, kSymbol},
    {0x1FADA, 0x1FADB, kSymbol},      {0x1FAE8, 0x1FAE8, kSymbol},      {0x1FAF7, 0x1FAF8, kSymbol},
    {0x2B739, 0x2B739, kHan},         {0x2EBF0, 0x2EE5D, kLetter},      {0x31350, 0x323AF, kLetter}};

}  // namespace

char32_t older_stand_in(char32_t code) {
  if (code < kAdded[0].first) return code;
  const Added* found = std::partition_point(std::begin(kAdded), std::end(kAdded),
                                            [code](const Added& added) { return added.last < code; });
  return found != std::end(kAdded) && code >= found->first ? found->stand_in : code;
}

}  // namespace moetier
