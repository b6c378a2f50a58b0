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
#include "io/read_file.h"
#include "server/model_id.h"
#include "tokenizer/tokenizer.h"

namespace moetier {

/// The bytes of a file before the state's.
std::string session_header(const ModelId& model, std::span<const TokenId> tokens);

/// Writes beside `path` and renames, so that a reader sees the old file or the whole new one. Gives the bytes written.
/// Errors: tokens that are not as many as the state's positions, a file that cannot be written, a name that something
/// else than a regular file has (a pipe would be waited for).
uint64_t write_session(const std::string& path, const ModelId& model, std::span<const TokenId> tokens,
                       const SequenceState& state);
/// The same with a state that was saved before.
uint64_t write_session(const std::string& path, const ModelId& model, std::span<const TokenId> tokens,
                       std::string_view state);

/// Reads the tokens of a file and checks what comes before them. Errors name the file: unreadable, no regular
/// file, no session, of another version or model, cut short, damaged.
class SessionReader {
 public:
  SessionReader(const std::string& path, const ModelId& model);
  const std::vector<TokenId>& tokens() const { return tokens_; }
  uint64_t bytes() const { return file_.bytes(); }
  /// Gives the state what the file holds; on an error (damaged, another KV type, ...) it stays as it was.
  void load(SequenceState& state) const;

 private:
  void read(uint64_t at, void* out, size_t bytes) const;

  ReadFile file_;
  std::vector<TokenId> tokens_;
  uint64_t state_at_ = 0;
};

/// Makes a directory of saved states if it is not there. Errors: one that cannot be made, read or written. `what` is
/// what it is for: "the prompt cache cannot be kept in DIRECTORY".
void prepare_state_directory(std::string_view what, const std::string& directory);

/// DIRECTORY/NAME for a name that a client chose. Errors (usage): no directory, a name that is empty, too long, hidden
/// or holds a slash or a control character.
std::string session_path(const std::string& directory, const std::string& name);

}  // namespace moetier
