// Asks a server what its APIs promise, in small named checks, and tells how each went in a line.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cli/server_url.h"

namespace moetier::cli {

struct ApiTarget {
  ServerUrl url;
  std::string key;           ///< empty = the server wants none
  bool complete = false;     ///< an endpoint that is not there is a failure
  bool own = false;          ///< Moetier itself: what it promises beyond the APIs is checked too
  bool cached = false;       ///< it has a cache of experts
  int64_t max_tokens = 256;  ///< of answers that must come to an end: documents and tool calls
};

struct ApiReply {
  int status = 0;  ///< 0: no answer, and `body` says why
  std::string body;
  nlohmann::ordered_json json;  ///< discarded if the body is none
  std::string type;             ///< Content-Type
};

struct ApiEvent {
  std::string name;             ///< empty where there was none
  nlohmann::ordered_json json;  ///< null for [DONE]
};

enum class Need { required, optional };
enum class Outcome { passed, failed, absent, unclear };

/// What a check throws when something is not as it should be.
class Wrong : public std::runtime_error {
 public:
  Wrong(std::string_view expected, std::string_view got);
};
/// ... when the server has no such endpoint,
class NotThere : public std::runtime_error {
 public:
  using runtime_error::runtime_error;
};
/// ... and when it cannot be judged.
class Unclear : public std::runtime_error {
 public:
  using runtime_error::runtime_error;
};

void expect(bool good, std::string_view expected, std::string_view got);

class ApiCheck {
 public:
  using Json = nlohmann::ordered_json;
  explicit ApiCheck(ApiTarget target) : target_(std::move(target)) {}

  const ApiTarget& target() const { return target_; }
  /// One check and its line. What is absent fails where it is required, and everywhere with target().complete.
  Outcome check(std::string_view name, Need need, const std::function<void()>& body);
  /// What cannot be asked of other servers.
  void check_own(std::string_view name, const std::function<void()>& body) {
    if (target_.own) check(name, Need::required, body);
  }
  int failed() const { return count(Outcome::failed); }
  int count(Outcome outcome) const { return counts_[static_cast<size_t>(outcome)]; }

  /// Plain requests; `key`: nullopt sends the target's.
  ApiReply get(const std::string& path, const std::optional<std::string>& key = {}) const;
  ApiReply post(const std::string& path, const Json& body, const std::optional<std::string>& key = {}) const;
  ApiReply post_text(const std::string& path, const std::string& body,
                     const std::optional<std::string>& key = {}) const;
  /// With the key in another header than Authorization.
  ApiReply get_with(const std::string& path, const std::string& header, const std::string& value) const;
  /// Reads a stream until its text holds `mark`, then hangs up. False: it ended before.
  bool hang_up(const std::string& path, Json body, const std::string& mark) const;

  /// An answer of 200 that has `shape`. Throws Wrong, or NotThere for 404, 405 and 501.
  Json answer(const std::string& path, const Json& body, const Json& shape) const;
  Json status(const std::string& path, const Json& shape) const;
  /// All events of a stream of 200, [DONE] included. Throws likewise, also at one that is no event or no JSON.
  std::vector<ApiEvent> stream(const std::string& path, Json body) const;
  /// An error of this status that has `shape`.
  Json refused(const ApiReply& reply, int status, const Json& shape) const;

  /// What the first checks found out for those that follow.
  std::string model = "default";
  int64_t context = 0;  ///< of one request; 0 = the server does not tell
  bool slots = false, metrics = false;

  /// Biases against beginning a thought, for models that were never taught to end one; empty if the server has no
  /// /tokenize.
  const Json& no_thoughts();

 private:
  ApiTarget target_;
  int counts_[4] = {};
  std::optional<Json> no_thoughts_;
};

/// Fails unless `json` has the shape; `what` says whose it is.
void expect_json(const nlohmann::ordered_json& json, const nlohmann::ordered_json& shape, std::string_view what);
/// The text at this place; empty if there is none.
std::string text_at(const nlohmann::ordered_json& json, const std::string& pointer);
/// Up to 200 bytes of a text in one line.
std::string shown(std::string_view text);

inline constexpr const char* kApiPrompt = "Once upon a time";
inline constexpr int kApiTokens = 16;

/// Whole and streamed texts are one and not empty.
void expect_same(const std::string& whole, const std::string& streamed);
/// A piece of the text that may stop it: plain characters, not at its beginning. Throws Unclear if there is none.
std::string stop_in(const std::string& text);
/// The schema that documents and tool arguments are asked by, and whether a text is one.
const nlohmann::ordered_json& document_schema();
void expect_document(const std::string& text);
/// The value of a series without labels in the metrics' text.
std::optional<double> series_value(const std::string& metrics, const std::string& name);

// The checks by API, each group in its own file.
void check_status(ApiCheck& check);  // health, models, props, slots, metrics
void check_keys(ApiCheck& check);
void check_chat(ApiCheck& check);
void check_completions(ApiCheck& check);
void check_responses(ApiCheck& check);
void check_messages(ApiCheck& check);
void check_native(ApiCheck& check);  // llama-server's
void check_embeddings(ApiCheck& check);
void check_errors(ApiCheck& check);
void check_cancel(ApiCheck& check);

/// All of them. Throws Error if the server does not answer at all.
void check_apis(ApiCheck& check);

}  // namespace moetier::cli
