// Prompts that are texts, token ids, or both.
#pragma once

#include <vector>

#include "server/api/fields.h"
#include "server/api/served_model.h"

namespace moetier::server {

/// A text, an array of ids, or (llama-server's) an array of texts and ids. BOS is added where the vocabulary wants one
/// and the input begins with a text. Errors: 400.
std::vector<TokenId> read_prompt(const Json& json, const std::string& path, const ServedModel& model,
                                 const EncodeOptions& options = {});

/// One prompt, or an array of prompts.
std::vector<std::vector<TokenId>> read_prompts(const Json& json, const std::string& path, const ServedModel& model,
                                               size_t most);

}  // namespace moetier::server
