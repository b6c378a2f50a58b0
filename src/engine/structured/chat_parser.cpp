#include "engine/structured/chat_parser.h"

#include <algorithm>
#include <deque>

#include "engine/structured/call_text.h"

namespace moetier {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";

size_t leading_space(std::string_view text) {
  return std::min(text.find_first_not_of(kSpaces), text.size());
}

/// Where the white space at the end begins.
size_t trailing_space(std::string_view text) {
  const size_t last = text.find_last_not_of(kSpaces);
  return last == std::string_view::npos ? 0 : last + 1;
}

/// Everything is content.
class PlainParser final : public ChatParser {
 public:
  void push(std::string_view text, PieceList& out) override { out.add(ChatPiece::Kind::content, text); }
  void finish(PieceList&) override {}
};

class MarkupParser final : public ChatParser {
 public:
  MarkupParser(ChatFormat format, const ChatOutputOptions& options)
      : markup_(chat_markup(format)), types_(options.tool_list) {
    if (!options.tools) markup_.openers.clear();
    if (!options.reasoning) markup_.reasoning.clear();
    reasoning_ = options.in_reasoning && options.reasoning && !markup_.reasoning.empty();
    if (reasoning_) {
      for (const auto& pair : markup_.reasoning) closers_.push_back(pair.close);
      swallow_ = true;
    }
  }

  void push(std::string_view text, PieceList& out) override {
    buffer_ += text;
    // A call that waits for its end is not read again until that may have come, or much has.
    if (buffer_.size() < retry_ && text.find_first_of(markup_.endings) == std::string_view::npos) return;
    run(false, out);
  }
  void finish(PieceList& out) override { run(true, out); }
  bool in_reasoning() const override { return reasoning_; }

 private:
  void run(bool final, PieceList& out) {
    size_t done = 0;
    while (step(std::string_view(buffer_).substr(done), final, done, out)) {
    }
    buffer_.erase(0, done);
  }

  /// Looks at the text from the front; adds to `done` what it has dealt with. False: it needs more.
  bool step(std::string_view text, bool final, size_t& done, PieceList& out) {
    if (text.empty()) return false;
    if (swallow_) {
      const size_t n = leading_space(text);
      out.add(ChatPiece::Kind::markup, text.substr(0, n));
      done += n;
      swallow_ = n == text.size();
      return !swallow_;
    }
    return reasoning_ ? reason(text, final, done, out) : content(text, final, done, out);
  }

  bool reason(std::string_view text, bool final, size_t& done, PieceList& out) {
    int which = -1;
    const size_t end = find_first_of_texts(text, closers_, final, which);
    const size_t bare = trailing_space(text.substr(0, end));
    if (which < 0) {
      const size_t n = final ? text.size() : bare;
      out.add(ChatPiece::Kind::reasoning, text.substr(0, n));
      done += n;
      return false;
    }
    out.add(ChatPiece::Kind::reasoning, text.substr(0, bare));
    const size_t behind = end + closers_[static_cast<size_t>(which)].size();
    out.add(ChatPiece::Kind::markup, text.substr(bare, behind - bare));
    done += behind;
    reasoning_ = false;
    swallow_ = true;
    return true;
  }

  /// What may begin here something other than content.
  std::vector<std::string_view> openers() const {
    std::vector<std::string_view> all;
    if (!markup_.only_first || !spoken_) all = markup_.openers;
    if (!spoken_) {
      for (const auto& pair : markup_.reasoning) all.push_back(pair.open);
    }
    return all;
  }

  bool content(std::string_view text, bool final, size_t& done, PieceList& out) {
    const std::vector<std::string_view> wanted = openers();
    int which = -1;
    size_t begin = find_first_of_texts(text, wanted, final, which);
    // Where content is, reasoning and the calls of some formats can no longer begin.
    if (!spoken_ && leading_space(text) < begin) {
      spoken_ = true;
      return true;
    }
    const size_t bare = trailing_space(text.substr(0, begin));
    if (bare > 0) after_call_ = false;
    if (which < 0) {
      const size_t n = final ? text.size() : bare;
      out.add(after_call_ && leading_space(text) == text.size() ? ChatPiece::Kind::markup : ChatPiece::Kind::content,
              text.substr(0, n));
      done += n;
      return false;
    }
    const std::string_view opener = wanted[static_cast<size_t>(which)];
    for (const auto& pair : markup_.reasoning) {
      if (pair.open != opener) continue;
      out.add(ChatPiece::Kind::markup, text.substr(0, begin + opener.size()));
      done += begin + opener.size();
      closers_ = {pair.close};
      reasoning_ = swallow_ = true;
      return true;
    }
    return calls(text, begin, bare, opener, final, done, out);
  }

