// The model as the endpoints see it: its name, its text, its chat format.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat_output.h"
#include "engine/context.h"
#include "engine/grammar.h"
#include "server/api/api_error.h"
#include "tokenizer/chat_template.h"

namespace moetier::server {

/// Safe from many threads.
class ServedModel {
 public:
  /// `name` as clients see it. `template_source`: Jinja; empty = the model's own, and for a model without one the
  /// messages' texts as they are (said once). Errors: a model without a vocabulary, a template that does not compile.
  ServedModel(Engine& engine, std::string name, std::string template_source);

  Engine& engine() const { return engine_; }
  const Tokenizer& tokenizer() const { return engine_.tokenizer(); }
  const std::string& name() const { return name_; }
  int64_t created() const { return created_; }  ///< seconds since 1970
  const std::string& template_source() const { return template_source_; }
  ChatFormat format() const { return format_; }
  /// Whether the template does something with `tools`.
  bool template_has_tools() const { return template_has_tools_; }

  /// `variables`: messages, and tools or others where there are some; add_generation_prompt, bos_token and eos_token
  /// are filled in. Arguments of tool calls are given as objects, and as texts to a template that cannot take these.
  /// Errors: 400 with what the template says.
  std::string render(Json variables) const;
  /// The tokens of a rendered prompt, with BOS where the vocabulary wants one and the template wrote none.
  std::vector<TokenId> encode_rendered(std::string_view text) const;

  /// A constraint by this GBNF; `triggers` as of make_lazy_grammar_constraint. Errors: 400.
  std::unique_ptr<TokenConstraint> constraint(const std::string& gbnf, const std::vector<std::string>& triggers,
                                              bool control_text) const;

 private:
  std::shared_ptr<const GrammarVocabulary> vocabulary(bool control_text) const;

  Engine& engine_;
  std::string name_, template_source_;
  ChatTemplate template_;
  ChatFormat format_;
  bool template_has_tools_;
  int64_t created_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const GrammarVocabulary> vocabularies_[2];  // made when they are first wanted
};

}  // namespace moetier::server
