#include "cli/local_server.h"

namespace moetier::cli {

LocalServer::LocalServer(Engine& engine, const ContextOptions& options, int port, const std::string& key)
    : context_(engine, options) {
  SchedulerOptions serving;
  serving.log_requests = false;
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
}

}  // namespace moetier::cli
