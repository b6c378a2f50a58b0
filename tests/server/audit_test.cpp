// The audit log holds every event and field, and its numbers add up.
#include "server/audit.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/file.h"
#include "server/audit_check.h"
#include "server/serving.h"
#include "support/error_of.h"

namespace moetier {
namespace {

using namespace testing_support;
using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::json;

std::vector<Json> records_of(const std::string& path) {
  std::vector<Json> records;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) records.push_back(Json::parse(line));
  return records;
}

std::string said(const AuditCheck& check) {
  std::string text;
  for (const std::string& problem : check.problems) text += problem + "\n";
  return text;
}

class Audit : public testing::Test {
 protected:
  void SetUp() override {
    dir = test_dir("audit");
    path = dir + "/audit.jsonl";
  }
  void TearDown() override { std::filesystem::remove_all(dir); }
  /// A server's life with so many slots.
  void serve(int parallel, int requests) {
    const auto engine = load_streaming("small-qwen3moe-q4_k_m", 400 << 10);
    Context context(*engine, small_context(TensorType::f16, 32, parallel));
    AuditParams params;
    params.threads = 1;
    params.tensor_overrides = {"exps=CPU"};
    AuditLog audit(path, context, params);
    {  // the warm-up, which belongs to no request
      SequenceState s = context.new_sequence();
      feed(context, s, some_tokens(*engine, 20, 9));
    }
    audit.ready(context);
    SchedulerOptions options;
    options.parallel = parallel;
    options.log_requests = false;
    options.audit = &audit;
    {
      Scheduler scheduler(context, options);
      std::vector<std::shared_ptr<Stream>> streams;
      for (int i = 0; i < requests; ++i) {
        Request r = request_of(some_tokens(*engine, 20, static_cast<uint64_t>(i)), 8);
        r.ignore_eog = true;
        streams.push_back(scheduler.submit(r));
      }
      for (const auto& stream : streams) stream->wait();
    }
    audit.exit(context);
  }
  std::string dir, path;
};

TEST_F(Audit, HoldsEveryEventAndAddsUp) {
  serve(1, 3);
  const std::vector<Json> records = records_of(path);
  std::vector<std::string> events;
  for (const Json& r : records) events.push_back(r["event"]);
  EXPECT_THAT(events, ElementsAre("load", "ready", "request", "request", "request", "exit"));
  const AuditCheck check = check_audit_log(read_file(path));
  EXPECT_TRUE(check.good()) << said(check);
  EXPECT_EQ(check.records, 6u);
  EXPECT_EQ(check.requests, 3u);
  EXPECT_EQ(check.sums, 1u);
  const Json& load = records.front();
  EXPECT_EQ(load["hits"], 0);
  EXPECT_EQ(load["misses"], 0);
  EXPECT_EQ(load["params"]["tensor_overrides"], Json::array({"exps=CPU"}));
  EXPECT_EQ(load["profile"], nullptr);
  EXPECT_EQ(load["devices"], Json::array());
  EXPECT_GT(load["cache"]["slots"], 0);
  EXPECT_EQ(records[2]["n_prompt"], 20);
  EXPECT_EQ(records[2]["n_gen"], 8);
  EXPECT_GT(records[1]["misses"], 0) << "of the warm-up";
  EXPECT_EQ(records[5]["perf"]["n_prompt"], 60) << "without the warm-up";
  EXPECT_EQ(records[5]["perf"]["n_gen"], 21);
  bool holds = false;
  for (const Json& layer : records[5]["layers"]) holds = holds || !layer["resident"].empty();
  EXPECT_TRUE(holds);
}

TEST_F(Audit, OfSeveralSlotsAndProcessesShareAFile) {
  serve(3, 7);
  serve(1, 2);
  const AuditCheck check = check_audit_log(read_file(path));
  EXPECT_TRUE(check.good()) << said(check);
  EXPECT_EQ(check.runs, 2u);
  EXPECT_EQ(check.requests, 9u);
}

TEST_F(Audit, TellsTheProfileInThreeForms) {
  const auto engine = load("mini-qwen3moe-q8_0");
  Context context(*engine, small_context());
  AuditParams params;
  params.profile = dir + "/absent.strp";
  AuditLog(path, context, params);
  params.profile = dir + "/here.strp";
  std::ofstream(params.profile) << "abc";
  AuditLog(path, context, params);
  const std::vector<Json> records = records_of(path);
  EXPECT_TRUE(records[0]["profile"].contains("error"));
  EXPECT_EQ(records[1]["profile"]["bytes"], 3);
  EXPECT_EQ(records[1]["profile"]["sha256"], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  // Without a cache there is nothing to count.
  EXPECT_EQ(records[1]["layers"], Json::array());
  EXPECT_EQ(records[1]["cache"]["slots"], 0);
  EXPECT_TRUE(check_audit_log(read_file(path)).good());
}

TEST_F(Audit, AFileThatCannotBeWrittenIsToldAtOnce) {
  const auto engine = load("mini-qwen3moe-q8_0");
  Context context(*engine, small_context());
  EXPECT_THAT(error_of([&] { AuditLog(dir + "/no/such/dir", context, {}); }), HasSubstr("/no/such/dir"));
  // A pipe that nobody reads is one; somebody does in the end, or it would be waited for.
  ASSERT_EQ(::mkfifo((dir + "/pipe").c_str(), 0600), 0);
  std::thread rescue([&] {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const int fd = ::open((dir + "/pipe").c_str(), O_RDWR | O_NONBLOCK);
    std::this_thread::sleep_for(std::chrono::seconds(1));
    ::close(fd);
  });
  EXPECT_THAT(error_of([&] { AuditLog(dir + "/pipe", context, {}); }), HasSubstr("/pipe"));
  rescue.join();
}

TEST_F(Audit, TheCheckerFindsWhatIsWrong) {
  serve(1, 2);
  const std::string good = read_file(path);
  const std::vector<Json> records = records_of(path);
  const auto with = [&](size_t at, auto change) {
    std::string text;
    for (size_t i = 0; i < records.size(); ++i) {
      Json r = records[i];
      if (i == at) change(r);
      text += r.dump() + "\n";
    }
    return said(check_audit_log(text));
  };
  // Every field of every record is missed.
  for (size_t i = 0; i < records.size(); ++i) {
    for (const auto& [key, value] : records[i].items()) {
      EXPECT_NE(with(i, [&outer = key](Json& r) { r.erase(outer); }), "") << i << key;
      if (value.is_object()) {
        for (const auto& [inner, ignored] : value.items())
          EXPECT_NE(with(i, [&outer = key, &name = inner](Json& r) { r[outer].erase(name); }), "") << i << key << inner;
      }
    }
  }
  const size_t request = 2, last = records.size() - 1;
  EXPECT_THAT(with(request, [](Json& r) { r["req_misses"] = r["req_misses"].get<int>() + 1; }), HasSubstr("add up"));
  EXPECT_THAT(with(last, [](Json& r) { r["hits"] = 0; }), HasSubstr("falls"));
  EXPECT_THAT(with(last, [](Json& r) { r["layers"][0]["misses"] = 1 << 20; }), HasSubstr("the layers have"));
  EXPECT_THAT(with(last, [](Json& r) { r["perf"]["gen_tps"] = 1e9; }), HasSubstr("gen_tps"));
  EXPECT_THAT(with(1, [](Json& r) { r["time"] = "yesterday"; }), HasSubstr("time"));
  EXPECT_THAT(with(1, [](Json& r) { r["event"] = "steady"; }), HasSubstr("no event 'steady'"));
  EXPECT_THAT(with(0, [](Json& r) { r["pid"] = 1; }), HasSubstr("has not written load"));
  EXPECT_THAT(with(0,
                   [](Json& r) {
                     r["profile"] = {{"path", "x"}, {"bytes", 3}, {"sha256", "short"}};
                   }),
              HasSubstr("sha256"));
  EXPECT_THAT(with(0, [](Json& r) { r["layers"][0]["resident"] = {3, 2}; }), HasSubstr("resident"));
  EXPECT_THAT(said(check_audit_log(good.substr(0, good.size() - 5))), HasSubstr("cut short"));
  EXPECT_THAT(said(check_audit_log("")), HasSubstr("empty"));
  EXPECT_THAT(said(check_audit_log("[]\n{\n\xff\n")), HasSubstr("no JSON object"));
  // A process that was killed writes no exit, which is no problem.
  const std::string killed = good.substr(0, good.rfind("{\"event\":\"exit\""));
  EXPECT_EQ(said(check_audit_log(killed)), "");
}

}  // namespace
}  // namespace moetier
