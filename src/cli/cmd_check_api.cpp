// check-api: a server of its own, asked through its socket: both APIs, keys, and a cache that is used.
#include <fmt/format.h>
#include <httplib.h>

#include "base/error.h"
#include "cli/command.h"
#include "cli/local_server.h"
#include "cli/support.h"

namespace moetier::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kContext = 1024;
constexpr int kTokens = 16;
constexpr const char* kKey = "check-api";

/// Asks, notes what is wrong, and goes on.
class ApiCheck {
 public:
  explicit ApiCheck(int port) : port_(port) {}
  int problems() const { return problems_; }

  void all(bool cached) {
    check_keys();
    const double before = counter("llamacpp:moe_cache_hits_total") + counter("llamacpp:moe_cache_misses_total");
    check_openai();
    check_anthropic();
    check_errors();
    const double after = counter("llamacpp:moe_cache_hits_total") + counter("llamacpp:moe_cache_misses_total");
    expect(!cached || after > before, "the cache's counters move", fmt::format("{} before, {} after", before, after));
  }

 private:
  void expect(bool good, const std::string& what, const std::string& otherwise) {
    print_out(fmt::format("{}  {}{}\n", good ? "ok    " : "FAILED", what, good ? "" : ": " + otherwise));
    if (!good) ++problems_;
  }

  httplib::Client client(const char* key) const {
    httplib::Client out("127.0.0.1", port_);
    out.set_read_timeout(600);
    if (key != nullptr) out.set_default_headers({{"Authorization", fmt::format("Bearer {}", key)}});
    return out;
  }

  std::pair<int, std::string> get(const std::string& path, const char* key = kKey) {
    const auto result = client(key).Get(path);
    return result ? std::pair(result->status, result->body) : std::pair(0, httplib::to_string(result.error()));
  }
  std::pair<int, std::string> post(const std::string& path, const Json& body, const char* key = kKey) {
    const auto result = client(key).Post(path, body.dump(), "application/json");
    return result ? std::pair(result->status, result->body) : std::pair(0, httplib::to_string(result.error()));
  }

  void check_keys() {
    const auto open = get("/health", nullptr);
    expect(open.first == 200, "/health needs no key", open.second);
    for (const char* path : {"/v1/models", "/metrics", "/slots", "/props"}) {
      const int missing = get(path, nullptr).first, wrong = get(path, "wrong").first, right = get(path).first;
      expect(missing == 401 && wrong == 401 && right == 200, fmt::format("{} wants the key", path),
             fmt::format("without it {}, with a wrong one {}, with the right one {}", missing, wrong, right));
    }
    httplib::Client plain("127.0.0.1", port_);
    const auto header = plain.Get("/v1/models", {{"X-Api-Key", kKey}});
    expect(header && header->status == 200, "X-Api-Key is a key too", "it is not taken");
  }

  /// The value of a series without labels; 0 if it is not there.
  double counter(const std::string& name) {
    const std::string text = get("/metrics").second;
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? 0 : std::strtod(text.c_str() + at + name.size() + 2, nullptr);
  }

  /// An answer of 200 as JSON, in which `find` finds a text.
  template <typename Find>
  std::string text_of(const std::string& path, const Json& body, Find find) {
    const auto [status, reply] = post(path, body);
    try {
      const std::string text = status == 200 ? find(Json::parse(reply)) : "";
      expect(status == 200, path, fmt::format("{} {}", status, reply.substr(0, 200)));
      return text;
    } catch (const Json::exception& error) {
      expect(false, path, fmt::format("{} in {}", error.what(), reply.substr(0, 200)));
      return "";
    }
  }

  /// A stream's texts put together.
  template <typename Find>
  std::string stream_of(const std::string& path, Json body, Find find) {
    body["stream"] = true;
    const std::string reply = post(path, body).second;
    std::string text;
    for (size_t at = reply.find("data: {"); at != std::string::npos; at = reply.find("data: {", at + 1)) {
      const Json event = Json::parse(reply.substr(at + 6, reply.find('\n', at) - at - 6), nullptr, false);
      if (event.is_object()) text += find(event);
    }
    return text;
  }

  void same(const std::string& path, const std::string& whole, const std::string& streamed) {
    expect(!whole.empty() && whole == streamed, path + " streams the same text",
           fmt::format("'{}' and '{}'", whole, streamed));
  }

