#include "cli/check_api.h"

#include <fmt/format.h>
#include <httplib.h>

#include <algorithm>

#include "base/error.h"
#include "base/json_shape.h"
#include "cli/support.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostSeconds = 600;  // for an answer: a streamed model takes its time

httplib::Client client_of(const ApiTarget& target) {
  httplib::Client client(target.url.host);
  client.set_read_timeout(kMostSeconds);
  return client;
}

httplib::Headers headers_of(const ApiTarget& target, const std::optional<std::string>& key) {
  const std::string& used = key ? *key : target.key;
  if (used.empty()) return {};
  return {{"Authorization", "Bearer " + used}};
}

ApiReply reply_of(const httplib::Result& result) {
  if (!result) return {0, "no answer: " + httplib::to_string(result.error()), Json::value_t::discarded, ""};
  return {result->status, result->body, Json::parse(result->body, nullptr, false),
          result->get_header_value("Content-Type")};
}

std::string_view word_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::passed:
      return "ok";
    case Outcome::failed:
      return "FAILED";
    case Outcome::absent:
      return "absent";
    case Outcome::unclear:
      return "unclear";
  }
  return "";
}

/// An answer of 200, or the reason why there is none.
void expect_ok(const ApiReply& reply, const std::string& path) {
  if (reply.status == 404 || reply.status == 405 || reply.status == 501)
    throw NotThere(fmt::format("{} is not there ({})", path, reply.status));
  expect(reply.status == 200, "status 200", fmt::format("{}: {}", reply.status, reply.body));
}

/// One event without its empty line; comments come to nullopt.
std::optional<ApiEvent> event_of(std::string_view block) {
  ApiEvent event;
  std::string data;
  bool has_data = false;
  while (!block.empty()) {
    const size_t end = std::min(block.find('\n'), block.size());
    std::string_view line = block.substr(0, end);
    block.remove_prefix(std::min(end + 1, block.size()));
    const size_t colon = std::min(line.find(':'), line.size());
    const std::string_view field = line.substr(0, colon);
    line.remove_prefix(std::min(colon + 1, line.size()));
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (field == "event") event.name = line;
    if (field == "data") {
      if (has_data) data += '\n';
      data += line;
      has_data = true;
    }
  }
  if (!has_data) return std::nullopt;
  if (data == "[DONE]") return event;
  event.json = Json::parse(data, nullptr, false);
  expect(event.json.is_object(), "a JSON object as the data of every event", data);
  return event;
}

std::vector<ApiEvent> events_of(std::string text) {
  std::erase(text, '\r');
  std::vector<ApiEvent> events;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find("\n\n", at);
    expect(end != std::string::npos, "an empty line after every event", text.substr(at));
    if (auto event = event_of(std::string_view(text).substr(at, end - at))) events.push_back(std::move(*event));
    at = end + 2;
  }
  expect(!events.empty(), "a stream of events", "none");
  return events;
}

}  // namespace

std::string shown(std::string_view text) {
  constexpr size_t kMost = 200;
  std::string out(text.substr(0, kMost));
  for (char& c : out) c = c == '\n' || c == '\r' || c == '\t' ? ' ' : c;
  return text.size() > kMost ? out + "..." : out;
}

Wrong::Wrong(std::string_view expected, std::string_view got)
    : runtime_error(fmt::format("expected {}, got {}", expected, got.empty() ? "nothing" : shown(got))) {}

void expect(bool good, std::string_view expected, std::string_view got) {
  if (!good) throw Wrong(expected, got);
}

void expect_json(const Json& json, const Json& shape, std::string_view what) {
  const std::string problem = shape_problem(json, shape);
  if (!problem.empty()) throw Wrong(fmt::format("{} in its shape", what), problem);
}

std::string text_at(const Json& json, const std::string& pointer) {
  const Json::json_pointer place(pointer);
  if (!json.contains(place) || !json.at(place).is_string()) return "";
  return json.at(place).get<std::string>();
}

