// The server: endpoints over a model and its scheduler, on HTTP.
#pragma once

#include <atomic>
#include <memory>

#include "server/api/service.h"

namespace moetier::server {

class ApiServer {
 public:
  /// Binds. From start() on it answers: with 503 ("Loading model") until ready(), then for good. `most_served` requests
  /// generate or wait at once; threads and gates follow from it. Errors: an address that cannot be had, unusable TLS
  /// files.
  ApiServer(ServiceOptions options, HttpOptions http, int most_served);
  /// One that is ready when it starts.
  ApiServer(ServedModel& model, Scheduler& scheduler, ServiceOptions options, HttpOptions http);
  ~ApiServer();

  void start();
  /// The model is there: from now on requests are served. To be called once. `model` and `scheduler` must last until
  /// stop() has come back. `pooling` is of embeddings.
  void ready(ServedModel& model, Scheduler& scheduler, Pooling pooling);
  int port() const;
  /// What the address is called, for people: "http://127.0.0.1:8080".
  std::string url() const;
  /// Takes no more connections and requests, and lets those under way end, for up to `most_seconds`; false if some
  /// were left. Only when it is ready.
  bool drain(double most_seconds);
  /// Ends everything: what is generated at once, and connections as soon as their answers' ends are sent, for which
  /// they have two seconds.
  void stop();

 private:
  ServiceOptions options_;
  const int most_served_;
  std::atomic<bool> ready_{false};
  std::unique_ptr<Service> service_;
  std::unique_ptr<HttpServer> http_;
  std::string scheme_, host_;
};

}  // namespace moetier::server
