// The server: endpoints over a model and its scheduler, on HTTP.
#pragma once

#include <memory>

#include "server/api/service.h"

namespace moetier::server {

class ApiServer {
 public:
  /// Binds; answers from start() on. `model` and `scheduler` outlive it. The number of threads and the gates follow
  /// from the scheduler's slots and queue. Errors: an address that cannot be had, unusable TLS files.
  ApiServer(ServedModel& model, Scheduler& scheduler, ServiceOptions options, HttpOptions http);
  ~ApiServer();

  void start();
  int port() const;
  /// What the address is called, for people: "http://127.0.0.1:8080".
  std::string url() const;
  /// Takes no more connections and requests, and lets those under way end, for up to `most_seconds`; false if some
  /// were left.
  bool drain(double most_seconds);
  /// Ends everything at once.
  void stop();

 private:
  std::unique_ptr<Service> service_;
  std::unique_ptr<HttpServer> http_;
  std::string scheme_, host_;
};

}  // namespace moetier::server