void expect_same(const std::string& whole, const std::string& streamed) {
  expect(!whole.empty(), "a text", "an empty one");
  expect(whole == streamed, fmt::format("the same text streamed as whole: '{}'", shown(whole)),
         fmt::format("'{}'", streamed));
}

std::string stop_in(const std::string& text) {
  constexpr size_t kLength = 3;
  for (size_t at = text.size() / 2; at + kLength <= text.size() && at > 0; ++at) {
    const std::string piece = text.substr(at, kLength);
    const bool plain = std::ranges::all_of(piece, [](char c) { return c > ' ' && c <= '~'; });
    if (plain) return piece;
  }
  throw Unclear(fmt::format("the answer '{}' has no piece of plain text to stop at", shown(text)));
}

const Json& document_schema() {
  static const Json schema = {
      {"type", "object"},
      {"properties",
       {{"days", {{"type", "integer"}, {"minimum", 1}, {"maximum", 9}}}, {"cold", {{"type", "boolean"}}}}},
      {"required", {"days", "cold"}},
      {"additionalProperties", false}};
  return schema;
}

void expect_document(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  expect(!json.is_discarded(), "a JSON document", text);
  expect_json(json, {{"days", "int"}, {"cold", "bool"}}, "a document of the schema");
  const int64_t days = json["days"].get<int64_t>();
  expect(json.size() == 2 && days >= 1 && days <= 9, "a document of the schema", text);
}

std::optional<double> series_value(const std::string& metrics, const std::string& name) {
  const size_t at = ("\n" + metrics).find("\n" + name + " ");
  if (at == std::string::npos) return std::nullopt;
  return std::strtod(metrics.c_str() + at + name.size() + 1, nullptr);
}

Outcome ApiCheck::check(std::string_view name, Need need, const std::function<void()>& body) {
  if (interrupted()) fail("interrupted: the work is not complete");
  Outcome outcome = Outcome::passed;
  std::string detail;
  try {
    body();
  } catch (const Wrong& wrong) {
    outcome = Outcome::failed;
    detail = wrong.what();
  } catch (const NotThere& absent) {
    outcome = need == Need::required || target_.complete ? Outcome::failed : Outcome::absent;
    detail = absent.what();
  } catch (const Unclear& unclear) {
    outcome = Outcome::unclear;
    detail = unclear.what();
  } catch (const Json::exception& error) {
    outcome = Outcome::failed;
    detail = error.what();
  }
  ++counts_[static_cast<size_t>(outcome)];
  print_out(fmt::format("{:<8}{}{}{}\n", word_of(outcome), name, detail.empty() ? "" : ": ", detail));
  return outcome;
}

ApiReply ApiCheck::get(const std::string& path, const std::optional<std::string>& key) const {
  return reply_of(client_of(target_).Get(target_.url.prefix + path, headers_of(target_, key)));
}

ApiReply ApiCheck::get_with(const std::string& path, const std::string& header, const std::string& value) const {
  return reply_of(client_of(target_).Get(target_.url.prefix + path, httplib::Headers{{header, value}}));
}

ApiReply ApiCheck::post_text(const std::string& path, const std::string& body,
                             const std::optional<std::string>& key) const {
  return reply_of(
      client_of(target_).Post(target_.url.prefix + path, headers_of(target_, key), body, "application/json"));
}

ApiReply ApiCheck::post(const std::string& path, const Json& body, const std::optional<std::string>& key) const {
  return post_text(path, body.dump(), key);
}

