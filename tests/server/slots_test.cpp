// POST /slots/{id}?action=save|restore|erase through a real socket.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "served.h"

namespace moetier::server {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

/// A server that may save, and its directory.
class SlotRoutes : public ::testing::Test {
 protected:
  SlotRoutes() : dir_(testing::TempDir() + "slot_routes_" + std::to_string(::getpid())) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    ServedOptions options;
    options.parallel = 2;
    options.slot_save_path = dir_;
    options.context = 8192;
    served_ = std::make_unique<Served>(std::move(options));
  }
  ~SlotRoutes() override { fs::remove_all(dir_); }

  int port() const { return served_->port(); }
  Reply act(const std::string& slot, const std::string& action, const Json& body) const {
    return post(port(), "/slots/" + slot + "?action=" + action, body);
  }
  /// What a prompt gets from a slot.
  Json tell(int slot, const std::string& prompt) const {
    const Reply reply =
        post(port(), "/completion", {{"prompt", prompt}, {"n_predict", 8}, {"temperature", 0}, {"id_slot", slot}});
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json;
  }

  std::string dir_;
  std::unique_ptr<Served> served_;
};

/// llama-server's error object with this status.
void expect_error(const Reply& reply, int status, const std::string& type, const std::string& says) {
  EXPECT_EQ(reply.status, status) << reply.body;
  expect_shape(reply.json, {{"error", {{"code", "int"}, {"message", "string"}, {"type", "string"}}}});
  if (!reply.json.contains("error")) return;
  EXPECT_EQ(reply.json["error"]["code"], status);
  EXPECT_EQ(reply.json["error"]["type"], type);
  EXPECT_THAT(reply.json["error"]["message"].get<std::string>(), HasSubstr(says));
}

TEST_F(SlotRoutes, SaveErasesNothingAndRestoreBringsItBack) {
  const std::string story = "Once upon a time there was a raven who lived in a tower.";
  const Json first = tell(0, story);
  const Reply saved = act("0", "save", {{"filename", "talk.bin"}});
  ASSERT_EQ(saved.status, 200) << saved.body;
  expect_shape(saved.json, {{"id_slot", "int"},
                            {"filename", "=talk.bin"},
                            {"n_saved", "int"},
                            {"n_written", "int"},
                            {"timings", {{"save_ms", "number"}}}});
  EXPECT_EQ(saved.json["n_written"], fs::file_size(dir_ + "/talk.bin"));
  const int64_t held = saved.json["n_saved"];
  EXPECT_GE(held, first["tokens_evaluated"].get<int64_t>());

  const Reply erased = act("0", "erase", Json::object());
  ASSERT_EQ(erased.status, 200) << erased.body;
  EXPECT_EQ(erased.json, Json({{"id_slot", 0}, {"n_erased", held}}));
  EXPECT_EQ(act("0", "erase", Json::object()).json["n_erased"], 0);

  const Reply restored = act("1", "restore", {{"filename", "talk.bin"}});
  ASSERT_EQ(restored.status, 200) << restored.body;
  expect_shape(restored.json, {{"id_slot", "int"},
                               {"filename", "=talk.bin"},
                               {"n_restored", "int"},
                               {"n_read", "int"},
                               {"timings", {{"restore_ms", "number"}}}});
  EXPECT_EQ(restored.json["id_slot"], 1);
  EXPECT_EQ(restored.json["n_restored"], held);
  EXPECT_EQ(restored.json["n_read"], saved.json["n_written"]);

  const Json again = tell(1, story);
  EXPECT_EQ(again["content"], first["content"]);
  EXPECT_EQ(again["timings"]["prompt_n"], 1) << "the rest of the prompt was restored";
}

