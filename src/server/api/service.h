// What the endpoints share, and how they are put on the HTTP server.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <string>

#include "server/api/auth.h"
#include "server/api/gate.h"
#include "server/api/generation_params.h"
#include "server/api/served_model.h"
#include "server/http/http_server.h"
#include "server/scheduler.h"

namespace moetier::server {

/// Whose hidden state stands for a text.
enum class Pooling { mean, first, last };

struct ServiceOptions {
  GenerationDefaults defaults;
  ApiKeys keys;
  std::string cors_origin;          ///< may read /metrics, /slots and /props; empty = nobody
  double keep_alive_seconds = 15;   ///< of silence in a stream before a sign of life
  bool log_prompts = false;         ///< prompts and answers on standard error
  Pooling pooling = Pooling::last;  ///< of embeddings
  bool pages = true;                ///< the chat and the monitor, where they are built in
  Json settings = Json::object();   ///< for /props: the parameter table's values
};

/// The endpoints' surroundings. Outlives the HTTP server's threads.
struct Service {
  ServedModel& model;
  Scheduler& scheduler;
  const ServiceOptions& options;
  Gate generating, working;  ///< how many requests may do so at once
};

/// What a request costs, so that no kind of them takes all threads.
enum class Cost {
  light,       ///< answered at once and small
  work,        ///< some computing, or a large answer
  generation,  ///< waits for the scheduler
};

using Handler = std::function<void(const httplib::Request& request, const std::string& body, httplib::Response&)>;

/// Puts endpoints on a server: reads bodies within the limit, lets in no more than the gates allow, and turns what a
/// handler throws into its API's error.
class Routes {
 public:
  Routes(HttpServer& server, Service& service) : server_(server), service_(service) {}
  Service& service() const { return service_; }
  HttpServer& server() const { return server_; }
  void get(const std::string& pattern, Cost cost, Handler handler);
  void post(const std::string& pattern, Cost cost, Handler handler);
  /// To be called last: other methods on these paths are 405 with Allow.
  void refuse_other_methods();

 private:
  struct Methods {
    bool get = false, post = false;
  };
  std::map<std::string, Methods> methods_;  // by pattern
  HttpServer& server_;
  Service& service_;
};

/// Keys, CORS, errors that no handler makes (404 and the like), and 503 for everything until `ready`. All outlive the
/// server's threads.
void add_guards(HttpServer& server, const ServiceOptions& options, const std::atomic<bool>& ready);

/// The HTTP side of /metrics.
std::string http_metrics(const Service& service, const HttpServer& server);

void answer(httplib::Response& response, const Json& json, int status = 200);
void answer_error(httplib::Response& response, Api api, const ApiError& error);

// The endpoints, each group in its own file.
void add_status_routes(Routes& routes);      // health, props, slots, metrics, models
void add_text_routes(Routes& routes);        // tokenize, detokenize, apply-template
void add_completion_routes(Routes& routes);  // /completion
void add_openai_chat(Routes& routes);
void add_openai_completions(Routes& routes);
void add_responses_routes(Routes& routes);
void add_anthropic_routes(Routes& routes);
void add_embedding_routes(Routes& routes);

}  // namespace moetier::server
