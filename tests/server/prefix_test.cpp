// Prefixes are computed once: shared between slots, kept afterwards, and saved on disk; and the answers stay the same.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <future>

#include "base/file.h"
#include "server/prompt_store.h"
#include "server/serving.h"
#include "server/session_file.h"
#include "support/error_of.h"

namespace moetier {
namespace {

using namespace testing_support;
using testing::HasSubstr;
namespace fs = std::filesystem;

ContextOptions served(int sequences, int64_t context = 512) {
  ContextOptions o = small_context(TensorType::f16, 32, sequences);
  o.context = context;
  return o;
}

SchedulerOptions quiet(int parallel) {
  SchedulerOptions o;
  o.parallel = parallel;
  o.log_requests = false;
  return o;
}

class Prefixes : public testing::Test {
 protected:
  std::vector<TokenId> tokens(size_t n, uint64_t seed) { return some_tokens(*engine, n, seed); }
  static std::vector<TokenId> plus(std::vector<TokenId> a, const std::vector<TokenId>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  Request ask(std::vector<TokenId> prompt, int64_t n = 8) {
    Request r = request_of(std::move(prompt), n);
    r.ignore_eog = true;
    return r;
  }
  void expect_alone(const Request& request, const RequestResult& got) {
    const GenerateResult want = alone(*engine, served(1), request);
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_EQ(got.text, want.text);
  }
  std::unique_ptr<Engine> engine = load("mini-qwen3moe-q8_0");
};

TEST_F(Prefixes, AConversationComputesOnlyWhatIsNew) {
  Context context(*engine, served(2));
  Scheduler scheduler(context, quiet(2));
  const Request first = ask(tokens(100, 1));
  const RequestResult answer = scheduler.submit(first)->wait();
  EXPECT_EQ(answer.cached_tokens, 0);
  const Request next = ask(plus(plus(first.prompt, answer.tokens), tokens(30, 2)));
  const RequestResult got = scheduler.submit(next)->wait();
  // The last token sampled was never computed.
  EXPECT_EQ(got.cached_tokens, 100 + 7);
  EXPECT_EQ(got.slot, answer.slot);
  expect_alone(next, got);
  // The same prompt again: all but its last token is there.
  const RequestResult again = scheduler.submit(next)->wait();
  EXPECT_EQ(again.cached_tokens, static_cast<int64_t>(next.prompt.size()) - 1);
  expect_alone(next, again);
}

/// Their states can only be cut where one was kept: where prompts ended.
TEST_F(Prefixes, OfRecurrentModelsGoBackToTheEndOfAPrompt) {
  engine = load("mini-qwen3next-f32");
  Context context(*engine, served(3));
  Scheduler scheduler(context, quiet(1));
  std::vector<Request> all;
  for (uint64_t i = 0; i < 4; ++i) all.push_back(ask(tokens(150, i)));
  std::vector<RequestResult> answers;
  for (const Request& r : all) {
    answers.push_back(scheduler.submit(r)->wait());
    expect_alone(r, answers.back());
  }
  // What was answered last goes on after the answer, and after another one.
  const Request next = ask(plus(plus(all[3].prompt, answers[3].tokens), tokens(30, 7)));
  const RequestResult got = scheduler.submit(next)->wait();
  EXPECT_EQ(got.cached_tokens, 150 + 7);
  expect_alone(next, got);
  const Request other = ask(plus(all[3].prompt, tokens(90, 8)));
  const RequestResult turned = scheduler.submit(other)->wait();
  EXPECT_GT(turned.cached_tokens, 0);
  expect_alone(other, turned);
}

/// Layers that see a window, or a chunk, keep what a longer prefix needs: texts of some windows' length are gone on
/// with, cut in the middle, and shared.
TEST_F(Prefixes, OfWindowedModelsAreSharedAndCutPastTheWindow) {
  for (const char* model : {"odd-gpt-oss-f32", "mini-gpt-oss-mxfp4_moe", "mini-gemma4-q8_0", "mini-llama4-q8_0"}) {
    SCOPED_TRACE(model);
    engine = load(model);
    Context context(*engine, served(3));
    Scheduler scheduler(context, quiet(2));
    const Request first = ask(tokens(190, 1));
    const RequestResult answer = scheduler.submit(first)->wait();
    expect_alone(first, answer);
    const Request next = ask(plus(plus(first.prompt, answer.tokens), tokens(30, 2)));
    const RequestResult got = scheduler.submit(next)->wait();
    EXPECT_EQ(got.cached_tokens, 190 + 7);
    expect_alone(next, got);
    // Another end of the first half, which ends inside a page and behind the window.
    const Request turned = ask(plus({first.prompt.begin(), first.prompt.begin() + 100}, tokens(60, 3)));
    const RequestResult other = scheduler.submit(turned)->wait();
    EXPECT_EQ(other.cached_tokens, 100);
    expect_alone(turned, other);
    // Two at once that begin alike.
    std::vector<std::shared_ptr<Stream>> streams;
    std::vector<Request> both;
    for (uint64_t i = 0; i < 2; ++i) both.push_back(ask(plus(tokens(200, 4), tokens(20, 50 + i)), 12));
    scheduler.run_exclusive([&](Context&) {
      for (const Request& r : both) streams.push_back(scheduler.submit(r));
    });
    for (size_t i = 0; i < both.size(); ++i) expect_alone(both[i], streams[i]->wait());
  }
}

TEST_F(Prefixes, OtherConversationsInTheSameSlotAreKept) {
  Context context(*engine, served(4));  // memory for four, one slot
  Scheduler scheduler(context, quiet(1));
  std::vector<Request> all;
  for (uint64_t i = 0; i < 3; ++i) all.push_back(ask(tokens(150, i)));
  for (const Request& r : all) EXPECT_EQ(scheduler.submit(r)->wait().cached_tokens, 0);
  for (const Request& r : all) {
    const Request more = ask(plus(r.prompt, tokens(10, 77)));
    const RequestResult got = scheduler.submit(more)->wait();
    EXPECT_EQ(got.cached_tokens, 150);
    expect_alone(more, got);
  }
}

TEST_F(Prefixes, KeptOnesMakeRoomWhenMemoryIsNeeded) {
  Context context(*engine, served(2, 256));
  Scheduler scheduler(context, quiet(2));
  for (uint64_t i = 0; i < 12; ++i) {
    const Request a = ask(tokens(200, i), 40), b = ask(tokens(210, 100 + i), 40);
    const auto first = scheduler.submit(a), second = scheduler.submit(b);
    const RequestResult x = first->wait(), y = second->wait();
    const GenerateResult want = alone(*engine, served(1, 256), a);
    EXPECT_EQ(x.tokens, want.tokens);
    EXPECT_EQ(y.finish, Finish::length);
  }
}

TEST_F(Prefixes, RequestsThatComeTogetherComputeTheirCommonPartOnce) {
  Context context(*engine, served(4));
  Scheduler scheduler(context, quiet(4));
  const std::vector<TokenId> common = tokens(320, 5);
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Stream>> streams;
  for (uint64_t i = 0; i < 4; ++i) requests.push_back(ask(plus(common, tokens(20, 50 + i)), 12));
  // Submitted while the thread is held, so that all of them get their slots in one round.
  scheduler.run_exclusive([&](Context&) {
    for (const Request& r : requests) streams.push_back(scheduler.submit(r));
  });
  int64_t computed = 0;
  for (size_t i = 0; i < streams.size(); ++i) {
    const RequestResult r = streams[i]->wait();
    computed += r.computed_tokens;
    expect_alone(requests[i], r);
  }
  EXPECT_LE(computed, 320 + 4 * 20 + 3 * 2 * kPagePositions);
}

TEST_F(Prefixes, AreNotUsedWhereTheRequestSaysSo) {
  Context context(*engine, served(1));
  Scheduler scheduler(context, quiet(1));
  Request r = ask(tokens(100, 1));
  r.cache_prompt = false;
  for (int i = 0; i < 2; ++i) {
    const RequestResult got = scheduler.submit(r)->wait();
    EXPECT_EQ(got.cached_tokens, 0);
    expect_alone(r, got);
  }
}

TEST_F(Prefixes, AWantedSlotIsWaitedForAndGetsThePrefixOfAnother) {
  Context context(*engine, served(2));
  Scheduler scheduler(context, quiet(2));
  Request r = ask(tokens(100, 1));
  r.slot = 1;
  EXPECT_EQ(scheduler.submit(r)->wait().slot, 1);
  r.slot = 0;
  const RequestResult moved = scheduler.submit(r)->wait();
  EXPECT_EQ(moved.slot, 0);
  EXPECT_EQ(moved.cached_tokens, 99);
  expect_alone(r, moved);
}

TEST_F(Prefixes, SlotsAreSavedRestoredAndErased) {
  const std::string dir = test_dir("slots");
  SchedulerOptions options = quiet(2);
  options.slot_save_path = dir;
  Request r = ask(tokens(120, 1));
  r.slot = 0;
  std::string first_bytes;
  {
    Context context(*engine, served(2));
    Scheduler scheduler(context, options);
    const RequestResult got = scheduler.submit(r)->wait();
    const SlotFile saved = scheduler.save_slot(0, "talk.bin");
    EXPECT_EQ(saved.tokens, 120 + 7);
    EXPECT_EQ(saved.bytes, fs::file_size(dir + "/talk.bin"));
    first_bytes = read_file(dir + "/talk.bin");
    EXPECT_EQ(scheduler.erase_slot(0).tokens, 127);
    EXPECT_EQ(scheduler.slots().front().held_tokens, 0);
    EXPECT_EQ(got.finish, Finish::length);
  }
  Context context(*engine, served(2));
  Scheduler scheduler(context, options);
  EXPECT_EQ(scheduler.restore_slot(1, "talk.bin").tokens, 127);
  EXPECT_GT(scheduler.save_slot(1, "again.bin").bytes, 0u);
  EXPECT_EQ(read_file(dir + "/again.bin"), first_bytes) << "saving what was restored gives the same bytes";
  Request more = ask(plus(r.prompt, tokens(9, 3)));
  const RequestResult got = scheduler.submit(more)->wait();
  EXPECT_EQ(got.cached_tokens, 120);
  expect_alone(more, got);

  for (const char* bad : {"", "../talk.bin", "a/b", ".hidden", "/etc/passwd", "a\nb"}) {
    EXPECT_THAT(error_of([&] { scheduler.save_slot(0, bad); }), HasSubstr("plain name")) << bad;
    EXPECT_THAT(error_of([&] { scheduler.restore_slot(0, bad); }), HasSubstr("plain name")) << bad;
  }
  EXPECT_THAT(error_of([&] { scheduler.restore_slot(0, "nothing.bin"); }), HasSubstr("nothing.bin"));
  EXPECT_THAT(error_of([&] { scheduler.save_slot(7, "x"); }), HasSubstr("no slot 7"));
  fs::remove_all(dir);
}

TEST_F(Prefixes, ABusySlotIsNotSaved) {
  const std::string dir = test_dir("busy");
  SchedulerOptions options = quiet(1);
  options.slot_save_path = dir;
  options.stream_events = 100000;
  Context context(*engine, served(1, 8192));
  Scheduler scheduler(context, options);
  const auto running = scheduler.submit(ask(tokens(10, 1), 8000));
  while (!running->next(std::chrono::seconds(5))) {
  }
  EXPECT_THROW(scheduler.save_slot(0, "x"), Busy);
  EXPECT_THROW(scheduler.erase_slot(0), Busy);
  running->cancel();
  running->wait();
  Context other(*engine, served(1));
  Scheduler without(other, quiet(1));
  EXPECT_THAT(error_of([&] { without.save_slot(0, "x"); }), HasSubstr("--slot-save-path"));
  fs::remove_all(dir);
}

TEST_F(Prefixes, DamagedSessionsAreRefused) {
  const std::string dir = test_dir("damaged"), path = dir + "/s";
  Context context(*engine, served(1));
  SequenceState sequence = context.new_sequence();
  const std::vector<TokenId> held = tokens(70, 1);
  feed(context, sequence, held);
  const ModelId id = identify(context);
  write_session(path, id, held, sequence);
  const std::string good = read_file(path), state = sequence.save();
  SequenceState target = context.new_sequence();
  const auto attempt = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return error_of([&] { SessionReader(path, id).load(target); });
  };
  EXPECT_EQ(attempt(good), "");
  EXPECT_EQ(target.save(), state);
  for (size_t length = 0; length < good.size(); length += 1 + length / 3) {
    EXPECT_THAT(attempt(good.substr(0, length)), HasSubstr(path)) << length;
  }
  for (size_t at = 0; at < good.size(); at += 1 + at / 4) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    // A few bytes are reserved, and of the header alone.
    if (at >= 12 && at < 16) continue;
    EXPECT_THAT(attempt(bad), HasSubstr(path)) << at;
  }
  EXPECT_THAT(attempt(good + "x"), HasSubstr(path));
  EXPECT_EQ(target.save(), state) << "what it held stays";
  // Another model's, and the same model read otherwise.
  const auto other = load("mini-qwen3moe-q4_0");
  Context another(*other, served(1));
  EXPECT_FALSE(identify(another) == id);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << good;
  EXPECT_THAT(error_of([&] { SessionReader(path, identify(another)); }), HasSubstr("another model"));
  fs::remove_all(dir);
}

/// Whoever opened a pipe to wait for its other end is let go.
void let_go(const std::string& pipe) {
  ::close(::open(pipe.c_str(), O_RDWR | O_NONBLOCK));
}

TEST_F(Prefixes, PipesAreNoSessionsAndNotWaitedFor) {
  const std::string dir = test_dir("pipes"), pipe = dir + "/ff";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  Context context(*engine, served(1));
  SchedulerOptions options = quiet(1);
  options.slot_save_path = dir;
  Scheduler scheduler(context, options);
  scheduler.submit(ask(tokens(70, 1)))->wait();
  for (const bool restore : {true, false}) {
    auto asked = std::async(std::launch::async, [&] {
      return error_of([&] { restore ? scheduler.restore_slot(0, "ff") : scheduler.save_slot(0, "ff"); });
    });
    EXPECT_EQ(asked.wait_for(std::chrono::seconds(5)), std::future_status::ready) << restore;
    let_go(pipe);
    EXPECT_THAT(asked.get(), HasSubstr("not a regular file")) << restore;
  }
  EXPECT_EQ(scheduler.submit(ask(tokens(5, 2)))->wait().finish, Finish::length);
  fs::remove_all(dir);
}

TEST_F(Prefixes, SavedSlotsNeedADirectoryThatCanBeUsed) {
  const std::string dir = test_dir("slots");
  std::ofstream(dir + "/file") << "x";
  Context context(*engine, served(1));
  SchedulerOptions options = quiet(1);
  options.slot_save_path = dir + "/file";
  EXPECT_THAT(error_of([&] { Scheduler(context, options); }), HasSubstr(options.slot_save_path));
  options.slot_save_path = dir + "/made/at/once";
  EXPECT_EQ(error_of([&] { Scheduler(context, options); }), "");
  EXPECT_TRUE(fs::is_directory(options.slot_save_path));
  fs::remove_all(dir);
}

class PromptCache : public Prefixes {
 protected:
  void SetUp() override {
    dir = test_dir("cache");
    options = quiet(2);
    options.prompt_cache_dir = dir;
  }
  void TearDown() override { fs::remove_all(dir); }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(dir), fs::directory_iterator()));
  }
  RequestResult serve(const Request& r) {
    Context context(*engine, served(2));
    Scheduler scheduler(context, options);
    return scheduler.submit(r)->wait();
  }
  std::string dir;
  SchedulerOptions options;
};

