// A grammar for an answer's document, fitted into what a model's format writes around it.
#pragma once

#include <string>

#include "engine/chat_output.h"

namespace moetier::server {

/// `document` is GBNF with the rule `root`. The answer may think before the document where the format has a place for
/// it: `opened` means that the prompt has begun a thought, `possible` that the answer may begin one. Harmony's document
/// stands in its final channel, and may always think before.
enum class ThoughtBefore { none, possible, opened };
std::string answer_grammar(ChatFormat format, const std::string& document, ThoughtBefore thought);

/// Texts of either of two grammars, each with the rule `root`; no other rule names may be in both.
std::string either_grammar(const std::string& first, const std::string& second);

}  // namespace moetier::server
