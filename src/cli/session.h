// --session: a run's sequence, kept in a file from run to run.
#pragma once

#include <string>
#include <vector>

#include "cli/settings.h"
#include "engine/context.h"
#include "server/model_id.h"
#include "server/session_file.h"

namespace moetier::cli {

/// The sequence that a run goes on from: empty, or what --session's file holds.
class Session {
 public:
  /// A file that does not exist yet is none. Errors: one that is no session, damaged, of another model, or too long for
  /// the context; one that cannot be written.
  Session(const Settings& settings, Context& context);
  /// Writes the file, if there is to be one.
  void save() const;

  SequenceState sequence;
  std::vector<TokenId> held;  ///< its tokens

 private:
  SessionReader read() const;

  std::string path_;  // empty: none
  ModelId model_;
};

}  // namespace moetier::cli
