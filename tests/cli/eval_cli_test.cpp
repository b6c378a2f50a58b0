// eval code: the tasks accept right answers and only those, and answers are shut in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/eval_tasks.h"
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

TEST_F(EvalCode, SaysWhatIsWrong) {
  EXPECT_EQ(run_moetier({"eval", "code"}).code, 2);
  EXPECT_EQ(run_moetier({"eval", "code", "m.gguf", "--answers", "."}).code, 2);
  EXPECT_EQ(run_moetier({"eval", "code", "--answers", ".", "--suite", "easy"}).code, 2);
}

}  // namespace
}  // namespace moetier::cli
