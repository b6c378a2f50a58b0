// gpt-oss's harmony: messages with a header (role, recipient, channel) and a body.
#include <algorithm>

#include "engine/structured/call_stream.h"
#include "engine/structured/call_text.h"
#include "engine/structured/chat_parser.h"

namespace moetier {
namespace {

using Kind = ChatPiece::Kind;

constexpr size_t kLongestHeader = 512;

class HarmonyParser final : public ChatParser {
 public:
  explicit HarmonyParser(const ChatOutputOptions& options) : options_(options) {}

  void push(std::string_view text, PieceList& out) override {
    buffer_ += text;
    run(false, out);
  }
  void finish(bool cut, PieceList& out) override {
    cut_ = cut;
    run(true, out);
    if (state_ == State::arguments) out.add_call("", std::move(call_), Kind::call_cut);
    state_ = State::header;
  }
  bool in_reasoning() const override { return state_ == State::text && kind_ == Kind::reasoning; }

 private:
  enum class State {
    header,     ///< a message may begin
    text,       ///< in a body that is handed out as it comes
    call,       ///< in a body that is a call's arguments; its header waits with it
    arguments,  ///< in a call's arguments, which are told as they come
    behind,     ///< white space behind such arguments
  };

  void run(bool final, PieceList& out) {
    size_t done = 0;
    while (step(std::string_view(buffer_).substr(done), final, done, out)) {
    }
    buffer_.erase(0, done);
  }

  bool step(std::string_view text, bool final, size_t& done, PieceList& out) {
    if (text.empty()) return false;
    if (state_ == State::header) return header(text, final, done, out);
    if (state_ == State::arguments) return arguments(text, done, out);
    if (state_ == State::behind) {
      const size_t n = std::min(text.find_first_not_of(" \t\r\n"), text.size());
      out.add(Kind::markup, text.substr(0, n));
      done += n;
      if (n < text.size()) state_ = State::header;
      return n < text.size();
    }
    if (state_ == State::call && options_.call_parts) {
      const size_t body = std::min(text.find_first_not_of(" \t\r\n", header_size_), text.size());
      if (body == text.size() && !final) return false;
      if (body < text.size() && text[body] == '{') {
        call_ = {recipient_, "", ""};
        out.add_call(text.substr(0, body), call_, Kind::call_begin);
        done += body;
        state_ = State::arguments;
        scan_ = {};
        return true;
      }
    }
    int which = -1;
    const size_t from = std::min(state_ == State::call ? searched_ : 0, text.size());
    const size_t end = from + find_first_of_texts(text.substr(from), enders(), final, which);
    if (state_ == State::text) {
      out.add(kind_, text.substr(0, end));
      done += end;
      if (which < 0) return false;
      state_ = State::header;
      return true;
    }
    if (which < 0 && !final) {
      searched_ = end;  // what stands before is not looked at again
      return false;
    }
    call(text.substr(0, end), cut_ && which < 0 ? Kind::markup : Kind::content, out);
    done += end;
    state_ = State::header;
    return end < text.size();
  }

  static const std::vector<std::string_view>& enders() {
    static const std::vector<std::string_view> all = {"<|end|>", "<|return|>", "<|call|>", "<|start|>", "<|channel|>"};
    return all;
  }

  /// What stands before a body: ends of messages, then perhaps <|start|>, role, recipient, channel up to <|message|>.
  bool header(std::string_view text, bool final, size_t& done, PieceList& out) {
    for (const std::string_view ender : {"<|end|>", "<|return|>", "<|call|>"}) {
      if (!text.starts_with(ender)) continue;
      out.add(Kind::markup, ender);
      done += ender.size();
      return true;
    }
    constexpr std::string_view kMessage = "<|message|>";
    const size_t end = text.find(kMessage);
    const std::string_view head = text.substr(0, std::min(end, text.size()));
    const Read r = end != std::string_view::npos && end <= kLongestHeader ? (is_header(head) ? Read::good : Read::bad)
                   : final || end != std::string_view::npos || head.size() > kLongestHeader + kMessage.size()
                       ? Read::bad
                       : may_become_header(head);
    if (r == Read::more) return false;
    if (r == Read::bad && final && cut_ && end == std::string_view::npos && may_become_header(head) == Read::more) {
      out.add(Kind::markup, text);  // half a header
      done += text.size();
      return false;
    }
    if (r == Read::bad) {
      begin_text(Kind::content);
      // Past the marker that would lead here again.
      size_t n = 0;
      for (const std::string_view ender : enders()) {
        if (text.starts_with(ender)) n = ender.size();
      }
      out.add(Kind::content, text.substr(0, n));
      done += n;
      return true;
    }
    header_size_ = end + kMessage.size();
    recipient_ = recipient(head);
    const bool analysis = head.find("<|channel|>analysis") != std::string_view::npos;
    if (!recipient_.empty() && options_.tools) {
      state_ = State::call;
      searched_ = header_size_;
      kind_ = analysis && options_.reasoning ? Kind::reasoning : Kind::content;
      return true;
    }
    const bool known = options_.reasoning || !analysis;
    begin_text(analysis && options_.reasoning ? Kind::reasoning : Kind::content);
    out.add(known && recipient_.empty() ? Kind::markup : Kind::content, text.substr(0, header_size_));
    done += header_size_;
    return true;
  }

