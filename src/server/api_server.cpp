#include "server/api_server.h"

#include <fmt/format.h>

#include "base/error.h"
#include "server/pages.h"

namespace moetier::server {
namespace {

constexpr int kWorking = 32;      // requests that compute a little or answer much, at once
constexpr double kLastWords = 2;  // seconds
constexpr int kReserve = 32;      // threads for what is answered at once: /health, errors, refusals

/// The web pages, and nothing where none were built in.
void add_pages(HttpServer& server) {
  for (const Page& page : pages()) {
    server.Get(std::string(page.path), [page](const httplib::Request&, httplib::Response& response) {
      // No script, style or connection but the server's own (a monitor may watch another server).
      response.set_header("Content-Security-Policy",
                          "default-src 'self'; style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'; "
                          "img-src 'self' data:; connect-src *; frame-ancestors 'none'; base-uri 'none'");
      response.set_header("X-Content-Type-Options", "nosniff");
      response.set_header("Referrer-Policy", "no-referrer");
      response.set_header("Cache-Control", "no-cache");
      response.set_content(page.bytes.data(), page.bytes.size(), std::string(page.type));
    });
  }
}

}  // namespace

ApiServer::ApiServer(ServiceOptions options, HttpOptions http, int most_served)
    : options_(std::move(options)), most_served_(most_served) {
  http.limits.workers = most_served + kWorking + kReserve;
  http_ = std::make_unique<HttpServer>(http);
  scheme_ = http.key_file.empty() ? "http" : "https";
  host_ = http.host.find(':') == std::string::npos ? http.host : fmt::format("[{}]", http.host);
  add_guards(*http_, options_, ready_);
}

ApiServer::ApiServer(ServedModel& model, Scheduler& scheduler, ServiceOptions options, HttpOptions http)
    : ApiServer(std::move(options), std::move(http), scheduler.options().parallel + scheduler.options().queue) {
  ready(model, scheduler, options_.pooling);
}

void ApiServer::ready(ServedModel& model, Scheduler& scheduler, Pooling pooling) {
  options_.pooling = pooling;
  service_ = std::unique_ptr<Service>(new Service{.model = model,
                                                  .scheduler = scheduler,
                                                  .options = options_,
                                                  .generating = Gate(most_served_),
                                                  .working = Gate(kWorking)});
  Routes routes(*http_, *service_);
  add_status_routes(routes);
  add_text_routes(routes);
  add_completion_routes(routes);
  add_openai_chat(routes);
  add_openai_completions(routes);
  add_responses_routes(routes);
  add_anthropic_routes(routes);
  add_embedding_routes(routes);
  routes.refuse_other_methods();
  if (options_.pages) add_pages(*http_);
  // Until here no thread of the server has looked at the routes: the guard answers before they are searched.
  ready_.store(true, std::memory_order_release);
}

ApiServer::~ApiServer() = default;

void ApiServer::start() {
  http_->start();
}

int ApiServer::port() const {
  return http_->port();
}

std::string ApiServer::url() const {
  return fmt::format("{}://{}:{}", scheme_, host_, port());
}

bool ApiServer::drain(double most_seconds) {
  http_->drain();
  const auto began = Clock::now();
  service_->scheduler.drain(most_seconds);
  const double spent = std::chrono::duration<double>(Clock::now() - began).count();
  // Answers that are computed may still be on their way to their readers.
  return http_->wait_idle(std::max(most_seconds - spent, 2.0));
}

void ApiServer::stop() {
  http_->drain();
  if (service_ != nullptr) service_->scheduler.stop();
  // Every stream has its last event now; whoever reads has a moment to get it.
  http_->wait_idle(kLastWords);
  http_->stop_now();
}

}  // namespace moetier::server
