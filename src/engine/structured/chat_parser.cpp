#include "engine/structured/chat_parser.h"

#include <algorithm>
#include <deque>

#include "engine/structured/call_stream.h"
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

/// Whether a section of calls that is cut off is surely, or as far as it goes, one of calls and no other text.
bool may_be_calls(std::string_view text, std::string_view opener, const ToolTypes& types) {
  if (opener != "{" && opener != "[") return true;
  if (opener == "[") {
    const std::string_view name = text.substr(1);
    return name.find('(') == std::string_view::npos ? types.may_begin(name)
                                                    : types.knows(name.substr(0, name.find('(')));
  }
  std::string bare;  // without the white space that may stand before a name
  for (const char c : text.substr(0, 400)) {
    if (kSpaces.find(c) == std::string_view::npos) bare += c;
  }
  const std::string_view begin = R"({"name":")";
  if (!bare.starts_with(begin)) return begin.starts_with(bare);
  const std::string_view name = std::string_view(bare).substr(begin.size());
  const size_t end = name.find('"');
  return types.empty() || (end == std::string_view::npos ? types.may_begin(name) : types.knows(name.substr(0, end)));
}

/// Everything is content.
class PlainParser final : public ChatParser {
 public:
  void push(std::string_view text, PieceList& out) override { out.add(ChatPiece::Kind::content, text); }
  void finish(bool, PieceList&) override {}
};