  /// A section of calls that may begin at `begin`, behind content up to `bare` and white space.
  bool calls(std::string_view text, size_t begin, size_t bare, std::string_view opener, bool final, size_t& done,
             PieceList& out) {
    CallCursor cursor(text.substr(begin), final);
    std::vector<FoundCall> found;
    const Read r = markup_.read(cursor, types_, found);
    if (r == Read::more && !final) {
      out.add(ChatPiece::Kind::content, text.substr(0, bare));
      done += bare;
      const size_t waiting = text.size() - bare;
      retry_ = waiting + std::max<size_t>(64, waiting / 4);
      return false;
    }
    retry_ = 0;
    if (found.empty()) {
      // At the end of all text an open section is content to its last byte; else only what began it is certain to be.
      const size_t n = r == Read::more ? text.size() : begin + opener.size();
      out.add(ChatPiece::Kind::content, text.substr(0, n));
      spoken_ = true;
      after_call_ = false;
      done += n;
      return true;
    }
    out.add(ChatPiece::Kind::content, text.substr(0, bare));
    out.add(ChatPiece::Kind::markup, text.substr(bare, begin - bare));
    size_t from = 0;
    for (FoundCall& call : found) {
      const size_t end = std::max(call.end, from);
      out.add_call(text.substr(begin + from, end - from), std::move(call.call));
      from = end;
    }
    done += begin + from;
    swallow_ = !spoken_;  // else white space may set this off from content that follows
    after_call_ = true;
    return true;
  }

  ChatMarkup markup_;
  ToolTypes types_;
  std::string buffer_;  // what is not certain yet
  std::vector<std::string_view> closers_;
  bool reasoning_ = false;
  bool swallow_ = false;  // white space that follows is markup
  bool spoken_ = false;   // there was content other than white space
  bool after_call_ = false;
  size_t retry_ = 0;  // a call waits; size of the buffer at which it is read again
};

}  // namespace

void PieceList::add(ChatPiece::Kind kind, std::string_view raw) {
  if (raw.empty()) return;
  if (!pieces_.empty() && pieces_.back().kind == kind) {
    pieces_.back().raw += raw;
  } else {
    pieces_.push_back({kind, std::string(raw), {}});
  }
}

void PieceList::add_call(std::string_view raw, ToolCall call) {
  pieces_.push_back({ChatPiece::Kind::tool_call, std::string(raw), std::move(call)});
}

size_t find_first_of_texts(std::string_view text, const std::vector<std::string_view>& wanted, bool final, int& which) {
  which = -1;
  std::string firsts;
  for (const std::string_view w : wanted) firsts += w[0];
  for (size_t at = text.find_first_of(firsts); at != std::string_view::npos; at = text.find_first_of(firsts, at + 1)) {
    const std::string_view rest = text.substr(at);
    bool begins = false;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const std::string_view w = wanted[i];
      if (rest.starts_with(w)) {
        if (which < 0 || w.size() > wanted[static_cast<size_t>(which)].size()) which = static_cast<int>(i);
      } else {
        begins = begins || (!final && w.starts_with(rest));
      }
    }
    if (which >= 0 || begins) return at;
  }
  return text.size();
}

struct ChatOutputParser::Impl {
  std::unique_ptr<ChatParser> parser;
};

ChatOutputParser::ChatOutputParser(ChatFormat format, ChatOutputOptions options) : impl_(std::make_unique<Impl>()) {
  if (format == ChatFormat::harmony) {
    impl_->parser = make_harmony_parser(options);
  } else {
    impl_->parser = make_markup_parser(format, options);
  }
}
ChatOutputParser::~ChatOutputParser() = default;
ChatOutputParser::ChatOutputParser(ChatOutputParser&&) noexcept = default;
ChatOutputParser& ChatOutputParser::operator=(ChatOutputParser&&) noexcept = default;

std::vector<ChatPiece> ChatOutputParser::push(std::string_view text) {
  PieceList out;
  impl_->parser->push(text, out);
  return out.take();
}

std::vector<ChatPiece> ChatOutputParser::finish() {
  PieceList out;
  impl_->parser->finish(out);
  return out.take();
}

bool ChatOutputParser::in_reasoning() const {
  return impl_->parser->in_reasoning();
}

std::unique_ptr<ChatParser> make_markup_parser(ChatFormat format, const ChatOutputOptions& options) {
  if (format == ChatFormat::plain) return std::make_unique<PlainParser>();
  return std::make_unique<MarkupParser>(format, options);
}

ChatOutput parse_chat_output(ChatFormat format, std::string_view text, const ChatOutputOptions& options) {
  ChatOutputParser parser(format, options);
  ChatOutput out;
  for (const bool end : {false, true}) {
    for (ChatPiece& piece : end ? parser.finish() : parser.push(text)) {
      switch (piece.kind) {
        case ChatPiece::Kind::content:
          out.content += piece.raw;
          break;
        case ChatPiece::Kind::reasoning:
          out.reasoning += piece.raw;
          break;
        case ChatPiece::Kind::tool_call:
          out.tool_calls.push_back(std::move(piece.call));
          break;
        case ChatPiece::Kind::markup:
          break;
      }
    }
  }
  return out;
}

}  // namespace moetier
