// An interactive chat on a terminal or a pipe.
#pragma once

#include "cli/run_audit.h"
#include "cli/run_files.h"
#include "cli/session.h"
#include "cli/settings.h"
#include "engine/context.h"
#include "engine/generate.h"
#include "engine/run_record.h"
#include "tokenizer/chat_template.h"

namespace moetier::cli {

/// The ids of a conversation, an array of messages, with the opening of a reply. A template usually writes BOS itself;
/// then the tokenizer must not add a second.
std::vector<TokenId> chat_prompt(const ChatTemplate& chat, const nlohmann::ordered_json& messages,
                                 const Tokenizer& tokenizer);

/// Reads a line at a time from standard input until it ends, keeps the history, prints replies to standard output.
/// Ctrl-C stops a reply; at the prompt it ends the chat. Returns the messages; every reply's times go to `times`, and
/// what it did to the audit log.
nlohmann::ordered_json run_chat(Context& context, Session& session, const GenerateOptions& options,
                                const Settings& settings, RunTimes& times, RunFiles& files, RunAudit& audit);

}  // namespace moetier::cli
