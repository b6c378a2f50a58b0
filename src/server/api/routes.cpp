#include <fmt/format.h>

#include "base/log.h"
#include "server/api/answers.h"
#include "server/api/page_origin.h"
#include "server/api/service.h"
#include "server/api/sse.h"
#include "server/http/listen.h"

namespace moetier::server {
namespace {

constexpr std::string_view kJson = "application/json; charset=utf-8";

std::string read_body(const httplib::ContentReader& reader, const httplib::Request& request, size_t most) {
  if (request.is_multipart_form_data()) throw ApiError(415, "multipart forms are not taken; send a JSON body");
  if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding")) return "";
  std::string body;
  bool over = false;  // after unpacking
  const bool whole = reader([&](const char* data, size_t size) {
    over = body.size() + size > most;
    if (!over) body.append(data, size);
    return !over;
  });
  if (over) throw ApiError(413, body_too_large(most));
  if (!whole) throw ApiError(400, "the body could not be read: it is malformed");
  return body;
}

void enter(Service& service, Cost cost) {
  if (cost == Cost::light) return;
  Gate& gate = cost == Cost::generation ? service.generating : service.working;
  auto lease = gate.enter();
  if (lease == nullptr) {
    ApiError busy(429, fmt::format("{} requests are being served and the queue is full; try again later", gate.most()));
    busy.retry_after = 1;
    throw busy;
  }
  if (Connection* connection = current_connection()) connection->hold(std::move(lease));
}

void guarded(const httplib::Request& request, httplib::Response& response, const std::function<void()>& work) {
  try {
    work();
  } catch (const ClientGone&) {
    if (Connection* connection = current_connection()) connection->close_after();
    response.status = 499;  // it is not sent: the connection has failed
  } catch (...) {
    answer_error(response, api_of(request.path), to_api_error(std::current_exception()));
  }
}

bool is_open(const std::string& path) {
  return path == "/health" || path == "/favicon.ico" || path == "/v1/health" || path == "/" || path == "/monitor" ||
         path.starts_with("/assets/");
}

std::string given_key(const httplib::Request& request) {
  const std::string authorization = request.get_header_value("Authorization");
  constexpr std::string_view kBearer = "bearer ";
  if (authorization.size() > kBearer.size()) {
    std::string scheme = authorization.substr(0, kBearer.size());
    for (char& c : scheme) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (scheme == kBearer) return authorization.substr(kBearer.size());
  }
  return request.get_header_value("X-Api-Key");
}

/// Whether the request brings a key; if not, it is answered.
bool may_enter(const ApiKeys& keys, const httplib::Request& request, httplib::Response& response) {
  const std::string key = given_key(request);
  if (!key.empty() && keys.accepts(key)) return true;
  answer_error(response, api_of(request.path),
               ApiError(401, key.empty() ? "an API key is needed: send it as 'Authorization: Bearer KEY' or 'X-Api-Key'"
                                         : "the API key is not one of this server's"));
  return false;
}

/// Whether the request may come from where it comes from; if not, it is answered. A page cannot know a key.
bool may_send(const ServiceOptions& options, const OwnAddress& own, const httplib::Request& request,
              httplib::Response& response) {
  if (!options.keys.empty() || request.path == "/health") return true;
  const std::string origin = request.get_header_value("Origin"), host = request.get_header_value("Host"),
                    forwarded = request.get_header_value("X-Forwarded-Host");
  std::string why;
  if (is_foreign_name(host, own)) {
    why = fmt::format(
        "the server is not known as {}, a name that anyone may have led here: ask for localhost, or start "
        "it with --host NAME or with --api-key",
        host);
  } else if (request.method == "POST" && is_foreign_page({origin, host, forwarded})) {
    why = fmt::format(
        "a web page of {} may not use this server, which did not send it (Host is {}) and asks for no API "
        "key: start it with --api-key, or have the proxy pass on the Host that it was asked for",
        origin, host);
  }
  if (!why.empty()) answer_error(response, api_of(request.path), ApiError(403, why));
  return why.empty();
}

/// As llama-server says it, so that what waits for one waits for the other; a browser asks again by itself.
void answer_loading(const httplib::Request& request, httplib::Response& response, bool pages) {
  response.set_header("Retry-After", "1");
  if (pages && (request.path == "/" || request.path == "/monitor")) {
    response.status = 503;
    response.set_content(
        "<!doctype html><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"2\"><title>Moetier</title>"
        "<p>The model is being loaded.</p>\n",
        "text/html; charset=utf-8");
    return;
  }
  const ApiError loading(503, "Loading model");
  if (api_of(request.path) == Api::anthropic) return answer_error(response, Api::anthropic, loading);
  answer_error(response, Api::native, loading);
}

bool open_across_origins(const std::string& path) {
  return path == "/metrics" || path == "/slots" || path == "/props";
}

/// Lets one origin read what a monitor needs, and no more.
void allow_origin(const ServiceOptions& options, const httplib::Request& request, httplib::Response& response) {
  const std::string& origin = options.cors_origin;
  if (origin.empty() || !open_across_origins(request.path) || request.get_header_value("Origin") != origin) return;
  response.set_header("Access-Control-Allow-Origin", origin);
  response.set_header("Vary", "Origin");
  if (request.method == "OPTIONS") {
    response.set_header("Access-Control-Allow-Methods", "GET");
    response.set_header("Access-Control-Allow-Headers", "Authorization, X-Api-Key");
    response.set_header("Access-Control-Max-Age", "600");
  }
}

}  // namespace

std::string http_metrics(const Service& service, const HttpServer& server) {
  std::string text;
  const auto add = [&](std::string_view name, std::string_view type, std::string_view help, uint64_t value) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, type, value);
  };
  add("moetier:http_connections", "gauge", "Open connections.", static_cast<uint64_t>(server.open()));
  add("moetier:http_connections_refused_total", "counter", "Connections refused because too many were open.",
      server.refused);
  add("moetier:http_requests_active", "gauge", "Requests being answered.", static_cast<uint64_t>(server.active()));
  add("moetier:http_generating", "gauge", "Requests that generate or wait for it.",
      static_cast<uint64_t>(service.generating.inside()));
  return text;
}

