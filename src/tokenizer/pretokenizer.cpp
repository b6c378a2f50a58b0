#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/pretokenizer.h"

#include <pcre2.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "tokenizer/unicode_additions.h"
#include "tokenizer/utf8.h"

namespace moetier {

namespace {

/// Unicode's White_Space, as the inside of a class. PCRE2's own `\s` holds U+180E as well.
constexpr std::string_view kWhiteSpace =
    R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

std::string expand_white_space(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's') {
        out += in_class ? std::string(kWhiteSpace) : fmt::format("[{}]", kWhiteSpace);
      } else if (escaped == 'S' && !in_class) {
        out += fmt::format("[^{}]", kWhiteSpace);
      } else {
        out += c;
        out += escaped;
      }
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

std::string pcre_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct Pretokenizer::Impl {
  struct Pattern {
    std::unique_ptr<pcre2_code, FreeCode> code;
    bool jit = false;
  };
  std::vector<Pattern> patterns;
};

Pretokenizer::Pretokenizer(PatternSet set) : impl_(std::make_unique<Impl>()) {
  for (const std::string& written : patterns_of(set)) {
    const std::string pattern = expand_white_space(written);
    int error = 0;
    PCRE2_SIZE offset = 0;
    Impl::Pattern compiled;
    compiled.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr));
    if (!compiled.code) fail("the pre-tokenizer pattern {} is wrong at {}: {}", pattern, offset, pcre_message(error));
    // Where executable memory is refused, PCRE2's interpreter gives the same answers more slowly.
    compiled.jit = pcre2_jit_compile(compiled.code.get(), PCRE2_JIT_COMPLETE) == 0;
    impl_->patterns.push_back(std::move(compiled));
  }
}

Pretokenizer::~Pretokenizer() = default;

namespace {

/// One pattern at work on pieces of a text.
class Cutter {
 public:
  Cutter(const pcre2_code* code, bool jit, pcre2_match_context* context)
      : code_(code), jit_(jit), context_(context), data_(pcre2_match_data_create(1, nullptr)) {
    if (!data_) fail("no memory for the pre-tokenizer");
  }

  /// Appends the matches inside `piece` (valid UTF-8) to `out`, and the stretches between them.
  void cut(std::string_view text, TextSpan piece, std::vector<TextSpan>& out) {
    const std::string_view subject = text.substr(piece.begin, piece.end - piece.begin);
    size_t at = 0;       // where to look for the next match
    size_t written = 0;  // up to where pieces are written
    const auto write = [&](size_t begin, size_t end) {
      if (begin < end)
        out.push_back({piece.begin + static_cast<uint32_t>(begin), piece.begin + static_cast<uint32_t>(end)});
    };
    while (at < subject.size() && match(subject, at)) {
      const PCRE2_SIZE* found = pcre2_get_ovector_pointer(data_.get());
      write(written, found[0]);
      write(found[0], found[1]);
      written = found[1];
      at = found[1];
    }
    write(written, subject.size());
  }

 private:
  bool match(std::string_view subject, size_t at) {
    const auto* bytes = reinterpret_cast<PCRE2_SPTR>(subject.data());
    int result = PCRE2_ERROR_JIT_STACKLIMIT;
    if (jit_) result = pcre2_jit_match(code_, bytes, subject.size(), at, PCRE2_NOTEMPTY, data_.get(), context_);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
      constexpr uint32_t options = PCRE2_NOTEMPTY | PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT;
      result = pcre2_match(code_, bytes, subject.size(), at, options, data_.get(), context_);
    }
    if (result == PCRE2_ERROR_NOMATCH) return false;
    if (result < 0) fail("the text can't be cut into words: {}", pcre_message(result));
    return true;
  }

  const pcre2_code* code_;
  bool jit_;
  pcre2_match_context* context_;
  std::unique_ptr<pcre2_match_data, FreeMatch> data_;
};

/// What the patterns are to look at.
struct Subject {
  std::string_view text;       ///< as given, or a copy of the same length in `replaced`
  std::string replaced;        ///< where younger characters gave way to older ones
  std::vector<TextSpan> runs;  ///< valid and invalid UTF-8 in turn
  bool first_is_valid = true;
};

void prepare(Subject& subject, std::string_view text) {
  subject.text = text;
  bool last_is_valid = true;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char next = utf8_at(text, at);
    const bool valid = next.kind == Utf8Char::Kind::valid;
    const auto end = static_cast<uint32_t>(at + next.bytes);
    if (subject.runs.empty()) subject.first_is_valid = valid;
    if (!subject.runs.empty() && last_is_valid == valid) {
      subject.runs.back().end = end;
    } else {
      subject.runs.push_back({static_cast<uint32_t>(at), end});
    }
    last_is_valid = valid;
    const char32_t old = valid ? older_stand_in(next.code) : next.code;
    if (old != next.code) {
      if (subject.replaced.empty()) subject.replaced = text;
      std::string bytes;
      append_utf8(bytes, old);
      std::copy(bytes.begin(), bytes.end(), subject.replaced.begin() + static_cast<std::ptrdiff_t>(at));
    }
    at = end;
  }
  if (!subject.replaced.empty()) subject.text = subject.replaced;
}

}  // namespace

void Pretokenizer::split(std::string_view text, std::vector<TextSpan>& words) const {
  const std::unique_ptr<pcre2_match_context, FreeContext> limits(pcre2_match_context_create(nullptr));
  if (!limits) fail("no memory for the pre-tokenizer");
  // Every pattern takes a few steps per character and does not nest, so these bounds stop only a fault.
  pcre2_set_match_limit(limits.get(),
                        static_cast<uint32_t>(std::min<uint64_t>(UINT32_MAX, 1'000'000 + 16 * text.size())));
  pcre2_set_heap_limit(limits.get(), 16 * 1024);
  pcre2_set_depth_limit(limits.get(), 10'000);
  std::vector<Cutter> cutters;
  for (const Impl::Pattern& pattern : impl_->patterns)
    cutters.emplace_back(pattern.code.get(), pattern.jit, limits.get());

  Subject subject;
  prepare(subject, text);
  std::vector<TextSpan> pieces, finer;
  bool valid = subject.first_is_valid;
  for (size_t i = 0; i < subject.runs.size(); ++i, valid = !valid) {
    if (!valid) {
      words.push_back(subject.runs[i]);
      continue;
    }
    pieces.assign(1, subject.runs[i]);
    for (Cutter& cutter : cutters) {
      finer.clear();
      for (const TextSpan& piece : pieces) cutter.cut(subject.text, piece, finer);
      pieces.swap(finer);
    }
    words.insert(words.end(), pieces.begin(), pieces.end());
  }
}

}  // namespace moetier
