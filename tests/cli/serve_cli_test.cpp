// The server as a process: flags, signals, what it logs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/process.h"

namespace moetier::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr double kLong = 60;
const std::string kModel = std::string(MOETIER_SOURCE_DIR) + "/models/fairytale-moe-q8_0.gguf";

/// The port that the program says it listens on; 0 if it does not.
int port_of(RunningMoetier& server) {
  if (!server.wait_for_err(" slot", kLong)) return 0;
  const std::string err = server.so_far();
  const size_t at = err.find("http://127.0.0.1:");
  return at == std::string::npos ? 0 : std::atoi(err.c_str() + at + 17);
}

std::vector<std::string> serve(std::vector<std::string> more = {}) {
  std::vector<std::string> all = {"serve", "-m", kModel, "--port", "0", "--ctx", "512"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::string long_request() {
  return json{
      {"prompt", "Once upon a time"}, {"n_predict", 400}, {"n_probs", 20}, {"ignore_eos", true}, {"stream", true}}
      .dump();
}

TEST(Serve, AnswersAndEndsAtSigterm) {
  RunningMoetier server(serve({"--", "--parallel", "2", "--api-key", "secret", "--alias", "tales"}));
  const int port = port_of(server);
  ASSERT_GT(port, 0) << server.so_far();
  httplib::Client client("127.0.0.1", port);
  client.set_default_headers({{"Authorization", "Bearer secret"}});
  const auto props = client.Get("/props");
  ASSERT_TRUE(props);
  EXPECT_THAT(props->body, Not(HasSubstr("secret")));
  const json told = json::parse(props->body);
  EXPECT_EQ(told["model_alias"], "tales");
  EXPECT_EQ(told["total_slots"], 2);
  EXPECT_EQ(told["settings"]["ctx"]["value"], 512);
  EXPECT_EQ(told["settings"]["parallel"]["source"], "flag");
  EXPECT_TRUE(told["settings"]["ubatch"]["value"].is_number());
  const auto answer = client.Post("/completion", R"({"prompt": "The raven", "n_predict": 4})", "application/json");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  server.signal(SIGTERM);
  const ProcessResult r = server.finish(kLong);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.err, HasSubstr("stopped"));
  EXPECT_THAT(r.err, Not(HasSubstr("raven")));
}

TEST(Serve, ListensBeforeTheModelIsLoaded) {
  RunningMoetier server(serve());
  ASSERT_GT(port_of(server), 0) << server.so_far();
  const std::string err = server.so_far();
  const size_t listening = err.find("listening at http://127.0.0.1:");
  ASSERT_NE(listening, std::string::npos) << err;
  EXPECT_LT(listening, err.find(" slot"));
}

TEST(Serve, SigtermLetsAStreamEndAndWritesExit) {
  const TemporaryFolder folder;
  RunningMoetier server(serve({"--moe-cache-audit", folder.file("audit.jsonl")}));
  const int port = port_of(server);
  ASSERT_GT(port, 0) << server.so_far();
  std::string text;
  bool signalled = false;
  std::thread reader([&] {
    httplib::Client client("127.0.0.1", port);
    httplib::Request request;
    request.method = "POST";
    request.path = "/completion";
    request.body = long_request();
    request.set_header("Content-Type", "application/json");
    request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
      text.append(data, size);
      if (!signalled) server.signal(SIGTERM);
      signalled = true;
      return true;
    };
    client.send(request);
  });
  reader.join();
  const ProcessResult r = server.finish(kLong);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(text, HasSubstr("\"stop\":true"));
  const std::string log = slurp(folder.file("audit.jsonl"));
  EXPECT_THAT(log, HasSubstr("\"request\""));
  EXPECT_THAT(log, HasSubstr("\"exit\""));
  EXPECT_EQ(run_moetier({"check-audit", "--log", folder.file("audit.jsonl")}).code, 0);
}

TEST(Serve, ASecondSigtermEndsAtOnce) {
  RunningMoetier server(serve({"--drain-timeout", "60"}));
  const int port = port_of(server);
  ASSERT_GT(port, 0) << server.so_far();
  std::thread reader([&] {
    httplib::Client client("127.0.0.1", port);
    client.Post("/completion",
                json{{"prompt", "Once"}, {"n_predict", 490}, {"n_probs", 100}, {"ignore_eos", true}}.dump(),
                "application/json");
  });
  httplib::Client other("127.0.0.1", port);
  for (int i = 0; i < 500; ++i) {
    const auto slots = other.Get("/slots");
    if (slots && slots->body.find("\"is_processing\":true") != std::string::npos) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  server.signal(SIGTERM);
  EXPECT_TRUE(server.wait_for_err("stopping", 10));
  server.signal(SIGTERM);
  const ProcessResult r = server.finish(10);
  reader.join();
  EXPECT_EQ(r.code, 0) << r.err;
}

TEST(Serve, PromptsAreLoggedWhereAsked) {
  RunningMoetier server(serve({"--log-prompts"}));
  const int port = port_of(server);
  ASSERT_GT(port, 0) << server.so_far();
  httplib::Client client("127.0.0.1", port);
  client.Post("/completion", R"({"prompt": "The raven", "n_predict": 4})", "application/json");
  EXPECT_TRUE(server.wait_for_err("The raven", 10));
}

TEST(Serve, WarnsWhenOpenToTheNetwork) {
  RunningMoetier server(serve({"--host", "0.0.0.0"}));
  EXPECT_TRUE(server.wait_for_err("has no API key", kLong));
}

TEST(Serve, AnAddressInUseIsToldBeforeTheModelIsLoaded) {
  RunningMoetier server(serve());
  const int port = port_of(server);
  ASSERT_GT(port, 0);
  const ProcessResult second = run_moetier({"serve", "-m", kModel, "--port", std::to_string(port)});
  EXPECT_EQ(second.code, 1);
  EXPECT_THAT(second.err, HasSubstr("choose another --port"));
}

TEST(Serve, ADryRunTellsThePlan) {
  const ProcessResult r = run_moetier({"serve", kModel, "--dry-run", "--favor", "prompt", "--parallel", "3"});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.out, HasSubstr("context: 1024 positions for each of 3 slots (the model's own)"));
  EXPECT_THAT(r.out, HasSubstr("ubatch: 2048 rows (--favor prompt)"));
  EXPECT_THAT(r.out, HasSubstr("experts: resident"));
  EXPECT_THAT(r.out, HasSubstr("moetier serve -m " + kModel + " --parallel 3 --ctx 1024 --ubatch 2048"));
}

TEST(Serve, WrongUsage) {
  EXPECT_EQ(run_moetier({"serve"}).code, 2);
  EXPECT_EQ(run_moetier({"serve", kModel, "--port", "99999"}).code, 2);
  EXPECT_EQ(run_moetier({"serve", kModel, "--ssl-key-file", "x.pem"}).code, 2);
  EXPECT_EQ(run_moetier({"serve", kModel, "--api-key", ""}).code, 2);
  EXPECT_EQ(run_moetier({"serve", kModel, "--host", "no such host"}).code, 1);
}

}  // namespace
}  // namespace moetier::cli
