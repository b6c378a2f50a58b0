// A server of this process's own, for commands that ask a model through its APIs.
#pragma once

#include <optional>
#include <string>

#include "engine/context.h"
#include "server/api_server.h"

namespace moetier::cli {

class LocalServer {
 public:
  /// Listens on 127.0.0.1; `port` 0 = any that is free, `key` empty = none is asked for. Errors: a port that cannot be
  /// had.
  LocalServer(Engine& engine, const ContextOptions& options, int port, const std::string& key);
  ~LocalServer();
  int port() const { return api_->port(); }
  std::string url() const { return api_->url(); }

 private:
  Context context_;
  std::optional<Scheduler> scheduler_;
  std::optional<server::ServedModel> model_;
  std::optional<server::ApiServer> api_;
};

}  // namespace moetier::cli