TEST_F(PromptCache, IsFoundByTheNextRun) {
  const Request first = ask(tokens(200, 1));
  EXPECT_EQ(serve(first).cached_tokens, 0);
  EXPECT_EQ(files(), 1u);
  const Request more = ask(plus(first.prompt, tokens(100, 2)));
  const RequestResult got = serve(more);
  EXPECT_EQ(got.cached_tokens, 200);
  expect_alone(more, got);
  EXPECT_EQ(files(), 2u) << "the answers differ, so neither holds the other";
  const Request same = ask(more.prompt);
  const RequestResult again = serve(same);
  EXPECT_EQ(again.cached_tokens, 299);
  expect_alone(same, again);
  EXPECT_EQ(files(), 2u) << "nothing new, nothing written";
}

TEST_F(PromptCache, OfAWindowedModelIsFoundByTheNextRun) {
  engine = load("odd-gpt-oss-f32");
  const Request first = ask(tokens(200, 1));
  EXPECT_EQ(serve(first).cached_tokens, 0);
  const Request more = ask(plus(first.prompt, tokens(100, 2)));
  const RequestResult got = serve(more);
  EXPECT_EQ(got.cached_tokens, 200);
  expect_alone(more, got);
}

TEST_F(PromptCache, LongerOnesReplaceTheirBeginnings) {
  const Request first = ask(tokens(100, 1), 0);
  serve(first);
  serve(ask(plus(first.prompt, tokens(100, 2)), 0));
  EXPECT_EQ(files(), 1u);
  EXPECT_EQ(serve(ask(plus(first.prompt, tokens(5, 2)), 1)).cached_tokens, 104);
}

