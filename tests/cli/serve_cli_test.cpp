// The server as a process: flags, signals, what it logs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <csignal>
#include <cstdlib>
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

/// What a dry run with these flags prints.
std::string dry_run(std::vector<std::string> more) {
  std::vector<std::string> all = {"serve", kModel, "--dry-run"};
  all.insert(all.end(), more.begin(), more.end());
  const ProcessResult r = run_moetier(all);
  EXPECT_EQ(r.code, 0) << r.err;
  return r.out;
}

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  return text.substr(text.rfind('\n', end) + 1, end - text.rfind('\n', end));
}

/// A command of a plan as a dry run of it, through a shell: what that prints.
std::string run_planned(const std::string& command) {
  EXPECT_TRUE(command.starts_with("moetier serve ")) << command;
  const TemporaryFolder folder;
  const std::string script = folder.write("run.sh", std::string(MOETIER_BINARY) + command.substr(7) + " --dry-run\n");
  const std::string out = folder.file("out");
  EXPECT_EQ(std::system(("bash " + script + " > " + out + " 2>&1").c_str()), 0) << command << slurp(out);
  return slurp(out);
}

TEST(Serve, TheCommandOfAPlanAsksForTheSamePlan) {
  const TemporaryFolder folder;
  const std::string named = folder.write("a profile's", "");
  const std::vector<std::vector<std::string>> all = {
      {},
      {"--parallel", "3", "--favor", "prompt", "--ubatch", "auto"},
      {"--cache-mib", "12", "--force-cache", "--profile", named, "--threads", "1", "--no-odirect"},
      {"--experts", "stream", "--cache-ceil-mb", "7", "--cache-floor-mb", "100"},
      {"--experts", "stream", "--cache-mb", "0", "--io", "threads"},
      {"--margin-mib", "16777216", "--min-cache-mib", "3", "--host", "::1", "--port", "0", "--alias", "a b"},
      {"--predict=-1", "--stop", "the \"end\"\n", "--stop", "it's", "--temp", "0.5", "--no-webui",
       "--expert-cache-size", "1"}};
  for (const std::vector<std::string>& flags : all) {
    const std::string plan = dry_run(flags), command = last_line(plan), again = run_planned(command);
    EXPECT_EQ(last_line(again), command);
    EXPECT_EQ(again.find("changes nothing"), std::string::npos) << again;
  }
}

TEST(Serve, TheCommandOfAPlanHasAllFlagsThatWereGiven) {
  const std::string command = last_line(dry_run({"--cache-mib", "12", "--force-cache", "--profile", "hot profile.strp",
                                                 "-t", "2", "--host", "::1", "--metrics", "--no-webui"}));
  EXPECT_EQ(command,
            "moetier serve -m " + kModel +
                " --parallel 1 --ctx 1024 --ubatch 512 --experts stream --cache-mb 12 --force-cache --host ::1 "
                "--no-webui --threads 2 --moe-cache-profile 'hot profile.strp'");
}

TEST(Serve, ThePlansCommandHoldsNoKey) {
  const std::string plan = dry_run({"--api-key", "hunter2"});
  EXPECT_THAT(plan, Not(HasSubstr("hunter2")));
  EXPECT_THAT(plan, HasSubstr("the API keys are not printed"));
  EXPECT_THAT(last_line(plan), Not(HasSubstr("api-key")));
}

TEST(Serve, TheMarginDecidesWhatFits) {
  EXPECT_THAT(dry_run({}), HasSubstr("experts: resident"));
  EXPECT_THAT(dry_run({"--margin-mib", "16777216"}), HasSubstr("experts: stream"));
  EXPECT_THAT(dry_run({"--margin-mib", "16777216", "--cache-floor-mb", "1"}), HasSubstr("experts: resident"));
}

TEST(Serve, AShortCacheIsSaidUnlessItWasAskedFor) {
  const std::vector<std::string> huge = {"--experts", "stream", "--ctx", "16777216", "--parallel", "256"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), huge.begin(), huge.end());
    return dry_run(more);
  };
  EXPECT_THAT(with({}), HasSubstr("of --min-cache-mib; more memory"));
  EXPECT_THAT(with({"--min-cache-mib", "0"}), Not(HasSubstr("more memory")));
  EXPECT_THAT(with({"--cache-mib", "2000"}), Not(HasSubstr("more memory")));
  EXPECT_THAT(with({"--cache-mib", "2000"}), HasSubstr("cache of 1.95 GiB as asked for"));
  EXPECT_THAT(dry_run({"--cache-mib", "12", "--force-cache"}), Not(HasSubstr("more memory")));
  EXPECT_THAT(dry_run({"--cache-mib", "12", "--force-cache"}), HasSubstr("cache 12.0 MiB as asked for"));
}

TEST(Serve, UbatchAutoIsThatOfNoFlag) {
  EXPECT_EQ(last_line(dry_run({"--ubatch", "auto"})), last_line(dry_run({})));
  EXPECT_THAT(last_line(dry_run({"--ubatch", "64"})), HasSubstr(" --ubatch 64 "));
}

TEST(Serve, TheProfileFillsTheCacheUnderItsShortName) {
  const TemporaryFolder folder;
  const std::string profile = folder.file("hot.strp");
  const std::string text = folder.write("text", "Once upon a time there was a raven who lived in a tower.");
  const ProcessResult made = run_moetier({"profile", kModel, text, "-o", profile});
  ASSERT_EQ(made.code, 0) << made.err;
  RunningMoetier server(serve({"--cache-mib", "8", "--force-cache", "--profile", profile}));
  const int port = port_of(server);
  ASSERT_GT(port, 0) << server.so_far();
  const auto metrics = httplib::Client("127.0.0.1", port).Get("/metrics");
  ASSERT_TRUE(metrics);
  const size_t at = metrics->body.find("\nllamacpp:moe_cache_prefilled ");
  ASSERT_NE(at, std::string::npos) << metrics->body;
  EXPECT_GT(std::atoi(metrics->body.c_str() + at + 30), 0);
}

