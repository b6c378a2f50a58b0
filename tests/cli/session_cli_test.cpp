// Sessions and audit logs from the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/process.h"
#include "experts/profile.h"
#include "server/audit_check.h"

namespace moetier {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

const std::string kDemo = MOETIER_SOURCE_DIR "/models/fairytale-moe-q8_0.gguf";
constexpr int kLayers = 4, kExperts = 16;  // of the demo model

std::vector<std::string> with(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<std::string> events_of(const std::string& path) {
  std::vector<std::string> events;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) events.push_back(Json::parse(line)["event"]);
  return events;
}

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  return text.substr(text.rfind('\n', end) + 1, end - text.rfind('\n', end));
}

std::string demo_profile(const TemporaryFolder& folder) {
  std::vector<std::pair<int, int>> ranked;
  for (int e = 0; e < kExperts; ++e) {
    for (int l = 0; l < kLayers; ++l) ranked.emplace_back(l, e);
  }
  write_profile(folder.file("p.strp"), kLayers, kExperts, ranked, 8);
  return folder.file("p.strp");
}

TEST(SessionFlag, ALaterRunGoesOnWhereTheFirstOneWas) {
  const TemporaryFolder folder;
  const std::string session = folder.file("s"), text = "Once upon a time there was a king who had three daughters,";
  const std::vector<std::string> run = {"run", "-m", kDemo, "--temp", "0", "-n", "20", "--json"};
  const auto ask = [&](const std::vector<std::string>& more) {
    const ProcessResult r = run_moetier(with(run, more));
    EXPECT_EQ(r.code, 0) << r.err;
    return Json::parse(r.out);
  };
  const Json first = ask({"-p", text, "--session", session});
  const std::string bytes = slurp(session);
  const Json again = ask({"-p", text, "--session", session});
  EXPECT_EQ(again["text"], first["text"]);
  EXPECT_EQ(slurp(session), bytes) << "the same positions, read or computed, are the same bytes";
  const auto reused = [](const Json& json) { return json["times"]["prompt_reused"].get<int>(); };
  EXPECT_EQ(reused(first), 0);
  EXPECT_GT(reused(again), 10);
  // A longer text begins with all of it, and is what it is without the file.
  const std::string longer = text + first["text"].get<std::string>() + " And the king said";
  const Json on = ask({"-p", longer, "--session", session}), plain = ask({"-p", longer});
  EXPECT_EQ(on["text"], plain["text"]);
  EXPECT_GT(reused(on), 20);
}

TEST(SessionFlag, AFileThatIsNoneIsRefusedAndStays) {
  const TemporaryFolder folder;
  const std::string file = folder.write("notes.txt", std::string(200, 'x'));
  const ProcessResult r = run_moetier({"run", "-m", kDemo, "-p", "Once", "-n", "2", "--session", file});
  EXPECT_EQ(r.code, 1);
  EXPECT_THAT(r.err, HasSubstr("no saved session"));
  EXPECT_THAT(r.err, HasSubstr("remove the file to begin anew"));
  EXPECT_EQ(slurp(file), std::string(200, 'x'));
  const ProcessResult same = run_moetier({"run", "-m", kDemo, "-p", "Once", "-n", "2", "--session", kDemo});
  EXPECT_EQ(same.code, 2);
  EXPECT_THAT(same.err, HasSubstr("name the same file"));
  // Nothing is computed that could not be kept.
  const ProcessResult nowhere =
      run_moetier({"run", "-m", kDemo, "-p", "Once", "-n", "2", "--session", folder.file("none/s")});
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_EQ(nowhere.out, "");
}

TEST(SessionFlag, APipeIsRefusedAndNotWaitedFor) {
  const TemporaryFolder folder;
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  RunningMoetier run({"run", "-m", kDemo, "-p", "Once", "-n", "2", "--session", pipe});
  const ProcessResult r = run.finish(30);
  EXPECT_EQ(r.code, 1);
  EXPECT_THAT(r.err, HasSubstr("not a regular file"));
}

TEST(AuditFlag, EveryCommandThatLoadsAModelWritesLoadAndExit) {
  const TemporaryFolder folder;
  const std::string text = folder.write("text.txt",
                                        "Once upon a time there was a king who had three daughters. And the king "
                                        "said to the eldest, what will you bring me from the forest?");
  const std::vector<std::vector<std::string>> runs = {
      {"run", "-m", kDemo, "-p", "Once upon a time", "-n", "5"},
      {"logits", "-m", kDemo, "--tokens", "1,2,3", "-o", folder.file("l")},
      {"perplexity", "-m", kDemo, "-f", text, "--window", "16"},
      {"bench", "-m", kDemo, "-p", "8", "-n", "4", "-r", "1", "--no-read-bandwidth"},
      {"trace", kDemo, text, folder.file("t.bin")},
      {"profile", kDemo, text, "-o", folder.file("p.strp")},
      {"predict", kDemo, text},
      {"eval", "code", kDemo, "--max-tokens", "2"},
  };
  for (const auto& run : runs) {
    SCOPED_TRACE(run.front());
    const std::string log = folder.file(run.front() + ".jsonl");
    const ProcessResult r = run_moetier(with(run, {"--experts", "stream", "--cache-mb", "8", "--force-cache"}), "",
                                        {"LLAMA_ARG_MOE_CACHE_AUDIT=" + log});
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_THAT(events_of(log), testing::ElementsAre("load", "exit"));
    EXPECT_GT(Json::parse(last_line(slurp(log)))["misses"].get<int>(), 0);
    const ProcessResult check = run_moetier({"check-audit", "--log", log});
    EXPECT_EQ(check.code, 0) << check.out << check.err;
    std::ifstream in(log);
    std::string load, exit;
    std::getline(in, load);
    std::getline(in, exit);
    EXPECT_EQ(Json::parse(load)["params"]["moe_cache_mib"], 8);
    const Json perf = Json::parse(exit)["perf"];
    EXPECT_GT(perf["n_prompt"].get<int>(), 0);
    EXPECT_GT(perf["prompt_tps"].get<double>(), 0);
  }
}