TEST_F(PromptCache, IsBounded) {
  serve(ask(tokens(200, 1), 0));
  uint64_t each = 0;
  for (const auto& file : fs::directory_iterator(dir)) each = file.file_size();
  options.prompt_cache_bytes = each * 5 / 2;
  for (uint64_t i = 2; i < 6; ++i) {
    serve(ask(tokens(200, i), 0));
    EXPECT_LE(files(), 2u);
  }
  EXPECT_EQ(serve(ask(plus(tokens(200, 5), tokens(1, 9)), 1)).cached_tokens, 200);
  options.prompt_cache_bytes = each / 2;
  EXPECT_EQ(serve(ask(tokens(200, 9), 1)).finish, Finish::length) << "too big to keep is no error";
  EXPECT_EQ(files(), 0u);
}

TEST_F(PromptCache, DamagedOrForeignFilesAreNotUsed) {
  const Request r = ask(tokens(200, 1), 0);
  serve(r);
  std::string path;
  for (const auto& file : fs::directory_iterator(dir)) path = file.path();
  std::string bytes = read_file(path);
  bytes[bytes.size() - 100] = static_cast<char>(bytes[bytes.size() - 100] ^ 1);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  std::ofstream(dir + "/readme.txt") << "not ours";
  const RequestResult got = serve(ask(r.prompt, 5));
  EXPECT_EQ(got.cached_tokens, 0);
  expect_alone(ask(r.prompt, 5), got);
  EXPECT_TRUE(fs::exists(dir + "/readme.txt"));
}

