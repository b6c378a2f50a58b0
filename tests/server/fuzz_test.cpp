// Random requests: whatever comes, the server answers properly and lives on.
#include <gmock/gmock.h>

#include <limits>
#include <map>
#include <random>

#include "served.h"

namespace moetier::server {
namespace {

const std::vector<std::string> kPaths = {"/completion",    "/v1/completions",       "/v1/chat/completions",
                                         "/v1/responses",  "/v1/messages",          "/v1/messages/count_tokens",
                                         "/tokenize",      "/detokenize",           "/apply-template",
                                         "/v1/embeddings", "/slots/0?action=erase", "/slots/x?action=save"};

class Maker {
 public:
  explicit Maker(uint64_t seed) : random_(seed) {}
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  Json value(int depth = 0) {
    switch (below(depth > 3 ? 7 : 10)) {
      case 0:
        return nullptr;
      case 1:
        return below(2) == 0;
      case 2:
        return static_cast<int64_t>(below(20)) - 5;
      case 3:
        return std::uniform_real_distribution<double>(-2, 3)(random_);
      case 4:
        return std::numeric_limits<uint64_t>::max();
      case 5:
      case 6:
        return word();
      case 7: {
        Json array = Json::array();
        for (size_t i = below(4); i > 0; --i) array.push_back(value(depth + 1));
        return array;
      }
      default:
        return object(depth + 1);
    }
  }
  Json object(int depth = 0) {
    Json json = Json::object();
    for (size_t i = below(6); i > 0; --i) json[key()] = value(depth);
    return json;
  }
  std::string key() {
    static const std::vector<std::string> keys = {"prompt",      "messages",     "role",           "content",
                                                  "tools",       "type",         "function",       "name",
                                                  "parameters",  "tool_choice",  "input",          "stream",
                                                  "n",           "stop",         "seed",           "logit_bias",
                                                  "temperature", "grammar",      "json_schema",    "response_format",
                                                  "schema",      "max_tokens",   "n_predict",      "top_k",
                                                  "logprobs",    "tokens",       "text",           "model",
                                                  "system",      "input_schema", "stop_sequences", "instructions",
                                                  "tool_calls",  "arguments",    "filename",       "id"};
    return keys[below(keys.size())];
  }
  std::string word() {
    static const std::vector<std::string> words = {
        "",         "user",        "assistant", "system",         "text",       "function",     "object",   "auto",
        "required", "json_schema", "king",      "root ::= \"a\"", "root ::= [", "\xe2\x82\xac", "<|user|>", "tool"};
    return words[below(words.size())];
  }
  /// A proper request with a few fields turned into something else.
  Json nearly(const std::string& path) {
    Json body = {{"model", "m"},        {"max_tokens", 2},
                 {"n_predict", 2},      {"prompt", "The king"},
                 {"input", "The king"}, {"content", "x"},
                 {"tokens", {1, 2}},    {"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
    static_cast<void>(path);
    for (size_t i = below(3); i > 0; --i) body[key()] = value();
    if (below(4) == 0 && body["messages"].is_array()) body["messages"].push_back(object());
    body["max_tokens"] = body["n_predict"] = body["max_output_tokens"] = 2;
    return body;
  }

 private:
  std::mt19937_64 random_;
};

TEST(Fuzz, WellFormedNonsense) {
  Maker make(20240);
  std::map<int, int> seen;
  for (int i = 0; i < 600; ++i) {
    const std::string& path = kPaths[make.below(kPaths.size())];
    const Json body = make.below(3) == 0 ? make.object() : make.nearly(path);
    const Reply reply = post(shared().port(), path, body);
    ++seen[reply.status];
    EXPECT_TRUE(reply.status == 200 || reply.status == 400 || reply.status == 404)
        << path << " " << body.dump() << " gave " << reply.status << " " << reply.body;
    if (reply.status != 200) {
      EXPECT_TRUE(reply.json.contains("error")) << reply.body;
    }
  }
  EXPECT_GT(seen[200], 50);
  EXPECT_GT(seen[400], 50);
  EXPECT_TRUE(eventually([] { return shared().scheduler().busy_slots() == 0; }));
}

TEST(Fuzz, BrokenBytes) {
  std::mt19937_64 random(7);
  const std::string good =
      raw_post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"Hi"}],"max_tokens":2})");
  for (int i = 0; i < 200; ++i) {
    std::string bytes = good;
    for (int k = 0; k < 4; ++k) {
      const size_t at = random() % bytes.size();
      switch (random() % 3) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, random() % 8);
          break;
        default:
          bytes.insert(at, random() % 5, static_cast<char>(random()));
      }
      if (bytes.empty()) bytes.push_back('x');
    }
    RawClient client(shared().port());
    client.send(bytes);
    client.read_until("}", 0.02);
  }
  EXPECT_EQ(get(shared().port(), "/health").status, 200);
  EXPECT_TRUE(eventually([] { return shared().scheduler().busy_slots() == 0; }, 60));
}

}  // namespace
}  // namespace moetier::server
