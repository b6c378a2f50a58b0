// Ctrl-C while a model streams: the work ends at once with an error, and a chat goes on with the next line.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/process.h"

namespace moetier::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

constexpr double kLong = 60;  // seconds; nothing here should take one

/// A model that reads 20 MB for each token, and no cache for it: most of the time is spent in reads.
class Interrupt : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    model = testing::TempDir() + "interrupt_" + std::to_string(::getpid()) + ".gguf";
    const ProcessResult made = run_moetier(
        {"synth", "--like", "tiny",  "--architecture", "qwen3moe", "--layers", "6",   "--type", "q8_0",   "--set",
         "D=512", "--set",  "F=512", "--set",          "E=8",      "--set",    "K=4", "--set",  "V=1000", "-o",
         model,   "-q"});
    ASSERT_EQ(made.code, 0) << made.err;
  }
  static void TearDownTestSuite() { fs::remove(model); }

  static std::vector<std::string> streaming(std::vector<std::string> arguments) {
    for (const char* word :
         {"-m", model.c_str(), "--experts", "stream", "--cache-mb", "0", "--ctx", "65536", "--no-overlap"}) {
      arguments.emplace_back(word);
    }
    return arguments;
  }

  static inline std::string model;
};

TEST_F(Interrupt, ARunEndsWithItsRecords) {
  const TemporaryFolder folder;
  for (const char* io : {"auto", "threads"}) {
    SCOPED_TRACE(io);
    const std::string stats = folder.file(std::string("stats-") + io);
    RunningMoetier run(streaming(
        {"run", "-p", "Hello", "-n", "60000", "--ignore-eos", "--io", io, "--progress", "--stats-json", stats}));
    ASSERT_TRUE(run.wait_for_err("\"step\":5", kLong));
    run.signal(SIGINT);
    const ProcessResult r = run.finish(kLong);
    EXPECT_EQ(r.code, 1) << r.err;
    EXPECT_THAT(r.err, HasSubstr("moetier: interrupted: the text ends early"));
    const json s = json::parse(slurp(stats));
    EXPECT_GE(s["decode"]["tokens"].get<int>(), 5);
    EXPECT_GT(s["read_wait_s"].get<double>(), 0);
    EXPECT_GE(s["compute_s"].get<double>(), 0);
  }
}

TEST_F(Interrupt, WhatIsNotWholeIsNotWritten) {
  const TemporaryFolder folder;
  const std::string text = folder.write("text", std::string(60000, 'a')), out = folder.file("out");
  for (const auto& arguments : {std::vector<std::string>{"bench", "-p", "8000", "-n", "0", "--repeat", "1000"},
                                std::vector<std::string>{"perplexity", "-f", text, "--window", "8000"},
                                std::vector<std::string>{"trace", "-f", text, "-o", out}}) {
    SCOPED_TRACE(arguments.front());
    RunningMoetier run(streaming(arguments));
    ASSERT_TRUE(run.wait_until_caught(SIGINT, kLong)) << run.finish(0).err;  // from there on it works
    ::usleep(50000);
    run.signal(SIGINT);
    const ProcessResult r = run.finish(kLong);
    EXPECT_EQ(r.code, 1) << r.err;
    EXPECT_THAT(r.err, HasSubstr("moetier: interrupted: the work is not complete"));
    EXPECT_EQ(r.out, "");
    EXPECT_FALSE(fs::exists(out));
  }
}

TEST_F(Interrupt, AChatServesTheNextLine) {
  RunningMoetier chat(streaming({"run", "--chat", "-n", "60000", "--ignore-eos", "--progress"}));
  for (int turn = 0; turn < 3; ++turn) {
    SCOPED_TRACE(turn);
    chat.write("Hello\n");
    ASSERT_TRUE(chat.wait_for_err(fmt::format("\"turn\":{},\"step\":3", turn), kLong)) << chat.finish(0).err;
    chat.signal(SIGINT);
  }
  chat.close_input();
  const ProcessResult r = chat.finish(kLong);
  EXPECT_EQ(r.code, 0) << r.err;
}

}  // namespace
}  // namespace moetier::cli