/// With a server the requests are told, too.
TEST(AuditFlag, CommandsWithAServerOfTheirOwnWriteTheirRequests) {
  const TemporaryFolder folder;
  const std::vector<std::vector<std::string>> runs = {
      {"check-api", kDemo, demo_profile(folder), "--cache-mib", "8"},
      {"eval", "code", kDemo, "--server", "--max-tokens", "2", "--experts", "stream", "--cache-mb", "8",
       "--force-cache"},
  };
  for (const auto& run : runs) {
    SCOPED_TRACE(run.front());
    const std::string log = folder.file(run.front() + ".jsonl");
    const ProcessResult r = run_moetier(with(run, {"--moe-cache-audit", log}));
    ASSERT_EQ(r.code, 0) << r.out << r.err;
    const std::vector<std::string> events = events_of(log);
    ASSERT_GE(events.size(), 4u);
    EXPECT_THAT((std::vector{events[0], events[1], events[2], events.back()}),
                testing::ElementsAre("load", "ready", "request", "exit"));
    const AuditCheck check = check_audit_log(slurp(log));
    EXPECT_TRUE(check.good()) << (check.good() ? "" : check.problems.front());
    EXPECT_EQ(check.sums, 1u);
    EXPECT_GT(Json::parse(last_line(slurp(log)))["misses"].get<int>(), 0);
  }
}

TEST(AuditFlag, AChatWritesReadyAndItsRequests) {
  const TemporaryFolder folder;
  const std::string log = folder.file("chat.jsonl");
  const std::string chat = folder.write("t.jinja", "{% for m in messages %}{{ m.content }}\n{% endfor %}");
  const ProcessResult r =
      run_moetier({"run", "-m", kDemo, "--chat", "--chat-template", chat, "-n", "8", "--moe-cache-audit", log,
                   "--experts", "stream", "--cache-mb", "8", "--force-cache"},
                  "Once upon a time\nAnd then\n");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(events_of(log), testing::ElementsAre("load", "ready", "request", "request", "exit"));
  const AuditCheck check = check_audit_log(slurp(log));
  EXPECT_TRUE(check.good()) << (check.good() ? "" : check.problems.front());
  EXPECT_EQ(check.sums, 1u);
}

TEST(AuditFlag, NeverWritesOverTheModel) {
  const ProcessResult r = run_moetier({"run", "-m", kDemo, "-p", "x", "-n", "1", "--moe-cache-audit", kDemo});
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(r.err, HasSubstr("name the same file"));
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"serve", kDemo, "--port", "0"}, {"check-api", kDemo}}) {
    const uint64_t bytes = std::filesystem::file_size(kDemo);
    EXPECT_EQ(run_moetier(with(command, {"--moe-cache-audit", kDemo})).code, 2) << command.front();
    EXPECT_EQ(std::filesystem::file_size(kDemo), bytes);
  }
}

TEST(CheckAudit, MakesALogAndChecksIt) {
  const TemporaryFolder folder;
  const ProcessResult r = run_moetier({"check-audit", kDemo, demo_profile(folder), "--cache-mib", "8"});
  EXPECT_EQ(r.code, 0) << r.out << r.err;
  EXPECT_THAT(r.out, HasSubstr("overlap: 6 records, and they add up"));
  EXPECT_THAT(r.out, HasSubstr("3 texts are the same"));
}

TEST(CheckAudit, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  const std::string bad = folder.write("bad.jsonl", "{\"event\":\"load\"}\nnonsense\n");
  const ProcessResult r = run_moetier({"check-audit", "--log", bad});
  EXPECT_EQ(r.code, 1);
  EXPECT_THAT(r.out, HasSubstr("line 1: the field time is missing"));
  EXPECT_THAT(r.out, HasSubstr("line 2: this is no JSON object"));
  EXPECT_EQ(run_moetier({"check-audit"}).code, 2);
  EXPECT_EQ(run_moetier({"check-audit", kDemo}).code, 2);
  EXPECT_EQ(run_moetier({"check-audit", kDemo, "--log", bad}).code, 2);
  // A profile of another model fills nothing, and that is told.
  write_profile(folder.file("other.strp"), 2, 4, std::vector<std::pair<int, int>>{{0, 1}}, 1);
  const ProcessResult other = run_moetier({"check-audit", kDemo, folder.file("other.strp"), "--cache-mib", "8"});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.out, HasSubstr("the profile filled no slot"));
}

}  // namespace
}  // namespace moetier
