// A sequence in a file: its tokens and its state, for one model. Written by `--session`, by saved slots and by the
// prompt cache. The layout stands in docs/formats.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "engine/state.h"
#include "server/model_id.h"
#include "tokenizer/tokenizer.h"

namespace moetier {

/// The bytes of a file before the state's.
std::string session_header(const ModelId& model, std::span<const TokenId> tokens);

/// Writes beside `path` and renames, so that a reader sees the old file or the whole new one. Gives the bytes written.
/// Errors: tokens that are not as many as the state's positions, a file that cannot be written.
uint64_t write_session(const std::string& path, const ModelId& model, std::span<const TokenId> tokens,
                       const SequenceState& state);
/// The same with a state that was saved before.
uint64_t write_session(const std::string& path, const ModelId& model, std::span<const TokenId> tokens,
                       std::string_view state);

/// Reads the tokens of a file and checks what comes before them. Errors name the file: unreadable, no session, of
/// another version or model, cut short, damaged.
class SessionReader {
 public:
  SessionReader(const std::string& path, const ModelId& model);
  const std::vector<TokenId>& tokens() const { return tokens_; }
  uint64_t bytes() const { return bytes_; }
  /// Gives the state what the file holds; on an error (damaged, another KV type, ...) it stays as it was.
  void load(SequenceState& state) const;

 private:
  std::string path_;
  std::vector<TokenId> tokens_;
  uint64_t bytes_ = 0, state_at_ = 0;
};

/// DIRECTORY/NAME for a name that a client chose. Errors (usage): no directory, a name that is empty, too long, hidden
/// or holds a slash or a control character.
std::string session_path(const std::string& directory, const std::string& name);

}  // namespace moetier