void answer(httplib::Response& response, const Json& json, int status) {
  response.status = status;
  response.set_content(dump(json), std::string(kJson));
}

void answer_error(httplib::Response& response, Api api, const ApiError& error) {
  if (error.retry_after > 0) response.set_header("Retry-After", std::to_string(error.retry_after));
  if (error.status() == 401) response.set_header("WWW-Authenticate", "Bearer");
  answer(response, error_body(api, error), error.status());
}

void Routes::get(const std::string& pattern, Cost cost, Handler handler) {
  methods_[pattern].get = true;
  server_.Get(pattern, [this_service = &service_, cost, handler = std::move(handler)](const httplib::Request& request,
                                                                                      httplib::Response& response) {
    guarded(request, response, [&] {
      enter(*this_service, cost);
      handler(request, "", response);
    });
  });
}

void Routes::post(const std::string& pattern, Cost cost, Handler handler) {
  const size_t most = server_.limits().body_bytes;
  methods_[pattern].post = true;
  server_.Post(pattern,
               [this_service = &service_, most, cost, handler = std::move(handler)](
                   const httplib::Request& request, httplib::Response& response, const httplib::ContentReader& reader) {
                 guarded(request, response, [&] {
                   const std::string body = read_body(reader, request, most);
                   enter(*this_service, cost);
                   handler(request, body, response);
                 });
               });
}

void Routes::refuse_other_methods() {
  for (const auto& [pattern, has] : methods_) {
    const std::string allowed = has.get && has.post ? "GET, HEAD, POST" : has.get ? "GET, HEAD" : "POST";
    const auto refuse = [allowed](const httplib::Request& request, httplib::Response& response) {
      response.set_header("Allow", allowed);
      const ApiError error(405, fmt::format("{} takes {}, not {}", request.path, allowed, request.method));
      answer_error(response, api_of(request.path), error);
    };
    if (!has.get) server_.Get(pattern, refuse);
    if (!has.post) server_.Post(pattern, refuse);
    server_.Put(pattern, refuse);
    server_.Patch(pattern, refuse);
    server_.Delete(pattern, refuse);
  }
}

void add_guards(HttpServer& server, const ServiceOptions& options, const std::atomic<bool>& ready) {
  const OwnAddress own = {server.host(), server.port(), is_loopback(server.host()), server.encrypted()};
  server.set_pre_routing_handler([&options, &ready, own](const httplib::Request& request, httplib::Response& response) {
    using Outcome = httplib::Server::HandlerResponse;
    allow_origin(options, request, response);
    if (request.method == "OPTIONS") {
      response.status = 204;
      return Outcome::Handled;
    }
    if (!may_send(options, own, request, response)) return Outcome::Handled;
    if (options.keys.empty() || is_open(request.path) || may_enter(options.keys, request, response)) {
      if (ready.load(std::memory_order_acquire)) return Outcome::Unhandled;
      answer_loading(request, response, options.pages);
    }
    return Outcome::Handled;
  });
  server.set_refusal_body([](const std::string& target, int status, const std::string& sentence) {
    return dump(error_body(api_of(target), ApiError(status, sentence)));
  });
  server.set_error_handler([](const httplib::Request& request, httplib::Response& response) {
    if (!response.body.empty() || response.status < 400 || response.status == 499) return;
    std::string sentence = fmt::format("the request failed with status {}", response.status);
    if (response.status == 404) sentence = fmt::format("there is no {} {} here", request.method, request.path);
    if (response.status == 400) sentence = "the request is malformed";
    answer_error(response, api_of(request.path), ApiError(response.status, sentence));
  });
  // Who wonders why a client fails finds it with -v; sentences may quote the request and stay out.
  server.set_logger([](const httplib::Request& request, const httplib::Response& response) {
    if (response.status < 400) return;
    log::verbose("{} {}: refused with status {}", one_line(request.method.substr(0, 16)),
                 one_line(request.path.substr(0, 200)), response.status);
  });
  server.set_exception_handler(
      [](const httplib::Request& request, httplib::Response& response, std::exception_ptr what) {
        answer_error(response, api_of(request.path), to_api_error(what));
      });
}

}  // namespace moetier::server
