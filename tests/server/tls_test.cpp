#include <gmock/gmock.h>

#include <cstdlib>

#include "base/error.h"
#include "served.h"

namespace moetier::server {
namespace {

/// A certificate for localhost, made by the openssl program.
bool make_certificate(const std::string& certificate, const std::string& key) {
  const std::string command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout " + key +
                              " -out " + certificate + " >/dev/null 2>&1";
  return std::system(command.c_str()) == 0;
}

TEST(TlsServer, AnswersStreamsAndRefusesPlainText) {
  const std::string certificate = ::testing::TempDir() + "moetier-cert.pem",
                    key = ::testing::TempDir() + "moetier-key.pem";
  if (!make_certificate(certificate, key)) GTEST_SKIP() << "there is no openssl program to make a certificate with";
  ServedOptions options;
  options.http.certificate_file = certificate;
  options.http.key_file = key;
  Served served(std::move(options));
  httplib::SSLClient client("127.0.0.1", served.port());
  client.set_ca_cert_path(certificate.c_str());
  client.enable_server_certificate_verification(false);
  client.set_keep_alive(true);
  client.set_read_timeout(30);
  for (int i = 0; i < 3; ++i) {
    const auto health = client.Get("/health");
    ASSERT_TRUE(health) << httplib::to_string(health.error());
    EXPECT_EQ(health->status, 200);
  }
  const auto text = client.Post(
      "/completion", Json({{"prompt", "The king"}, {"n_predict", 300}, {"n_probs", 20}, {"stream", true}}).dump(),
      "application/json");
  ASSERT_TRUE(text);
  EXPECT_EQ(parse_events(text->body).back().json["stop"], true);
  // A body of many records, of which most are there before the server looks.
  const std::string large = Json({{"content", "king"}, {"x", std::string(size_t{5} << 20, 'a')}}).dump();
  const auto tokens = client.Post("/tokenize", {{"Expect", "100-continue"}}, large, "application/json");
  ASSERT_TRUE(tokens) << httplib::to_string(tokens.error());
  EXPECT_EQ(tokens->status, 200);
  RawClient plain(served.port());
  plain.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(plain.read_all(3), ::testing::Not(::testing::HasSubstr("200 OK")));
}

TEST(TlsServer, UnusableFilesAreErrors) {
  ServedOptions options;
  options.http.certificate_file = "/nonexistent.pem";
  EXPECT_THROW(Served(ServedOptions(options)), Error);
  options.http.key_file = "/nonexistent.pem";
  EXPECT_THROW(Served(ServedOptions(options)), Error);
}

}  // namespace
}  // namespace moetier::server
