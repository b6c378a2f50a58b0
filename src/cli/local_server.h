// A server of this process's own, for commands that ask a model through its APIs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/context.h"
#include "server/api_server.h"
#include "server/audit.h"

namespace moetier::cli {

class LocalServer {
 public:
  /// Opens the audit log of a context that was just made; null = there is none.
  using OpenAudit = std::function<std::unique_ptr<AuditLog>(Context&)>;

  /// Listens on 127.0.0.1; `port` 0 = any that is free, `key` empty = none is asked for. Errors: a port that cannot be
  /// had.
  LocalServer(Engine& engine, const ContextOptions& options, int port, const std::string& key,
              const OpenAudit& open_audit = {});
  ~LocalServer();  ///< writes the audit log's `exit`
  int port() const { return api_->port(); }
  std::string url() const { return api_->url(); }

 private:
  Context context_;
  std::unique_ptr<AuditLog> audit_;
  std::optional<Scheduler> scheduler_;
  std::optional<server::ServedModel> model_;
  std::optional<server::ApiServer> api_;
};

}  // namespace moetier::cli
