// The two ways in which chat output is taken apart: by markup around stretches, and by messages.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat_output.h"

namespace moetier {

/// Collects pieces, joining what is of one kind.
class PieceList {
 public:
  void add(ChatPiece::Kind kind, std::string_view raw);
  void add_call(std::string_view raw, ToolCall call, ChatPiece::Kind kind = ChatPiece::Kind::tool_call);
  std::vector<ChatPiece> take() { return std::move(pieces_); }

 private:
  std::vector<ChatPiece> pieces_;
};

class ChatParser {
 public:
  virtual ~ChatParser() = default;
  virtual void push(std::string_view text, PieceList& out) = 0;
  virtual void finish(bool cut, PieceList& out) = 0;
  virtual bool in_reasoning() const { return false; }
};

std::unique_ptr<ChatParser> make_markup_parser(ChatFormat format, const ChatOutputOptions& options);
std::unique_ptr<ChatParser> make_harmony_parser(const ChatOutputOptions& options);

/// Where the first of the texts begins, or, unless `final`, where the end of `text` may be the beginning of one;
/// `text.size()` if neither. `which`: the index of the text that is there whole, the longest if several are; -1 if
/// none is.
size_t find_first_of_texts(std::string_view text, const std::vector<std::string_view>& wanted, bool final, int& which);

}  // namespace moetier
