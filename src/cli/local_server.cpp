#include "cli/local_server.h"

#include "base/log.h"

namespace moetier::cli {

LocalServer::LocalServer(Engine& engine, const ContextOptions& options, int port, const std::string& key,
                         const OpenAudit& open_audit)
    : context_(engine, options), audit_(open_audit ? open_audit(context_) : nullptr) {
  SchedulerOptions serving;
  serving.log_requests = false;
  serving.audit = audit_.get();
  if (audit_ != nullptr) audit_->ready(context_);
  scheduler_.emplace(context_, serving);
  model_.emplace(engine, "model", "");
  server::ServiceOptions service;
  if (!key.empty()) service.keys.add(key);
  server::HttpOptions http;
  http.port = port;
  api_.emplace(*model_, *scheduler_, std::move(service), http);
  api_->start();
}

LocalServer::~LocalServer() {
  api_->stop();
  scheduler_->stop();
  if (audit_ == nullptr) return;
  try {
    audit_->exit(context_);
  } catch (const std::exception& error) {
    log::warn("the audit log has no exit record: {}", error.what());
  }
}

}  // namespace moetier::cli
