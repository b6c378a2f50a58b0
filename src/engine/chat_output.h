// What a chat model wrote, taken apart: reasoning, content and tool calls, in the notation of its family.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace moetier {

/// How a family writes reasoning and tool calls.
enum class ChatFormat {
  plain,          ///< no markup known: all is content
  hermes,         ///< <think>; <tool_call>{"name", "arguments"}</tool_call> (Hermes, Qwen2.5, Qwen3, SmolLM3, ...)
  qwen_xml,       ///< <think>; <tool_call><function=NAME><parameter=KEY> (Qwen3-Coder, Qwen3.5)
  harmony,        ///< <|channel|>analysis|commentary|final<|message|> (gpt-oss)
  deepseek,       ///< <think>; <｜tool▁calls▁begin｜> (V3, R1, V3.1)
  deepseek_dsml,  ///< <think>; <｜DSML｜invoke name="NAME"> (V3.2, V4)
  glm,            ///< <think>; <tool_call>NAME<arg_key>...</arg_key><arg_value>...</arg_value> (GLM-4.5, 4.6, 4.7)
  gemma4,         ///< <|channel>thought; <|tool_call>call:NAME{key:value}<tool_call|>
  lfm2,           ///< <think>; <|tool_call_start|>[name(key=value)]<|tool_call_end|>
  minimax,        ///< <think>; <minimax:tool_call><invoke name="NAME"><parameter name="KEY"> (M2)
  kimi,           ///< <think>; <|tool_calls_section_begin|> (Kimi K2)
  llama_json,     ///< the whole answer is {"name", "parameters"}, perhaps behind <|python_tag|> (Llama 3.1 to 3.3)
  llama4,   ///< the whole answer is [name(key=value)] or {"name", "parameters"}, perhaps in <|python_start|> (Llama 4)
  granite,  ///< <think>; <|tool_call|>[{"name", "arguments"}] (Granite 3)
  mistral,  ///< [THINK]; [TOOL_CALLS]NAME[ARGS]{...} or [TOOL_CALLS][{"name", "arguments"}]
};

/// As in logs and docs: "qwen-xml".
std::string_view to_string(ChatFormat format);

/// The format that a chat template (its Jinja source) teaches, by the markup it contains; `plain` for none known.
ChatFormat detect_chat_format(std::string_view chat_template);

/// Whether control tokens carry the format's markup: then the text for the parser must be made with
/// `StreamDecoder(tokenizer, true)` (GenerateOptions::special). Otherwise leave it off.
bool chat_format_needs_control_text(ChatFormat format);

/// The marks that a thought begins and ends with. Not of harmony, which has messages instead.
struct ThoughtMarks {
  std::string_view open, close;
};
ThoughtMarks thought_marks(ChatFormat format);

/// Whether a prompt (as rendered, with the generation prompt) ends inside a reasoning block, as many templates begin
/// one for the model: `<think>\n` at its end.
bool prompt_opens_reasoning(ChatFormat format, std::string_view prompt);

struct ToolCall {
  std::string name;
  std::string arguments;  ///< a JSON object, as the model wrote it or made from its notation
  std::string id;         ///< only where the format has one (Kimi), else empty
};

/// A stretch of the output.
struct ChatPiece {
  enum class Kind {
    content,
    reasoning,
    tool_call,  ///< one whole call, told at once
    markup,     ///< what only marks the others off, and white space around it
    // With ChatOutputOptions::call_parts, a call in parts: its beginning, arguments, then its end or its cut.
    call_begin,      ///< the call has a name and perhaps an id
    call_arguments,  ///< `raw` is the next stretch of the arguments
    call_end,        ///< the call is whole, and its arguments are all those stretches
    call_cut,        ///< the text ended, or went wrong, inside the arguments; the call has what there was of them
  };
  Kind kind = Kind::content;
  std::string raw;  ///< the very text; all pieces' together are the input
  ToolCall call;    ///< for tool_call, call_begin, call_end, call_cut
};