bool ApiCheck::hang_up(const std::string& path, Json body, const std::string& mark) const {
  body["stream"] = true;
  httplib::Request request;
  request.method = "POST";
  request.path = target_.url.prefix + path;
  request.headers = headers_of(target_, {});
  request.set_header("Content-Type", "application/json");
  request.body = body.dump();
  std::string text;
  int status = 0;
  bool found = false;
  request.response_handler = [&](const httplib::Response& response) {
    status = response.status;
    return true;
  };
  request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
    text.append(data, size);
    found = status == 200 && text.find(mark) != std::string::npos;
    return !found;
  };
  httplib::Client client = client_of(target_);
  static_cast<void>(client.send(request));  // an error where we hung up
  if (status != 0) expect_ok({status, text, {}, ""}, path);
  return found;
}

Json ApiCheck::answer(const std::string& path, const Json& body, const Json& shape) const {
  ApiReply reply = post(path, body);
  expect_ok(reply, path);
  expect(!reply.json.is_discarded(), "JSON", reply.body);
  expect_json(reply.json, shape, "the answer");
  return std::move(reply.json);
}

Json ApiCheck::status(const std::string& path, const Json& shape) const {
  ApiReply reply = get(path);
  expect_ok(reply, path);
  expect(!reply.json.is_discarded(), "JSON", reply.body);
  expect_json(reply.json, shape, "the answer");
  return std::move(reply.json);
}

std::vector<ApiEvent> ApiCheck::stream(const std::string& path, Json body) const {
  body["stream"] = true;
  const ApiReply reply = post(path, body);
  expect_ok(reply, path);
  expect(reply.type.starts_with("text/event-stream"), "Content-Type text/event-stream", reply.type);
  return events_of(reply.body);
}

Json ApiCheck::refused(const ApiReply& reply, int status, const Json& shape) const {
  if (status != 404 && (reply.status == 404 || reply.status == 405 || reply.status == 501))
    throw NotThere(fmt::format("the endpoint is not there ({})", reply.status));
  expect(reply.status == status, fmt::format("status {}", status), fmt::format("{}: {}", reply.status, reply.body));
  expect(!reply.json.is_discarded(), "an error as JSON", reply.body);
  expect_json(reply.json, shape, "the error");
  return reply.json;
}

const Json& ApiCheck::no_thoughts() {
  if (no_thoughts_) return *no_thoughts_;
  no_thoughts_ = Json::object();
  const auto ban = [&](const std::string& text) {
    const ApiReply reply = post("/tokenize", {{"content", text}});
    const Json::json_pointer place("/tokens");
    if (reply.status != 200 || !reply.json.contains(place) || reply.json.at(place).size() != 1) return false;
    const Json& id = reply.json.at(place)[0];
    if (id.is_number_integer()) (*no_thoughts_)[std::to_string(id.get<int64_t>())] = -100;
    return true;
  };
  if (ban("<think>")) return *no_thoughts_;
  // It is several tokens: those that go on after "<" and after "<t" towards it.
  for (const char* text : {"th", "thi", "thin", "think", "h", "hi", "hin", "hink", "<th", "<thi", "<thin", "<think"})
    ban(text);
  return *no_thoughts_;
}

void check_apis(ApiCheck& check) {
  const ApiReply first = check.get("/v1/models");
  if (first.status == 0) fail("the server at {} does not answer: {}", check.target().url.host, first.body);
  const auto looked_up = [&] {
    const std::string text = check.get("/metrics").body;
    return series_value(text, "llamacpp:moe_cache_hits_total").value_or(0) +
           series_value(text, "llamacpp:moe_cache_misses_total").value_or(0);
  };
  const double before = check.target().cached ? looked_up() : 0;
  check_status(check);
  check_keys(check);
  check_chat(check);
  check_completions(check);
  check_responses(check);
  check_messages(check);
  check_native(check);
  check_embeddings(check);
  check_errors(check);
  check_cancel(check);
  if (!check.target().cached) return;
  check.check("/metrics: the cache's counters move", Need::required, [&] {
    const double after = looked_up();
    expect(after > before, fmt::format("more than {} hits and misses", before), fmt::format("{}", after));
  });
}

}  // namespace moetier::cli
