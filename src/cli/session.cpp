#include "cli/session.h"

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace moetier::cli {

Session::Session(const Settings& settings, Context& context) : sequence(context.new_sequence()) {
  if (!settings.is_set("session")) return;
  path_ = settings.text("session");
  model_ = identify(context);
  std::error_code error;
  if (!std::filesystem::exists(path_, error)) {
    static_cast<void>(AtomicFile(path_));  // nothing shall be computed that cannot be kept
    return;
  }
  const SessionReader reader = read();
  if (static_cast<int64_t>(reader.tokens().size()) > context.options().context) {
    fail("{} holds {} tokens and the context {}: raise --ctx", path_, reader.tokens().size(),
         context.options().context);
  }
  reader.load(sequence);
  held = reader.tokens();
  log::verbose("{}: {} tokens are held already", path_, held.size());
}

SessionReader Session::read() const {
  try {
    return {path_, model_};
  } catch (const Error& error) {
    fail("{}; remove the file to begin anew, or give another with --session", error.what());
  }
}

void Session::save() const {
  if (!path_.empty()) write_session(path_, model_, held, sequence);
}

}  // namespace moetier::cli