TEST_F(PromptCache, LargeStatesWaitOneAtATime) {
  Context context(*engine, served(12));
  std::vector<std::vector<TokenId>> held;
  std::vector<SequenceState> states;
  uint64_t largest = 0;
  for (uint64_t i = 0; i < 12; ++i) {
    held.push_back(tokens(100 + i, i));
    states.push_back(context.new_sequence());
    feed(context, states.back(), held.back());
    largest = std::max(largest, states.back().saved_bytes());
  }
  const auto most_seen = [&](uint64_t most_waiting, bool wait) {
    fs::remove_all(dir);
    std::atomic<int> written{0};
    uint64_t most = 0;
    {
      PromptStore store(dir, uint64_t{1} << 30, identify(context), most_waiting, [&] { ++written; });
      for (size_t i = 0; i < held.size(); ++i) {
        if (wait) store.wait_for_room(states[i]);
        store.save(held[i], states[i]);
        most = std::max(most, store.waiting_bytes());
      }
    }
    EXPECT_EQ(static_cast<size_t>(written), files());
    if (wait) {
      EXPECT_EQ(files(), held.size()) << "who waits for room loses nothing";
    }
    return most;
  };
  EXPECT_LE(most_seen(1, false), largest);
  EXPECT_LE(most_seen(1, true), largest);
  EXPECT_LE(most_seen(3 * largest, true), 3 * largest);
}

