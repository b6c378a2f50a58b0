// Chat templates: the Jinja that model files carry, rendered as Hugging Face's transformers would.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace moetier {

/// A compiled template. Rendering follows jinja2's ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks,
/// loopcontrols, `raise_exception`, `strftime_now`, `tojson` without HTML escapes, and the `generation` block. Errors
/// carry the template's line.
class ChatTemplate {
 public:
  /// Compiles; a syntax error is an Error with the line number.
  explicit ChatTemplate(std::string_view source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// `variables`: an object, in key order: messages, tools, add_generation_prompt, bos_token, eos_token and whatever
  /// else. Bounded in time, depth and output size, since templates come from files (promise 6).
  std::string render(const nlohmann::ordered_json& variables) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moetier