class MarkupParser final : public ChatParser {
 public:
  MarkupParser(ChatFormat format, const ChatOutputOptions& options)
      : markup_(chat_markup(format)),
        types_(options.tool_list),
        streamer_(options.call_parts && options.tools ? call_streamer(format) : nullptr) {
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
  void finish(bool cut, PieceList& out) override {
    cut_ = cut;
    run(true, out);
    if (told_ == Told::arguments) out.add_call("", std::move(call_), Kind::call_cut);
    if (told_ == Told::tail) out.add_call("", std::move(call_), Kind::call_end);
    told_ = Told::none;
  }
  bool in_reasoning() const override { return reasoning_; }

 private:
  using Kind = ChatPiece::Kind;
  /// Where in a call that is told in parts the text has come to.
  enum class Told { none, arguments, tail, between };

  void run(bool final, PieceList& out) {
    size_t done = 0;
    while (step(std::string_view(buffer_).substr(done), final, done, out)) {
    }
    buffer_.erase(0, done);
  }

  /// Looks at the text from the front; adds to `done` what it has dealt with. False: it needs more.
  bool step(std::string_view text, bool final, size_t& done, PieceList& out) {
    if (text.empty()) return false;
    switch (told_) {
      case Told::arguments:
        return arguments(text, done, out);
      case Told::tail:
        return tail(text, final, done, out);
      case Told::between:
        return between(text, final, done, out);
      case Told::none:
        break;
    }
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
    const size_t end = find_first_of_texts(text, closers_, final && !cut_, which);
    const size_t bare = trailing_space(text.substr(0, end));
    if (which < 0) {
      const bool half = final && is_half_markup(text, end, false);
      const size_t n = final && !half ? text.size() : bare;
      out.add(ChatPiece::Kind::reasoning, text.substr(0, n));
      if (half) out.add(ChatPiece::Kind::markup, text.substr(n));
      done += half ? text.size() : n;
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

  /// Of text that was cut: whether what begins at `at` is markup that is half there. A single character may as well be
  /// a sign of its own, unless it stands `alone`, where markup is expected.
  bool is_half_markup(std::string_view text, size_t at, bool alone) const {
    return cut_ && at < text.size() && (text.size() - at > 1 || (alone && leading_space(text) == at));
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
    const size_t begin = find_first_of_texts(text, wanted, final && !cut_, which);
    // Where content is, reasoning and the calls of some formats can no longer begin.
    if (!spoken_ && leading_space(text) < begin) {
      spoken_ = true;
      return true;
    }
    const size_t bare = trailing_space(text.substr(0, begin));
    if (bare > 0) after_call_ = false;
    if (which < 0) {
      const bool half = final && is_half_markup(text, begin, !spoken_ || after_call_);
      const size_t n = final && !half ? text.size() : bare;
      out.add(after_call_ && leading_space(text) == text.size() ? ChatPiece::Kind::markup : ChatPiece::Kind::content,
              text.substr(0, n));
      if (half) out.add(ChatPiece::Kind::markup, text.substr(n));
      done += half ? text.size() : n;
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
    if (const Read r = told_head(text, begin, bare, true, final, done, out); r != Read::bad) return r == Read::good;
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
    const bool half = cut_ && (r == Read::more || (r == Read::bad && is_open(text.substr(begin))));
    if (found.empty() && half && may_be_calls(text.substr(begin), opener, types_)) {
      out.add(ChatPiece::Kind::content, text.substr(0, bare));
      out.add(ChatPiece::Kind::markup, text.substr(bare));
      done += text.size();
      return false;
    }
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
    if (half) {
      out.add(ChatPiece::Kind::markup, text.substr(begin + from));
      done += text.size() - begin - from;
    }
    end_section();
    return true;
  }

  /// Whether a section of calls is not at its end: taken for the end of all text, half a number is none.
  bool is_open(std::string_view text) const {
    CallCursor cursor(text, false);
    std::vector<FoundCall> unused;
    return markup_.read(cursor, types_, unused) == Read::more;
  }

  void end_section() {
    told_ = Told::none;
    swallow_ = !spoken_;  // else white space may set this off from content that follows
    after_call_ = true;
  }

  /// Begins to tell a call whose head stands at `begin`. Good: it does; more: it must wait; bad: it cannot.
  Read told_head(std::string_view text, size_t begin, size_t bare, bool first, bool final, size_t& done,
                 PieceList& out) {
    if (streamer_ == nullptr) return Read::bad;
    const bool all = text.size() - begin <= kLongestCallMarkup;
    CallCursor c(text.substr(begin, kLongestCallMarkup), final && all);
    ToolCall call;
    const Read r = streamer_->head(c, first, types_, call);
    if (r == Read::bad || (r == Read::more && (final || !all))) return Read::bad;
    out.add(Kind::content, text.substr(0, bare));
    done += bare;
    if (r == Read::more) return r;
    call_ = call;
    out.add_call(text.substr(bare, begin - bare + c.at()), std::move(call), Kind::call_begin);
    done += begin - bare + c.at();
    told_ = Told::arguments;
    scan_ = {};
    return r;
  }

  bool arguments(std::string_view text, size_t& done, PieceList& out) {
    const size_t n = scan_.take(text);
    out.add(Kind::call_arguments, text.substr(0, n));
    call_.arguments += text.substr(0, n);
    done += n;
    if (!scan_.whole()) return false;
    if (is_json_object(call_.arguments)) {
      told_ = Told::tail;
    } else {
      out.add_call("", std::move(call_), Kind::call_cut);
      end_section();
    }
    return true;
  }

  bool tail(std::string_view text, bool final, size_t& done, PieceList& out) {
    const bool all = text.size() <= kLongestCallMarkup;
    CallCursor c(text.substr(0, kLongestCallMarkup), final && all);
    const Read r = streamer_->tail(c);
    if (r == Read::more && all && !final) return false;
    const size_t n = r == Read::good ? c.at() : r == Read::more && all ? text.size() : 0;
    out.add_call(text.substr(0, n), std::move(call_), Kind::call_end);
    done += n;
    told_ = Told::between;
    return true;
  }

  bool between(std::string_view text, bool final, size_t& done, PieceList& out) {
    CallCursor c(text, final);
    const Read r = streamer_->next(c);
    if (r == Read::more && !final) return false;
    if (r == Read::bad) {
      const Read head = told_head(text, 0, 0, false, final, done, out);
      if (head == Read::more) return false;
      if (head == Read::good) return true;
      CallCursor again(text, false);
      ToolCall none;
      end_section();
      if (!cut_ || streamer_->head(again, false, types_, none) != Read::more) return true;
    }
    const size_t n = r == Read::good ? c.at() : text.size();
    out.add(Kind::markup, text.substr(0, n));
    done += n;
    end_section();
    return true;
  }

  ChatMarkup markup_;
  ToolTypes types_;
  const CallStreamer* streamer_;  // null: calls are told whole
  std::string buffer_;            // what is not certain yet
  std::vector<std::string_view> closers_;
  bool reasoning_ = false;
  bool swallow_ = false;  // white space that follows is markup
  bool spoken_ = false;   // there was content other than white space
  bool after_call_ = false;
  size_t retry_ = 0;  // a call waits; size of the buffer at which it is read again
  bool cut_ = false;  // the text ended in its middle

  Told told_ = Told::none;
  ToolCall call_;  // of what is told
  ObjectScan scan_;
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

void PieceList::add_call(std::string_view raw, ToolCall call, ChatPiece::Kind kind) {
  pieces_.push_back({kind, std::string(raw), std::move(call)});
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

std::vector<ChatPiece> ChatOutputParser::finish(bool cut) {
  PieceList out;
  impl_->parser->finish(cut, out);
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
        case ChatPiece::Kind::call_end:
          out.tool_calls.push_back(std::move(piece.call));
          break;
        case ChatPiece::Kind::markup:
        case ChatPiece::Kind::call_begin:
        case ChatPiece::Kind::call_arguments:
        case ChatPiece::Kind::call_cut:
          break;
      }
    }
  }
  return out;
}

}  // namespace moetier