TEST(Serve, WrongUsage) {
  EXPECT_EQ(run_moetier({"serve"}).code, 2);
  EXPECT_EQ(run_moetier({"serve", kModel, "--port", "99999"}).code, 2);
  EXPECT_EQ(run_moetier({"serve", kModel, "--ssl-key-file", "x.pem"}).code, 2);
  EXPECT_EQ(run_moetier({"serve", kModel, "--api-key", ""}).code, 2);
  EXPECT_EQ(run_moetier({"serve", kModel, "--host", "no such host"}).code, 1);
}

TEST(Serve, ADryRunRefusesWhatServingWould) {
  const TemporaryFolder folder;
  const std::string empty = folder.write("keys", "# none\n"), pem = folder.write("x.pem", "no PEM");
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{"--ssl-key-file", pem},
                                             {"--ssl-key-file", pem, "--ssl-cert-file", pem},
                                             {"--api-key-file", empty},
                                             {"--chat-template", "chatml"},
                                             {"--cors-origin", "bogus"},
                                             {"--cors-origin", "https://a/b"},
                                             {"--api-key", "a,,b"}}) {
    std::vector<std::string> all = {"serve", kModel, "--dry-run"};
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_NE(run_moetier(all).code, 0) << more[0];
  }
  EXPECT_THAT(dry_run({"--cors-origin", "https://a.example:8443"}), HasSubstr("--cors-origin"));
}

TEST(Serve, NothingIsSaidOfFlagsThatWereNotGiven) {
  RunningMoetier server(serve({"--experts", "resident"}));
  ASSERT_GT(port_of(server), 0) << server.so_far();
  EXPECT_THAT(server.so_far(), Not(HasSubstr("--cache-floor-mb")));
}

TEST(Serve, KeysMayBeAListAndAQuietServerTellsItsPort) {
  RunningMoetier server({"serve", kModel, "--port", "0", "--ctx", "512", "-q", "--api-key", "first,second"});
  ASSERT_TRUE(server.wait_for_err("http://127.0.0.1:", kLong));
  ASSERT_TRUE(server.wait_for_err("\n", kLong));
  const std::string err = server.so_far();
  httplib::Client client("127.0.0.1", std::atoi(err.c_str() + err.find("127.0.0.1:") + 10));
  for (const auto& [key, known] : std::vector<std::pair<std::string, bool>>{
           {"first", true}, {"second", true}, {"first,second", false}, {"", false}}) {
    const auto answer = client.Get("/v1/models", {{"Authorization", "Bearer " + key}});
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status != 401, known) << key;
  }
}

TEST(Serve, DirectoriesThatCannotBeUsedAreToldAtOnce) {
  const TemporaryFolder folder;
  const std::string file = folder.write("file", "x");
  for (const char* flag : {"--slot-save-path", "--prompt-cache-dir"}) {
    const ProcessResult r = run_moetier({"serve", kModel, "--port", "0", flag, file});
    EXPECT_EQ(r.code, 1) << flag;
    EXPECT_THAT(r.err, HasSubstr("cannot be kept in " + file)) << flag;
    EXPECT_THAT(r.err, Not(HasSubstr("listening"))) << flag;
  }
}

// One stream runs and three wait: each ends with its API's last event and the last chunk.
TEST(Serve, ASecondSignalEndsStreamsProperly) {
  RunningMoetier server(serve({"--parallel", "1"}));
  const int port = port_of(server);
  ASSERT_GT(port, 0) << server.so_far();
  const json said = {{{"role", "user"}, {"content", "Once"}}};
  const auto asks = [](json body) {
    body.update({{"model", "m"}, {"ignore_eos", true}, {"stream", true}});
    return body.dump();
  };
  struct Reader {
    const char* path;
    std::string body, got;
    bool whole = false;
  } readers[] = {{"/v1/responses", asks({{"input", "Once"}, {"max_output_tokens", 480}})},
                 {"/v1/responses", asks({{"input", "Once"}, {"max_output_tokens", 480}})},
                 {"/v1/messages", asks({{"messages", said}, {"max_tokens", 480}})},
                 {"/v1/chat/completions", asks({{"messages", said}, {"max_tokens", 480}})}};
  std::vector<std::thread> threads;
  for (Reader& reader : readers) {
    threads.emplace_back([&reader, port] {
      httplib::Client client("127.0.0.1", port);
      const auto answer = client.Post(reader.path, reader.body, "application/json");
      reader.whole = static_cast<bool>(answer);
      if (reader.whole) reader.got = answer->body;
    });
  }
  httplib::Client other("127.0.0.1", port);
  for (int i = 0; i < 500; ++i) {
    const auto metrics = other.Get("/metrics");
    if (metrics && metrics->body.find("\nllamacpp:requests_deferred 3") != std::string::npos) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  server.signal(SIGTERM);
  EXPECT_TRUE(server.wait_for_err("stopping", 10));
  server.signal(SIGTERM);
  const ProcessResult r = server.finish(10);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(r.code, 0) << r.err;
  for (const Reader& reader : readers) {
    EXPECT_TRUE(reader.whole) << reader.path << ": the last chunk is missing";
    EXPECT_THAT(reader.got,
                testing::AnyOf(HasSubstr("the server was stopped"), HasSubstr("response.completed"),
                               HasSubstr("response.incomplete"), HasSubstr("message_stop"), HasSubstr("[DONE]")))
        << reader.path;
  }
}

}  // namespace
}  // namespace moetier::cli
