// Slow readers: their requests give their slots to others, go on later, and get the answer that they get alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "server/audit.h"
#include "server/audit_check.h"
#include "server/scheduler.h"
#include "server/serving.h"

namespace moetier {
namespace {

using namespace testing_support;
using std::chrono::milliseconds;
using testing::HasSubstr;

ContextOptions served(int sequences, int64_t context = 256) {
  ContextOptions o = small_context(TensorType::f32, 32, sequences);
  o.context = context;
  return o;
}

SchedulerOptions impatient(int parallel) {
  SchedulerOptions o;
  o.parallel = parallel;
  o.stream_events = 4;
  o.log_requests = false;
  return o;
}

bool comes_true(const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

bool paused(const Scheduler& scheduler, int slot = 0) {
  return scheduler.slots()[static_cast<size_t>(slot)].paused;
}

/// How many requests have no slot because they are not read.
int set_aside(const Scheduler& scheduler) {
  const std::string text = scheduler.metrics_text(), mark = "\nmoetier:requests_set_aside ";
  const size_t at = text.find(mark);
  EXPECT_NE(at, std::string::npos);
  return at == std::string::npos ? -1 : std::stoi(text.substr(at + mark.size()));
}

/// Everything about it depends on state that must not be lost: random numbers, penalties, log-probabilities.
Request long_request(const Engine& engine, uint64_t seed, int64_t max_tokens = 60, size_t prompt = 40) {
  Request r = request_of(some_tokens(engine, prompt, seed), max_tokens, 0.9f, seed);
  r.sampler.repeat_penalty = 1.2f;
  r.ignore_eog = true;
  r.n_probs = 3;
  return r;
}

/// The answer of one that is read at once and has nobody beside it.
Received read_at_once(Engine& engine, const ContextOptions& options, const Request& request) {
  Context context(engine, options);
  SchedulerOptions scheduling = impatient(1);
  scheduling.stream_events = 10000;
  Scheduler scheduler(context, scheduling);
  return receive(*scheduler.submit(request));
}

void expect_same(const Received& got, const Received& want) {
  ASSERT_EQ(got.error, "");
  EXPECT_EQ(got.text, want.text);
  EXPECT_EQ(got.result.tokens, want.result.tokens);
  EXPECT_EQ(got.result.finish, want.result.finish);
  EXPECT_EQ(got.result.sampled_tokens, want.result.sampled_tokens);
  ASSERT_EQ(got.tokens.size(), want.tokens.size());
  for (size_t i = 0; i < got.tokens.size(); ++i) {
    EXPECT_EQ(got.tokens[i].token, want.tokens[i].token) << i;
    EXPECT_EQ(got.tokens[i].logprob, want.tokens[i].logprob) << i;
    ASSERT_EQ(got.tokens[i].top.size(), want.tokens[i].top.size()) << i;
    for (size_t k = 0; k < got.tokens[i].top.size(); ++k) {
      EXPECT_EQ(got.tokens[i].top[k].logprob, want.tokens[i].top[k].logprob) << i << " " << k;
    }
  }
}

struct Case {
  const char* name;
  const char* model;
  bool pages_short, cache_prompt;
};

class SetAside : public testing::TestWithParam<Case> {};

TEST_P(SetAside, TheAnswerIsThatOfARequestThatIsReadAtOnce) {
  const Case form = GetParam();
  const auto engine = load(form.model, 2);
  const ContextOptions options = served(1);
  Context context(*engine, options);
  Scheduler scheduler(context, impatient(1));
  Request slow = long_request(*engine, 1);
  slow.cache_prompt = form.cache_prompt;
  const auto stream = scheduler.submit(slow);
  Received got;
  // Others come again and again, and between them it is read for a while.
  for (uint64_t round = 0; round < 3; ++round) {
    ASSERT_TRUE(comes_true([&] { return paused(scheduler); }));
    const size_t prompt = form.pages_short ? 240 : 20;
    const Request quick = request_of(some_tokens(*engine, prompt, 50 + round), 5);
    EXPECT_EQ(scheduler.submit(quick)->wait().finish, Finish::length);
    EXPECT_EQ(set_aside(scheduler), 1);
    EXPECT_EQ(scheduler.busy_slots(), 0);
    for (int i = 0; i < 3; ++i) {
      const auto event = stream->next(milliseconds(5000));
      ASSERT_TRUE(event);
      got.text += event->text;
      got.tokens.insert(got.tokens.end(), event->tokens.begin(), event->tokens.end());
    }
  }
  const Received rest = receive(*stream);
  got.text += rest.text;
  got.tokens.insert(got.tokens.end(), rest.tokens.begin(), rest.tokens.end());
  got.result = rest.result;
  got.error = rest.error;
  expect_same(got, read_at_once(*engine, options, slow));
  EXPECT_GT(got.result.aside_seconds, 0);
  EXPECT_EQ(got.result.cached_tokens + got.result.computed_tokens, got.result.prompt_tokens);
  EXPECT_EQ(set_aside(scheduler), 0);
}

INSTANTIATE_TEST_SUITE_P(Forms, SetAside,
                         testing::Values(Case{"kept", "mini-qwen3moe-q8_0", false, true},
                                         Case{"pages_short", "mini-qwen3moe-q8_0", true, true},
                                         Case{"uncached", "mini-qwen3moe-q8_0", true, false},
                                         Case{"recurrent", "mini-qwen3next-f32", false, true},
                                         Case{"recurrent_short", "mini-qwen3next-f32", true, true}),
                         [](const auto& form) { return std::string(form.param.name); });

class SlowReaders : public testing::Test {
 protected:
  std::unique_ptr<Engine> engine = load("mini-qwen3moe-q8_0");
};

TEST_F(SlowReaders, OneAfterAnotherHoldNobodyUp) {
  Context context(*engine, served(1, 512));
  SchedulerOptions options = impatient(1);
  options.stall_seconds = 600;
  Scheduler scheduler(context, options);
  std::vector<std::shared_ptr<Stream>> streams;
  for (uint64_t i = 0; i < 4; ++i) streams.push_back(scheduler.submit(long_request(*engine, i, 400)));
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(scheduler.submit(request_of(some_tokens(*engine, 9, 9), 3))->wait().finish, Finish::length);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60)) << "no stall was waited for";
  EXPECT_EQ(set_aside(scheduler), 4);
}

TEST_F(SlowReaders, EndAsStalledOutOfASlotToo) {
  Context context(*engine, served(1, 512));
  SchedulerOptions options = impatient(1);
  options.stall_seconds = 0.3;
  Scheduler scheduler(context, options);
  const auto stalled = scheduler.submit(long_request(*engine, 1, 400));
  ASSERT_TRUE(comes_true([&] { return paused(scheduler); }));
  EXPECT_EQ(scheduler.submit(request_of(some_tokens(*engine, 9, 9), 3))->wait().finish, Finish::length);
  EXPECT_TRUE(comes_true([&] { return set_aside(scheduler) == 0; }));
  EXPECT_EQ(receive(*stalled).result.finish, Finish::stalled);
  EXPECT_THAT(scheduler.metrics_text(), HasSubstr("moetier:requests_total{finish=\"stalled\"} 1\n"));
}

TEST_F(SlowReaders, MayGoWaitAndBeStoppedWithoutASlot) {
  Context context(*engine, served(1, 512));
  Scheduler scheduler(context, impatient(1));
  std::vector<std::shared_ptr<Stream>> streams;
  Request limited = long_request(*engine, 2, 400);
  limited.time_limit = 0.5;
  for (const Request& r : {long_request(*engine, 1, 400), limited, long_request(*engine, 3, 400)}) {
    streams.push_back(scheduler.submit(r));
    ASSERT_TRUE(comes_true([&] { return paused(scheduler) && scheduler.queued() == 0; }));
  }
  ASSERT_EQ(scheduler.submit(request_of(some_tokens(*engine, 9, 9), 3))->wait().finish, Finish::length);
  streams[0]->cancel();
  ASSERT_TRUE(comes_true([&] { return set_aside(scheduler) == 1; }));
  EXPECT_EQ(receive(*streams[0]).result.finish, Finish::cancelled);
  EXPECT_EQ(receive(*streams[1]).result.finish, Finish::timed_out);
  scheduler.drain(0);
  EXPECT_EQ(receive(*streams[2]).result.finish, Finish::shutdown);
  EXPECT_EQ(set_aside(scheduler), 0);
}

TEST_F(SlowReaders, GoOnBeforeThoseThatCameLater) {
  Context context(*engine, served(1, 512));
  Scheduler scheduler(context, impatient(1));
  const Request slow = long_request(*engine, 1, 30);
  const auto first = scheduler.submit(slow);
  ASSERT_TRUE(comes_true([&] { return paused(scheduler); }));
  Request later = request_of(some_tokens(*engine, 9, 3), 400);
  later.ignore_eog = true;
  const auto second = scheduler.submit(later);
  ASSERT_TRUE(comes_true([&] { return set_aside(scheduler) == 1 && paused(scheduler); }));
  const auto third = scheduler.submit(later);
  // The second gives way to the third, and the first comes before it as soon as it is read.
  const Received got = receive(*first);
  EXPECT_EQ(got.result.finish, Finish::length);
  EXPECT_EQ(got.result.sampled_tokens, 30);
}

TEST_F(SlowReaders, GiveAWantedSlotAndGetItBack) {
  Context context(*engine, served(2, 512));
  Scheduler scheduler(context, impatient(2));
  Request slow = long_request(*engine, 1, 30);
  slow.slot = 1;
  const auto first = scheduler.submit(slow);
  ASSERT_TRUE(comes_true([&] { return paused(scheduler, 1); }));
  Request quick = request_of(some_tokens(*engine, 9, 9), 3);
  quick.slot = 1;
  EXPECT_EQ(scheduler.submit(quick)->wait().slot, 1);
  EXPECT_EQ(receive(*first).result.slot, 1);
}

TEST_F(SlowReaders, GiveWayToWorkThatNeedsPages) {
  Context context(*engine, served(1, 256));
  Scheduler scheduler(context, impatient(1));
  const Request slow = long_request(*engine, 1);
  const auto first = scheduler.submit(slow);
  ASSERT_TRUE(comes_true([&] { return paused(scheduler); }));
  int64_t free = 0;
  scheduler.run_exclusive([&](Context& c) { free = c.kv().free_pages(); }, pages_for(256));
  EXPECT_EQ(free, pages_for(256));
  expect_same(receive(*first), read_at_once(*engine, served(1, 256), slow));
}

/// What is computed again gives no logits, also where the prompt's tokens had log-probabilities.
TEST_F(SlowReaders, ComputeAgainBesidePromptsThatEndInTheSameBatch) {
  const ContextOptions options = served(2);
  Context context(*engine, options);
  Scheduler scheduler(context, impatient(2));
  Request slow = long_request(*engine, 1, 60, 100);
  slow.prompt_probs = 2;
  const auto first = scheduler.submit(slow);
  ASSERT_TRUE(comes_true([&] { return paused(scheduler); }));
  Request large = request_of(some_tokens(*engine, 230, 7), 20);
  large.constraint = std::make_shared<SlowConstraint>(milliseconds(5));
  large.ignore_eog = true;
  const auto one = scheduler.submit(large);
  large.prompt = some_tokens(*engine, 230, 8);
  large.constraint = std::make_shared<SlowConstraint>(milliseconds(5));
  const auto other = scheduler.submit(large);
  EXPECT_EQ(one->wait().finish, Finish::length);
  EXPECT_EQ(other->wait().finish, Finish::length);
  EXPECT_EQ(set_aside(scheduler), 1);
  const Request beside = request_of(some_tokens(*engine, 138, 9), 6);
  std::shared_ptr<Stream> second;
  Received got;
  scheduler.run_exclusive([&](Context&) {  // so that both begin with the same batch
    for (int i = 0; i < 3; ++i) {
      const auto event = first->next(milliseconds(5000));
      ASSERT_TRUE(event);
      got.text += event->text;
      if (event->kind == StreamEvent::Kind::text)
        got.tokens.insert(got.tokens.end(), event->tokens.begin(), event->tokens.end());
    }
    second = scheduler.submit(beside);
  });
  expect_same(receive(*second), read_at_once(*engine, options, beside));
  const Received want = read_at_once(*engine, options, slow);
  const Received rest = receive(*first);
  EXPECT_EQ(got.text + rest.text, want.text);
  EXPECT_EQ(rest.result.tokens, want.result.tokens);
}

TEST_F(SlowReaders, TakeAPlaceOfTheQueue) {
  Context context(*engine, served(1, 512));
  SchedulerOptions options = impatient(1);
  options.queue = 1;
  Scheduler scheduler(context, options);
  const auto a = scheduler.submit(long_request(*engine, 1, 400));
  ASSERT_TRUE(comes_true([&] { return paused(scheduler); }));
  const auto b = scheduler.submit(long_request(*engine, 2, 400));
  ASSERT_TRUE(comes_true([&] { return set_aside(scheduler) == 1 && paused(scheduler); }));
  EXPECT_THROW(scheduler.submit(long_request(*engine, 3)), Busy);
}

TEST(SlowReadersAudit, StillAddsUp) {
  const std::string dir = test_dir("aside_audit"), path = dir + "/audit.jsonl";
  const auto engine = load_streaming("small-qwen3moe-q4_k_m", 400 << 10);
  {
    Context context(*engine, served(1));
    AuditLog audit(path, context, {});
    audit.ready(context);
    SchedulerOptions options = impatient(1);
    options.audit = &audit;
    {
      Scheduler scheduler(context, options);
      const auto slow = scheduler.submit(long_request(*engine, 1, 40));
      ASSERT_TRUE(comes_true([&] { return paused(scheduler); }));
      const auto stalled = scheduler.submit(long_request(*engine, 2, 40));
      ASSERT_TRUE(comes_true([&] { return set_aside(scheduler) == 1 && paused(scheduler); }));
      EXPECT_EQ(scheduler.submit(request_of(some_tokens(*engine, 200, 3), 3))->wait().finish, Finish::length);
      EXPECT_EQ(receive(*slow).result.finish, Finish::length);
    }
    audit.exit(context);
  }
  const AuditCheck check = check_audit_log(read_file(path));
  std::string said;
  for (const std::string& problem : check.problems) said += problem + "\n";
  EXPECT_TRUE(check.good()) << said;
  EXPECT_EQ(check.requests, 3u);
  EXPECT_EQ(check.sums, 1u);
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace moetier
