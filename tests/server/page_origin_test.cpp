#include "server/api/page_origin.h"

#include <gmock/gmock.h>

#include "served.h"

namespace moetier::server {
namespace {

using ::testing::HasSubstr;

bool foreign(std::string_view origin, std::string_view host, std::string_view forwarded = "") {
  return is_foreign_page({origin, host, forwarded});
}

bool foreign_name(std::string_view host, bool loopback = true, std::string_view own = "127.0.0.1") {
  return is_foreign_name(host, {own, 8080, loopback, false});
}

TEST(PageOrigin, OwnPagesAndProgramsAreNotForeign) {
  EXPECT_FALSE(foreign("", "127.0.0.1:8080"));
  EXPECT_FALSE(foreign("http://127.0.0.1:8080", "127.0.0.1:8080"));
  EXPECT_FALSE(foreign("http://LOCALHOST:8080", "localhost:8080"));
  EXPECT_FALSE(foreign("http://[::1]:8080", "[::1]:8080"));
  for (const char* program : {"chrome-extension://abc", "app://x", "vscode-webview://x", "file://"})
    EXPECT_FALSE(foreign(program, "127.0.0.1:8080")) << program;
  // Behind a proxy, which passes on the name or says it apart.
  EXPECT_FALSE(foreign("https://llm.example.com", "llm.example.com"));
  EXPECT_FALSE(foreign("https://llm.example.com", "127.0.0.1:8080", "llm.example.com"));
  EXPECT_FALSE(foreign("https://llm.example.com", "127.0.0.1:8080", "llm.example.com , proxy.lan"));
}

TEST(PageOrigin, PagesOfOthersAre) {
  EXPECT_TRUE(foreign("http://evil.example", "127.0.0.1:8080"));
  EXPECT_TRUE(foreign("http://127.0.0.1:3000", "127.0.0.1:8080"));
  EXPECT_TRUE(foreign("http://127.0.0.1", "127.0.0.1:8080"));
  EXPECT_TRUE(foreign("null", "127.0.0.1:8080"));
  EXPECT_TRUE(foreign("https://evil.example", "llm.example.com", "llm.example.com"));
  EXPECT_TRUE(foreign("http://", "127.0.0.1:8080"));
}

TEST(PageOrigin, NamesThatAnyoneMayLeadToLoopbackAreForeign) {
  for (const char* host : {"127.0.0.1:8080", "[::1]:8080", "localhost:8080", "LocalHost:8080", "chat.localhost:8080",
                           "host.docker.internal:8080", "llm:8080", ""})
    EXPECT_FALSE(foreign_name(host)) << host;
  EXPECT_FALSE(foreign_name("llm.example.com"));  // a proxy's, or a request that came by one
  EXPECT_FALSE(foreign_name("machine.lan:8080", false, "0.0.0.0"));
  EXPECT_FALSE(foreign_name("machine.lan:8080", true, "Machine.lan"));
  for (const char* host : {"evil.example:8080", "localhost.evil.example:8080", "127.0.0.1.evil.example:8080"})
    EXPECT_TRUE(foreign_name(host)) << host;
  EXPECT_TRUE(is_foreign_name("evil.example", {"127.0.0.1", 80, true, false}));
  EXPECT_TRUE(is_foreign_name("evil.example", {"127.0.0.1", 443, true, true}));
}

TEST(PageOrigin, ForeignPagesAreRefusedUnlessThereIsAKey) {
  const Json body = {{"content", "king"}};
  const httplib::Headers page = {{"Origin", "http://evil.example"}};
  const int port = shared().port();
  const Reply refused = post(port, "/tokenize", body, page);
  EXPECT_EQ(refused.status, 403);
  EXPECT_EQ(refused.json["error"]["type"], "permission_error");
  EXPECT_THAT(refused.body, HasSubstr("http://evil.example"));
  EXPECT_EQ(post(port, "/v1/messages", body, page).json["type"], "error");
  EXPECT_EQ(get(port, "/props", page).status, 200);  // a browser does not let the page read it
  EXPECT_EQ(post(port, "/tokenize", body, {{"Origin", "http://127.0.0.1:" + std::to_string(port)}}).status, 200);

  const httplib::Headers rebound = {{"Host", "evil.example:" + std::to_string(port)}};
  EXPECT_EQ(get(port, "/props", rebound).status, 403);
  EXPECT_THAT(get(port, "/slots", rebound).body, HasSubstr("evil.example"));
  EXPECT_EQ(get(port, "/health", rebound).status, 200);

  ServedOptions options;
  options.service.keys.add("key");
  Served keyed(std::move(options));
  EXPECT_EQ(post(keyed.port(), "/tokenize", body, page).status, 401);
  EXPECT_EQ(post(keyed.port(), "/tokenize", body, {{"Origin", "http://evil.example"}, {"X-Api-Key", "key"}}).status,
            200);
}

}  // namespace
}  // namespace moetier::server