TEST_F(SlotRoutes, EraseNeedsNoBody) {
  tell(0, "The raven");
  for (const char* head : {"", "Content-Length: 0\r\n"}) {
    RawClient client(port());
    client.send(std::string("POST /slots/0?action=erase HTTP/1.1\r\nHost: test\r\n") + head + "\r\n");
    const std::string reply = client.read_until("}", 10);
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 200")) << reply;
    EXPECT_THAT(reply, HasSubstr("\"n_erased\":"));
  }
  // Where a body is needed its absence is told, at once.
  RawClient client(port());
  client.send("POST /slots/0?action=save HTTP/1.1\r\nHost: test\r\n\r\n");
  EXPECT_TRUE(client.read_until("}}", 10).starts_with("HTTP/1.1 400"));
}

TEST_F(SlotRoutes, WhatIsNotThereIsTheClientsError) {
  expect_error(act("0", "restore", {{"filename", "nothing.bin"}}), 404, "not_found_error", "'nothing.bin'");
  std::ofstream(dir_ + "/odd.bin") << "no session at all";
  expect_error(act("0", "restore", {{"filename", "odd.bin"}}), 400, "invalid_request_error", "no saved session");
  fs::create_directories(dir_ + "/folder");
  expect_error(act("0", "restore", {{"filename", "folder"}}), 400, "invalid_request_error", "folder");
  expect_error(act("7", "erase", Json::object()), 400, "invalid_request_error", "no slot 7");
  expect_error(act("x", "erase", Json::object()), 400, "invalid_request_error", "'x' is not a slot's number");
  expect_error(act("-1", "erase", Json::object()), 400, "invalid_request_error", "no slot -1");
}

TEST_F(SlotRoutes, BadNamesAndActions) {
  for (const char* bad : {"", "../talk.bin", "a/b", ".hidden", "/etc/passwd", "a\nb", "a\\b"}) {
    expect_error(act("0", "save", {{"filename", bad}}), 400, "invalid_request_error", "plain name");
    expect_error(act("0", "restore", {{"filename", bad}}), 400, "invalid_request_error", "plain name");
  }
  expect_error(act("0", "save", {{"filename", std::string(201, 'a')}}), 400, "invalid_request_error", "plain name");
  expect_error(act("0", "save", Json::object()), 400, "invalid_request_error", "filename");
  expect_error(act("0", "save", {{"filename", 5}}), 400, "invalid_request_error", "filename");
  expect_error(act("0", "copy", Json::object()), 400, "invalid_request_error", "save, restore, erase");
  expect_error(post(port(), "/slots/0", Json::object()), 400, "invalid_request_error", "save, restore, erase");
  EXPECT_TRUE(fs::is_empty(dir_));
}

TEST_F(SlotRoutes, ABusySlotIsLeftAlone) {
  // Nobody reads this answer, so it cannot end meanwhile.
  RawClient reader(port(), true);
  reader.send(raw_post("/completion", Json{{"prompt", "Once"},
                                           {"n_predict", 8000},
                                           {"n_probs", 100},
                                           {"ignore_eos", true},
                                           {"stream", true},
                                           {"id_slot", 0}}
                                          .dump()));
  ASSERT_TRUE(eventually([&] { return served_->scheduler().slots().front().sampled_tokens > 0; }));
  for (const char* action : {"save", "restore", "erase"}) {
    const Reply reply = act("0", action, {{"filename", "busy.bin"}});
    expect_error(reply, 429, "rate_limit_error", "slot 0 is at work");
    EXPECT_TRUE(reply.headers.contains("Retry-After"));
  }
  EXPECT_EQ(act("1", "erase", Json::object()).status, 200);
  reader.close();
  EXPECT_TRUE(eventually([&] { return act("0", "erase", Json::object()).status == 200; }));
}

TEST(SlotRoutesWithoutAPath, OnlyEraseIsThere) {
  for (const char* action : {"save", "restore"}) {
    const Reply reply = post(shared().port(), std::string("/slots/0?action=") + action, {{"filename", "talk.bin"}});
    expect_error(reply, 501, "not_supported_error", "--slot-save-path");
  }
  EXPECT_EQ(post(shared().port(), "/slots/3?action=erase", Json::object()).status, 200);
}

}  // namespace
}  // namespace moetier::server