  void check_openai() {
    const Json messages = {{{"role", "user"}, {"content", "Once upon a time"}}};
    const Json chat = {{"model", "m"}, {"messages", messages}, {"max_tokens", kTokens}, {"temperature", 0}};
    const auto chat_text = [](const Json& j) {
      return j["choices"][0]["message"].value("reasoning_content", std::string()) +
             j["choices"][0]["message"]["content"].get<std::string>();
    };
    const auto chat_delta = [](const Json& j) {
      const Json& delta = j["choices"][0]["delta"];
      return delta.value("reasoning_content", std::string()) + delta.value("content", std::string());
    };
    const std::string chat_path = "/v1/chat/completions";
    same(chat_path, text_of(chat_path, chat, chat_text), stream_of(chat_path, chat, chat_delta));
    const Json plain = {{"prompt", "Once upon a time"}, {"max_tokens", kTokens}, {"temperature", 0}};
    const auto plain_text = [](const Json& j) { return j["choices"][0]["text"].get<std::string>(); };
    same("/v1/completions", text_of("/v1/completions", plain, plain_text),
         stream_of("/v1/completions", plain, plain_text));
    const Json response = {{"input", "Once upon a time"}, {"max_output_tokens", kTokens}, {"temperature", 0}};
    const auto output = [](const Json& j) {
      std::string text;
      for (const Json& item : j["output"]) {
        for (const Json& part : item["content"]) text += part["text"].get<std::string>();
      }
      return text;
    };
    const auto output_delta = [](const Json& j) {
      return j.value("type", "").ends_with("text.delta") ? j["delta"].get<std::string>() : std::string();
    };
    same("/v1/responses", text_of("/v1/responses", response, output),
         stream_of("/v1/responses", response, output_delta));
  }

  void check_anthropic() {
    const Json body = {{"model", "m"},
                       {"messages", {{{"role", "user"}, {"content", "Once upon a time"}}}},
                       {"max_tokens", kTokens},
                       {"temperature", 0}};
    const auto text = [](const Json& j) {
      std::string all;
      for (const Json& block : j["content"]) all += block.value("thinking", "") + block.value("text", "");
      return all;
    };
    const auto delta = [](const Json& j) {
      if (j.value("type", "") != "content_block_delta") return std::string();
      return j["delta"].value("thinking", std::string()) + j["delta"].value("text", std::string());
    };
    same("/v1/messages", text_of("/v1/messages", body, text), stream_of("/v1/messages", body, delta));
    const auto [status, counted] = post("/v1/messages/count_tokens", body);
    expect(status == 200 && counted.find("\"input_tokens\":") != std::string::npos, "/v1/messages/count_tokens",
           counted);
  }

  void check_errors() {
    const auto openai = post("/v1/chat/completions", {{"messages", 3}});
    expect(openai.first == 400 && openai.second.find("\"param\":\"messages\"") != std::string::npos,
           "OpenAI's errors name the field", openai.second);
    const auto anthropic = post("/v1/messages", {{"model", "m"}});
    expect(anthropic.first == 400 && anthropic.second.find("\"type\":\"error\"") != std::string::npos,
           "Anthropic's errors have their shape", anthropic.second);
    const auto nowhere = get("/v1/nowhere");
    expect(nowhere.first == 404, "what is not there is 404", nowhere.second);
  }

  int port_, problems_ = 0;
};

/// The log of --moe-cache-audit, if it was asked for.
std::unique_ptr<AuditLog> open_log(const Settings& settings, const EngineOptions& options, Context& context) {
  if (!settings.is_set("moe-cache-audit")) return nullptr;
  AuditParams params;
  params.cache_mib = settings.integer("cache-mib");
  params.threads = options.cpu.threads;
  params.profile = options.residency.profile;
  return std::make_unique<AuditLog>(settings.text("moe-cache-audit"), context, params);
}

}  // namespace

int run_check_api(const Settings& settings) {
  refuse_overwriting(settings, "moe-cache-audit", {"model", "profile"});
  EngineOptions options;
  options.cpu.threads = thread_count(settings);
  options.overrides = settings.texts("override-kv");
  options.residency.mode = ExpertMode::stream;
  options.residency.cache_bytes = static_cast<uint64_t>(settings.integer("cache-mib")) << 20;
  options.residency.profile = settings.text("profile");
  const auto engine = Engine::load(need(settings, "model"), options);
  ContextOptions wanted;
  wanted.context = kContext;
  const LocalServer server(*engine, wanted, 0, kKey,
                           [&](Context& context) { return open_log(settings, options, context); });
  ApiCheck check(server.port());
  check.all(engine->store() != nullptr);
  if (check.problems() > 0) fail("{} problems with the APIs", check.problems());
  return 0;
}

}  // namespace moetier::cli
