// Reading tool calls from text that may not be all there yet.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat_output.h"

namespace moetier {

/// What reading came to. A prefix that is `good` or `bad` stays so whatever follows.
enum class Read {
  more,  ///< undecided: the text ends too early
  bad,   ///< not what was expected
  good,
};

/// A place in a text. With `final` no more text will come.
class CallCursor {
 public:
  CallCursor(std::string_view text, bool final) : text_(text), final_(final) {}

  size_t at() const { return at_; }
  std::string_view rest() const { return text_.substr(at_); }
  bool final() const { return final_; }
  void skip_space();
  /// Exactly this text.
  Read literal(std::string_view wanted);
  /// The same, but at the end of all text a beginning of it, or nothing, will do.
  Read closing(std::string_view wanted);
  /// The text up to a marker, which is passed.
  Read until(std::string_view marker, std::string_view& out);
  /// One JSON value, nested at most kMostCallNesting deep.
  Read json(std::string_view& out);
  /// A tool's name: up to a character that no name has.
  Read name(std::string_view& out);
  void move(size_t bytes) { at_ += bytes; }

 private:
  std::string_view text_;
  bool final_;
  size_t at_ = 0;
};

inline constexpr int kMostCallNesting = 100;

/// Which types the parameters of tools have, from ChatOutputOptions::tool_list.
class ToolTypes {
 public:
  explicit ToolTypes(const nlohmann::ordered_json& tool_list);
  bool empty() const { return tools_.empty(); }
  bool knows(std::string_view tool) const { return tools_.contains(tool); }
  /// Whether a tool's name begins so.
  bool may_begin(std::string_view name) const;
  /// The value that an untyped text stands for.
  nlohmann::ordered_json value(std::string_view tool, const std::string& parameter, std::string_view text) const;

 private:
  std::map<std::string, std::map<std::string, std::set<std::string>>, std::less<>> tools_;
};

/// A call, and where the text of it ends (that of the first begins with the opening markup).
struct FoundCall {
  ToolCall call;
  size_t end = 0;
};

/// Reads a whole section of calls, its opening and closing markup included. Calls that are complete are in `calls`
/// whatever comes out.
using CallReader = Read (*)(CallCursor& cursor, const ToolTypes& types, std::vector<FoundCall>& calls);

/// How a format marks things off. Harmony, which has messages instead, is read by itself.
struct ChatMarkup {
  struct Pair {
    std::string_view open, close;
  };
  std::vector<Pair> reasoning;
  std::vector<std::string_view> openers;  ///< with which a section of calls may begin
  CallReader read = nullptr;
  bool only_first = false;   ///< calls stand only where no content was before them
  std::string_view endings;  ///< last characters that a section of calls may have
};
ChatMarkup chat_markup(ChatFormat format);

/// Where another call or the end of the section may come, behind white space: `good` at its end, which the last call's
/// text then includes; `bad` if it goes on, also where there was no call yet.
Read section_end(CallCursor& c, std::string_view close, std::vector<FoundCall>& calls);
/// The parsed text of a JSON value, which must be valid.
nlohmann::ordered_json parse_scanned(std::string_view json);
/// Adds a call if `arguments` is the text of a JSON object (or of a string that holds one); `bad` if not.
Read add_json_call(std::string_view name, std::string_view arguments, size_t end, std::vector<FoundCall>& calls);
/// Adds the call that {"name", "arguments" or "parameters"} describes.
Read add_call_object(std::string_view object, size_t end, std::vector<FoundCall>& calls);

/// The tool of Kimi's functions.NAME:NUMBER.
std::string kimi_tool_name(std::string_view id);

Read read_hermes(CallCursor& c, const ToolTypes& types, std::vector<FoundCall>& calls);
Read read_deepseek(CallCursor& c, const ToolTypes& types, std::vector<FoundCall>& calls);
Read read_kimi(CallCursor& c, const ToolTypes& types, std::vector<FoundCall>& calls);
Read read_llama(CallCursor& c, const ToolTypes& types, std::vector<FoundCall>& calls);
Read read_llama4(CallCursor& c, const ToolTypes& types, std::vector<FoundCall>& calls);
Read read_granite(CallCursor& c, const ToolTypes& types, std::vector<FoundCall>& calls);
Read read_mistral(CallCursor& c, const ToolTypes& types, std::vector<FoundCall>& calls);
Read read_qwen_xml(CallCursor& c, const ToolTypes& types, std::vector<FoundCall>& calls);
Read read_glm(CallCursor& c, const ToolTypes& types, std::vector<FoundCall>& calls);
Read read_minimax(CallCursor& c, const ToolTypes& types, std::vector<FoundCall>& calls);
Read read_dsml(CallCursor& c, const ToolTypes& types, std::vector<FoundCall>& calls);
Read read_gemma(CallCursor& c, const ToolTypes& types, std::vector<FoundCall>& calls);
Read read_lfm2(CallCursor& c, const ToolTypes& types, std::vector<FoundCall>& calls);

}  // namespace moetier
