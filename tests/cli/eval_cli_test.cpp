// eval code: the tasks accept right answers and only those, and answers are shut in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/eval_tasks.h"
#include "cli/local_server.h"
#include "cli/process.h"
#include "cli/sandbox.h"

namespace moetier::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// The right answer to a task, from the file that has them all.
std::string solution(std::string_view name) {
  const std::string all = read_file(MOETIER_TEST_DATA "/eval/solutions.py");
  const std::string mark = "# --- " + std::string(name) + "\n";
  const size_t begin = all.find(mark);
  if (begin == std::string::npos) return "";
  const size_t end = all.find("# --- ", begin + mark.size());
  return all.substr(begin + mark.size(), end == std::string::npos ? end : end - begin - mark.size());
}

class EvalCode : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string problem = sandbox_problem(); !problem.empty()) GTEST_SKIP() << problem;
  }
};

TEST_F(EvalCode, RightAnswersPassAndOthersDoNot) {
  const TemporaryFolder folder;
  for (const auto& [suite, tasks] : {std::pair("smoke", smoke_tasks()), std::pair("hard", hard_tasks())}) {
    for (const CodeTask& task : tasks)
      folder.write(std::string(task.name) + ".py", "Here it is:\n```python\n" + solution(task.name) + "```\nDone.");
    const ProcessResult result =
        run_moetier({"eval", "code", "--answers", folder.file("."), "--suite", suite, "--json"});
    ASSERT_EQ(result.code, 0) << result.err;
    const json record = json::parse(result.out);
    EXPECT_EQ(record["passed"], record["tasks"]) << result.out;
    for (const CodeTask& task : tasks) folder.write(std::string(task.name) + ".py", "def nothing(): pass\n");
    const ProcessResult wrong = run_moetier({"eval", "code", "--answers", folder.file("."), "--suite", suite});
    EXPECT_THAT(wrong.out, HasSubstr("0 of "));
    EXPECT_THAT(wrong.out, HasSubstr("NameError"));
  }
}

TEST_F(EvalCode, AProgramIsShutIn) {
  EXPECT_TRUE(run_python("print('fine')").passed);
  EXPECT_TRUE(run_python("open('here.txt', 'w').write('x')\nassert open('here.txt').read() == 'x'").passed);
  const TemporaryFolder folder;
  const std::string outside = folder.file("outside.txt"), kept = folder.write("kept.txt", "x");
  EXPECT_THAT(run_python("open('" + outside + "', 'w').write('x')").why, HasSubstr("PermissionError"));
  EXPECT_FALSE(std::filesystem::exists(outside));
  EXPECT_FALSE(run_python("import os\nos.remove('" + kept + "')").passed);
  EXPECT_TRUE(std::filesystem::exists(kept));
  EXPECT_FALSE(run_python("import socket\nsocket.socket()").passed);
  EXPECT_FALSE(run_python("import os\nos.kill(os.getppid(), 0)").passed);
  EXPECT_THAT(run_python("import os\nos.fork()").why, HasSubstr("PermissionError"));
  EXPECT_FALSE(run_python("import subprocess\nsubprocess.run(['/bin/true'], check=True)").passed);
  EXPECT_TRUE(run_python("import threading\nt = threading.Thread(target=print)\nt.start()\nt.join()").passed);
  EXPECT_FALSE(run_python("x = bytearray(3 << 30)").passed);
  EXPECT_THAT(run_python("while True: pass", true, {.cpu_seconds = 1, .wall_seconds = 5}).why, HasSubstr("signal"));
  EXPECT_THAT(run_python("import time\ntime.sleep(9)", true, {.cpu_seconds = 5, .wall_seconds = 1}).why,
              HasSubstr("stopped after 1 s"));
  EXPECT_THAT(run_python("assert 1 == 2, 'no'").why, HasSubstr("AssertionError: no"));
  EXPECT_THAT(run_python("import os\nos._exit(3)").why, HasSubstr("code 3"));
}