struct ChatOutputOptions {
  bool reasoning = true;      ///< take reasoning apart; false: it stays content, with its markup
  bool tools = true;          ///< take calls apart; false: they stay content
  bool in_reasoning = false;  ///< the prompt has opened a reasoning block (prompt_opens_reasoning)
  /// Calls are told in parts while they are written, in formats whose arguments are JSON (hermes, llama-json, granite,
  /// mistral, deepseek, kimi, harmony); for text that a tool_grammar held, since what was told is not taken back.
  bool call_parts = false;
  /// The request's tools, [{"type": "function", "function": {"name", "parameters"}}] (bare functions and Anthropic's
  /// input_schema are taken too). They say which type an argument has where the notation does not (an XML parameter
  /// `5` is a number unless the schema wants a string). A call of a tool that is not listed is a call all the same.
  nlohmann::ordered_json tool_list;
};

/// Takes text apart as it comes, in pieces of any size: the outcome, but for how stretches of one kind are cut, does
/// not depend on the pieces. Nothing is lost: what turns out not to be a well-formed call is content, its markup
/// included. A call is given out whole when its end is certain; content and reasoning as soon as they are certain,
/// but for white space at their end, which waits for what follows. The text must be valid UTF-8 (StreamDecoder's is);
/// other bytes pass through in content.
class ChatOutputParser {
 public:
  explicit ChatOutputParser(ChatFormat format, ChatOutputOptions options = {});
  ~ChatOutputParser();
  ChatOutputParser(ChatOutputParser&&) noexcept;
  ChatOutputParser& operator=(ChatOutputParser&&) noexcept;

  std::vector<ChatPiece> push(std::string_view text);
  /// The end of the generation: what was held back. A call that needs no more than its closing markup is a call. `cut`:
  /// the generation did not end by itself (a token limit, a stop text), so markup and calls that are only half there
  /// are not content but markup.
  std::vector<ChatPiece> finish(bool cut = false);
  /// What comes next is reasoning, as far as the text up to here tells.
  bool in_reasoning() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A whole answer.
struct ChatOutput {
  std::string reasoning, content;
  std::vector<ToolCall> tool_calls;
};
ChatOutput parse_chat_output(ChatFormat format, std::string_view text, const ChatOutputOptions& options = {});

/// What a schema says and a grammar of calls does not hold to.
struct LoosenedTool {
  std::string tool;
  std::string what;  ///< "uniqueItems at #/properties/tags"
};

/// A grammar for the calls of a format.
struct ToolGrammar {
  std::string gbnf;
  /// For make_lazy_grammar_constraint; empty: the grammar holds from the first token.
  std::vector<std::string> triggers;
  bool control_text = false;  ///< the GrammarVocabulary must be made with control_text
  std::vector<LoosenedTool> loosened;
};

struct ToolGrammarOptions {
  /// `automatic`: calls are optional, so the grammar sleeps until a trigger. `required`: at least one call, reasoning
  /// before it goes free.
  enum class Choice { automatic, required };
  Choice choice = Choice::automatic;
  bool parallel = true;       ///< several calls, one after another; false: exactly one
  bool in_reasoning = false;  ///< the prompt has opened a reasoning block
  bool may_think = true;      ///< of required calls: reasoning may go before them
};

/// Calls of these tools (in ChatOutputOptions::tool_list's shapes), and arguments that their schemas allow; for a named
/// tool pass just that one. A keyword that json_schema_grammar refuses is left out where it stands (and told in
/// `loosened`); the others are kept. Errors (usage): no tools, a tool without a name or with one that the format's
/// calls cannot hold, a format for which there is no such grammar (`plain`), a grammar beyond the limits.
ToolGrammar tool_grammar(ChatFormat format, const nlohmann::ordered_json& tools,
                         const ToolGrammarOptions& options = {});

}  // namespace moetier