TEST_F(PromptCache, AtTheEndAllSlotsAreSaved) {
  options = quiet(4);
  options.prompt_cache_dir = dir;
  {
    Context context(*engine, served(4));
    Scheduler scheduler(context, options);
    std::vector<std::shared_ptr<Stream>> streams;
    for (uint64_t i = 0; i < 4; ++i) streams.push_back(scheduler.submit(ask(tokens(150, i), 3)));
    for (const auto& stream : streams) stream->wait();
    scheduler.stop();
  }
  EXPECT_EQ(files(), 4u);
}

TEST_F(PromptCache, APipeAmongItsFilesIsNotUsed) {
  Context context(*engine, served(1));
  const std::string pipe = dir + "/" + identify(context).hex().substr(0, 16) + "-x-y.prompt";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  auto served_one = std::async(std::launch::async, [&] { return serve(ask(tokens(100, 1))); });
  EXPECT_EQ(served_one.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  let_go(pipe);
  EXPECT_EQ(served_one.get().finish, Finish::length);
}

TEST_F(PromptCache, NeedsADirectoryThatCanBeUsed) {
  std::ofstream(dir + "/file") << "x";
  options.prompt_cache_dir = dir + "/file";
  EXPECT_THAT(error_of([&] { serve(ask(tokens(5, 1))); }), HasSubstr(options.prompt_cache_dir));
}

}  // namespace
}  // namespace moetier