const std::string kDemo = MOETIER_SOURCE_DIR "/models/fairytale-moe-q8_0.gguf";

/// A suite's record without what differs from run to run.
json answers_in(const ProcessResult& result) {
  EXPECT_EQ(result.code, 0) << result.err;
  json record = json::parse(result.out);
  for (json& one : record["results"]) one.erase("seconds");
  return record;
}

TEST_F(EvalCode, AsksAModelInThisProcessAndThroughAServer) {
  const auto ask = [](std::vector<std::string> more) {
    std::vector<std::string> all = {"eval", "code", "--max-tokens", "8", "--json"};
    all.insert(all.end(), more.begin(), more.end());
    return run_moetier(all);
  };
  const json here = answers_in(ask({kDemo}));
  EXPECT_EQ(here["tasks"], smoke_tasks().size());
  EXPECT_EQ(here["passed"], 0);  // it knows fairy tales only
  for (const json& one : here["results"]) {
    EXPECT_NE(one["answer"], "");
    EXPECT_NE(one["why"], nullptr);
  }
  EXPECT_EQ(answers_in(ask({kDemo, "--port", "8099", "--no-server"})), here);
  const json own = answers_in(ask({kDemo, "--server"}));
  EXPECT_EQ(own["passed"], 0);
  for (const json& one : own["results"]) EXPECT_NE(one["answer"], "") << one.dump();

  const auto engine = Engine::load(kDemo, {});
  ContextOptions options;
  options.context = 512;
  const LocalServer server(*engine, options, 0, "secret");
  const std::string port = std::to_string(server.port());
  EXPECT_EQ(answers_in(ask({"--port", port, "--api-key", "secret"})), own);
  EXPECT_EQ(answers_in(ask({"--url", server.url() + "/v1/", "--api-key", "secret"})), own);
  const ProcessResult shut = ask({"--port", port});
  EXPECT_EQ(shut.code, 1);
  EXPECT_THAT(shut.err, HasSubstr("--api-key"));
  const ProcessResult nowhere = ask({"--url", server.url() + "/elsewhere", "--api-key", "secret"});
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("404"));
}

TEST_F(EvalCode, TellsWhatAServerRefuses) {
  const auto engine = Engine::load(kDemo, {});
  ContextOptions options;
  options.context = 8;  // no task fits
  int port = 0;
  {
    const LocalServer server(*engine, options, 0, "");
    port = server.port();
    const ProcessResult result = run_moetier({"eval", "code", "--port", std::to_string(port)});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("the server answered 400"));
    EXPECT_THAT(result.out, HasSubstr("0 of 6 tasks passed"));
  }
  const ProcessResult gone = run_moetier({"eval", "code", "--port", std::to_string(port)});
  EXPECT_EQ(gone.code, 1);
  EXPECT_THAT(gone.err, HasSubstr("does not answer: nobody listens there"));
}

TEST_F(EvalCode, SaysWhatIsWrong) {
  const ProcessResult nowhere = run_moetier({"eval", "code", "--answers", "/nowhere"});
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("/nowhere is no directory"));
  EXPECT_EQ(run_moetier({"eval", "code", "m.gguf", "--url", "http://127.0.0.1:1"}).code, 2);
  EXPECT_EQ(run_moetier({"eval", "code", "--url", "127.0.0.1:1"}).code, 2);
  EXPECT_EQ(run_moetier({"eval", "code", "--port", "0"}).code, 2);
  EXPECT_EQ(run_moetier({"eval", "code", "--no-server", "--port", "1"}).code, 2);
  EXPECT_EQ(run_moetier({"eval", "code"}).code, 2);
  EXPECT_EQ(run_moetier({"eval", "code", "m.gguf", "--answers", "."}).code, 2);
  EXPECT_EQ(run_moetier({"eval", "code", "--answers", ".", "--suite", "easy"}).code, 2);
}

}  // namespace
}  // namespace moetier::cli