  void begin_text(Kind kind) {
    state_ = State::text;
    kind_ = kind;
  }

  /// A header without its <|message|>: nothing but markers, a role, a channel, a recipient and a kind of content.
  static bool is_header(std::string_view head) {
    if (head.find('\n') != std::string_view::npos) return false;
    const bool begins = head.starts_with("<|start|>") || head.starts_with("<|channel|>") || head.starts_with(" to=") ||
                        head.starts_with("to=") || head.empty();
    for (const std::string_view ender : {"<|end|>", "<|return|>", "<|call|>"}) {
      if (head.find(ender) != std::string_view::npos) return false;
    }
    return begins;
  }

  static Read may_become_header(std::string_view head) {
    for (const std::string_view begin :
         {"<|start|>", "<|channel|>", " to=", "to=", "<|message|>", "<|end|>", "<|return|>", "<|call|>"}) {
      if (begin.starts_with(head.substr(0, begin.size()))) return is_header_so_far(head) ? Read::more : Read::bad;
    }
    return Read::bad;
  }
  static bool is_header_so_far(std::string_view head) {
    for (const std::string_view ender : {"<|end|>", "<|return|>", "<|call|>"}) {
      const size_t at = head.find(ender);
      if (at != std::string_view::npos && at > 0) return false;
    }
    return head.find('\n') == std::string_view::npos;
  }

  /// Behind to=, without "functions."; empty if the message is for the reader.
  static std::string recipient(std::string_view head) {
    const size_t to = head.find("to=");
    if (to == std::string_view::npos) return "";
    std::string_view name = head.substr(to + 3);
    name = name.substr(0, std::min(name.find_first_of(" <\t"), name.size()));
    if (name.starts_with("functions.")) name.remove_prefix(10);
    return std::string(name);
  }

  bool arguments(std::string_view text, size_t& done, PieceList& out) {
    const size_t n = scan_.take(text);
    out.add(Kind::call_arguments, text.substr(0, n));
    call_.arguments += text.substr(0, n);
    done += n;
    if (!scan_.whole()) return false;
    const bool good = is_json_object(call_.arguments);
    out.add_call("", std::move(call_), good ? Kind::call_end : Kind::call_cut);
    state_ = State::behind;
    return true;
  }

  /// A call's header and body: a call if the body is JSON, else text of the kind `otherwise`.
  void call(std::string_view text, Kind otherwise, PieceList& out) {
    std::string_view json;
    CallCursor cursor(text.substr(header_size_), true);
    std::vector<FoundCall> found;
    if (cursor.json(json) == Read::good) {
      cursor.skip_space();
      if (cursor.rest().empty() && add_json_call(recipient_, json, 0, found) == Read::good) {
        out.add_call(text, std::move(found[0].call));
        return;
      }
    }
    out.add(otherwise, text);
  }

  ChatOutputOptions options_;
  State state_ = State::header;
  Kind kind_ = Kind::content;
  std::string buffer_;
  std::string recipient_;
  bool cut_ = false;  // the text ended in its middle
  ToolCall call_;     // that is told in parts
  ObjectScan scan_;
  size_t header_size_ = 0;  // of a call's text
  size_t searched_ = 0;     // of a call's text: no end begins before
};

}  // namespace

std::unique_ptr<ChatParser> make_harmony_parser(const ChatOutputOptions& options) {
  return std::make_unique<HarmonyParser>(options);
}

}  // namespace moetier
