#include "cli/session.h"

#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "server/session_file.h"

namespace moetier::cli {

Session::Session(const Settings& settings, Context& context) : sequence(context.new_sequence()) {
  if (!settings.is_set("session")) return;
  path_ = settings.text("session");
  model_ = identify(context);
  std::error_code error;
  if (!std::filesystem::exists(path_, error)) return;
  const SessionReader reader(path_, model_);
  if (static_cast<int64_t>(reader.tokens().size()) > context.options().context) {
    fail("{} holds {} tokens and the context {}: raise --ctx", path_, reader.tokens().size(),
         context.options().context);
  }
  reader.load(sequence);
  held = reader.tokens();
  log::verbose("{}: {} tokens are held already", path_, held.size());
}

void Session::save() const {
  if (!path_.empty()) write_session(path_, model_, held, sequence);
}

}  // namespace moetier::cli
