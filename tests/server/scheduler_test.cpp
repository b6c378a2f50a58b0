// Requests that are served together: each gets the answer that it gets alone, and nobody holds up the others.
#include "server/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <future>

#include "engine/sanitized.h"
#include "server/serving.h"
#include "support/error_of.h"

namespace moetier {
namespace {

using namespace testing_support;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

ContextOptions served(int sequences, int64_t context = 256, int64_t ubatch = 32) {
  ContextOptions o = small_context(TensorType::f32, ubatch, sequences);
  o.context = context;
  return o;
}

SchedulerOptions quiet(int parallel) {
  SchedulerOptions o;
  o.parallel = parallel;
  o.log_requests = false;
  return o;
}

/// Requests of all kinds; some begin alike.
std::vector<Request> mixed_requests(const Engine& engine, int count) {
  const Tokenizer& tokenizer = engine.tokenizer();
  const std::vector<TokenId> common = some_tokens(engine, 75, 99);
  std::vector<Request> all;
  for (int i = 0; i < count; ++i) {
    const auto n = static_cast<size_t>(1 + (i * 37) % 120);
    std::vector<TokenId> prompt = some_tokens(engine, n, static_cast<uint64_t>(i));
    if (i % 3 == 0) {
      prompt.insert(prompt.begin(), common.begin(), common.end());
      if (i % 2 == 0) prompt.resize(80 + static_cast<size_t>(i % 5));
    }
    if (i % 7 == 5) prompt = tokenizer.encode("Once upon a time there was a small model");
    Request r = request_of(std::move(prompt), 5 + (i * 11) % 40, i % 4 == 0 ? 0.0f : 0.9f, static_cast<uint64_t>(i));
    r.sampler.repeat_penalty = i % 5 == 1 ? 1.3f : 1.0f;
    if (i % 5 == 2) r.stop = {"e", "th"};
    if (i % 4 == 1) r.ignore_eog = true;
    if (i % 4 == 2) r.n_probs = i % 3;
    if (i % 6 == 3) r.sampler.logit_bias = {{3, 5.0f}, {7, -5.0f}};
    if (i % 9 == 8) r.cache_prompt = false;
    if (i % 11 == 10) r.max_tokens = -1;
    all.push_back(std::move(r));
  }
  return all;
}

void expect_as_alone(Engine& engine, const ContextOptions& options, const Request& request, const Received& got) {
  const GenerateResult want = alone(engine, options, request);
  ASSERT_EQ(got.error, "");
  EXPECT_EQ(got.result.text, want.text);
  EXPECT_EQ(got.text, want.text);
  EXPECT_EQ(got.result.tokens, want.tokens);
  EXPECT_EQ(got.result.finish, finish_of(want.reason));
  EXPECT_EQ(got.result.prompt_tokens, static_cast<int64_t>(request.prompt.size()));
  EXPECT_EQ(got.result.cached_tokens + got.result.computed_tokens, got.result.prompt_tokens);
  if (got.result.finish != Finish::stop_text) {
    EXPECT_EQ(ids_of(got.tokens), want.tokens);
  }
  const auto kept = static_cast<int64_t>(want.tokens.size());
  EXPECT_GE(got.result.sampled_tokens, kept);
  EXPECT_LE(got.result.sampled_tokens, kept + 1);
}

struct Form {
  const char* name;
  const char* model;
  bool streaming;
  int parallel;
  int64_t ubatch, slice;
};

class Served : public testing::TestWithParam<Form> {};

TEST_P(Served, EveryAnswerIsThatOfTheRequestAlone) {
  const Form form = GetParam();
  const auto engine = form.streaming ? load_streaming(form.model, 400 << 10, 2) : load(form.model, 2);
  const ContextOptions options = served(form.parallel, 256, form.ubatch);
  const std::vector<Request> requests = mixed_requests(*engine, kSanitized ? 16 : 40);
  std::vector<Received> received(requests.size());
  {
    Context context(*engine, options);
    SchedulerOptions scheduling = quiet(form.parallel);
    scheduling.prompt_slice = form.slice;
    Scheduler scheduler(context, scheduling);
    // Several clients, each with one request after another.
    constexpr size_t kClients = 7;
    std::vector<std::thread> clients;
    for (size_t c = 0; c < kClients; ++c) {
      clients.emplace_back([&, c] {
        for (size_t i = c; i < requests.size(); i += kClients) {
          received[i] = receive(*scheduler.submit(requests[i]));
        }
      });
    }
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(scheduler.busy_slots(), 0);
    EXPECT_EQ(scheduler.queued(), 0);
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    expect_as_alone(*engine, options, requests[i], received[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Served,
                         testing::Values(Form{"one_slot", "mini-qwen3moe-q8_0", false, 1, 32, 0},
                                         Form{"four_slots", "mini-qwen3moe-q8_0", false, 4, 32, 0},
                                         Form{"small_slices", "mini-qwen3moe-q8_0", false, 3, 8, 5},
                                         Form{"streaming", "small-qwen3moe-q4_k_m", true, 3, 16, 0},
                                         Form{"latent", "mini-deepseek2-f32", false, 3, 16, 7},
                                         Form{"recurrent", "mini-qwen3next-f32", false, 3, 16, 7}),
                         [](const auto& form) { return std::string(form.param.name); });

class Scheduling : public testing::Test {
 protected:
  Request prompt_of(size_t n, uint64_t seed, int64_t max_tokens) {
    Request r = request_of(some_tokens(*engine, n, seed), max_tokens);
    r.ignore_eog = true;
    return r;
  }
  /// Waits for something that another thread brings about.
  template <typename Condition>
  bool eventually(Condition condition) {
    for (int i = 0; i < 2000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return false;
  }
  std::unique_ptr<Engine> engine = load("mini-qwen3moe-q8_0");
};

TEST_F(Scheduling, ALongPromptIsCutSoThatOthersGoOn) {
  Context context(*engine, served(2, 2048, 32));
  SchedulerOptions options = quiet(2);
  options.prompt_slice = 16;
  options.stream_events = 10000;
  Scheduler scheduler(context, options);
  const auto talker = scheduler.submit(prompt_of(5, 1, 1500));
  while (talker->next(seconds(10))->kind != StreamEvent::Kind::text) {
  }
  const auto prompt = scheduler.submit(prompt_of(640, 2, 1));
  const RequestResult result = prompt->wait();
  int64_t meanwhile = 0;
  while (const auto event = talker->next(milliseconds(0))) meanwhile += static_cast<int64_t>(event->tokens.size());
  // At least one token for each slice; and about as many batches without a slice.
  EXPECT_EQ(result.computed_tokens, 640);
  EXPECT_GE(meanwhile, 640 / 16);
  talker->cancel();
}

TEST_F(Scheduling, AShortPromptIsNotKeptWaitingByALongOne) {
  Context context(*engine, served(2, 8192, 32));
  Scheduler scheduler(context, quiet(2));
  const auto slow = scheduler.submit(prompt_of(8000, 1, 1));
  ASSERT_TRUE(eventually([&] { return scheduler.busy_slots() == 1; }));
  const RequestResult quick = scheduler.submit(prompt_of(40, 2, 1))->wait();
  EXPECT_EQ(quick.finish, Finish::length);
  const auto slots = scheduler.slots();
  EXPECT_TRUE(std::any_of(slots.begin(), slots.end(), [](const SlotInfo& s) { return s.busy && s.prompt; }))
      << "the long one goes on";
  slow->cancel();
}

TEST_F(Scheduling, RequestsAreServedInTheOrderTheyCame) {
  Context context(*engine, served(1));
  Scheduler scheduler(context, quiet(1));
  std::vector<std::shared_ptr<Stream>> streams;
  for (uint64_t i = 0; i < 5; ++i) streams.push_back(scheduler.submit(prompt_of(40, i, 10)));
  double before = -1;
  for (const auto& stream : streams) {
    const RequestResult r = stream->wait();
    EXPECT_GE(r.queue_seconds + 1e-3, before);
    before = r.queue_seconds;
  }
}

TEST_F(Scheduling, AFullQueueIsBusyAndSaysWhenToComeBack) {
  Context context(*engine, served(1, 4096));
  SchedulerOptions options = quiet(1);
  options.queue = 2;
  options.stream_events = 10000;
  Scheduler scheduler(context, options);
  const auto running = scheduler.submit(prompt_of(5, 1, 4000));
  ASSERT_TRUE(eventually([&] { return scheduler.busy_slots() == 1; }));
  const auto second = scheduler.submit(prompt_of(5, 2, 5)), third = scheduler.submit(prompt_of(5, 3, 5));
  EXPECT_EQ(scheduler.queued(), 2);
  try {
    scheduler.submit(prompt_of(5, 4, 5));
    FAIL() << "there was room";
  } catch (const Busy& busy) {
    EXPECT_GE(busy.retry_after_seconds(), 1);
    EXPECT_THAT(busy.what(), HasSubstr("2 wait"));
  }
  EXPECT_THAT(scheduler.metrics_text(), HasSubstr("moetier:requests_refused_total 1\n"));
  running->cancel();
  EXPECT_EQ(running->wait().finish, Finish::cancelled);
  EXPECT_EQ(second->wait().finish, Finish::length);
  EXPECT_EQ(third->wait().finish, Finish::length);
}

TEST_F(Scheduling, WithoutAQueueFreeSlotsAreStillGiven) {
  Context context(*engine, served(1));
  SchedulerOptions options = quiet(1);
  options.queue = 0;
  Scheduler scheduler(context, options);
  for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(scheduler.submit(prompt_of(5, i, 2))->wait().finish, Finish::length);
}

TEST_F(Scheduling, CancelledRequestsEndWhereverTheyAre) {
  Context context(*engine, served(1, 4096, 512));
  SchedulerOptions options = quiet(1);
  options.stream_events = 10000;
  Scheduler scheduler(context, options);
  const auto running = scheduler.submit(prompt_of(5, 1, 4000));
  auto waiting = scheduler.submit(prompt_of(5, 2, 5)), dropped = scheduler.submit(prompt_of(5, 3, 5));
  ASSERT_TRUE(eventually([&] { return scheduler.queued() == 2; }));
  waiting->cancel();
  const RequestResult result = waiting->wait();
  EXPECT_EQ(result.finish, Finish::cancelled);
  EXPECT_EQ(result.slot, -1);
  dropped.reset();
  EXPECT_TRUE(eventually([&] { return scheduler.queued() == 0; }));
  running->cancel();
  EXPECT_EQ(running->wait().finish, Finish::cancelled);
  EXPECT_THAT(error_of([&] { running->wait(); }), HasSubstr("has ended"));
}

TEST_F(Scheduling, LettingGoOfAStreamCancels) {
  Context context(*engine, served(1, 4096));
  SchedulerOptions options = quiet(1);
  options.stream_events = 10000;
  Scheduler scheduler(context, options);
  auto running = scheduler.submit(prompt_of(5, 1, 4000));
  ASSERT_TRUE(eventually([&] { return scheduler.busy_slots() == 1; }));
  running.reset();
  EXPECT_TRUE(eventually([&] { return scheduler.busy_slots() == 0; }));
  EXPECT_EQ(scheduler.submit(prompt_of(9, 2, 3))->wait().finish, Finish::length);
}

TEST_F(Scheduling, APromptThatIsComputedAloneStopsInMidBatch) {
  Context context(*engine, served(1, 16384, 512));
  Scheduler scheduler(context, quiet(1));
  const auto big = scheduler.submit(prompt_of(16000, 1, 1));
  ASSERT_TRUE(eventually([&] { return scheduler.busy_slots() == 1; }));
  const auto start = std::chrono::steady_clock::now();
  big->cancel();
  const RequestResult result = big->wait();
  EXPECT_EQ(result.finish, Finish::cancelled);
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(5));
  EXPECT_LT(result.computed_tokens, 16000);
}

TEST_F(Scheduling, AReaderThatStopsHoldsUpNobodyAndIsCutOff) {
  Context context(*engine, served(2, 1024));
  SchedulerOptions options = quiet(2);
  options.stream_events = 4;
  options.stall_seconds = 1.0;
  Scheduler scheduler(context, options);
  const Request long_one = prompt_of(5, 1, 800);
  const auto stalled = scheduler.submit(long_one);
  ASSERT_TRUE(eventually([&] {
    const auto slots = scheduler.slots();
    return std::any_of(slots.begin(), slots.end(), [](const SlotInfo& s) { return s.paused; });
  }));
  for (uint64_t i = 0; i < 3; ++i)
    EXPECT_EQ(receive(*scheduler.submit(prompt_of(7, i, 20))).result.finish, Finish::length);
  ASSERT_TRUE(eventually([&] { return scheduler.busy_slots() == 0; }));
  const Received got = receive(*stalled);
  EXPECT_EQ(got.result.finish, Finish::stalled);
  const std::string whole = alone(*engine, served(1, 1024), long_one).text;
  EXPECT_TRUE(whole.starts_with(got.text)) << "what came is the answer's beginning";
  EXPECT_LT(got.text.size(), whole.size());
}

TEST_F(Scheduling, AReaderThatComesBackGetsTheWholeAnswer) {
  Context context(*engine, served(1, 512));
  SchedulerOptions options = quiet(1);
  options.stream_events = 2;
  Scheduler scheduler(context, options);
  const Request request = prompt_of(5, 1, 100);
  const auto stream = scheduler.submit(request);
  ASSERT_TRUE(eventually([&] { return scheduler.slots().front().paused; }));
  expect_as_alone(*engine, served(1, 512), request, receive(*stream));
}

TEST_F(Scheduling, TimeLimitsHoldInTheQueueInPromptsAndInAnswers) {
  Context context(*engine, served(1, 16384, 512));
  SchedulerOptions options = quiet(1);
  options.stream_events = 100000;
  Scheduler scheduler(context, options);
  Request big = prompt_of(16000, 1, 1), waiting = prompt_of(5, 2, 5), answer = prompt_of(5, 3, 16000);
  big.time_limit = 0.3;
  waiting.time_limit = 0.1;
  const auto a = scheduler.submit(big), b = scheduler.submit(waiting);
  EXPECT_EQ(b->wait().slot, -1);
  const RequestResult cut = a->wait();
  EXPECT_EQ(cut.finish, Finish::timed_out);
  EXPECT_LT(cut.total_seconds, 5);
  answer.time_limit = 0.3;
  const RequestResult late = scheduler.submit(answer)->wait();
  EXPECT_EQ(late.finish, Finish::timed_out);
  EXPECT_GT(late.sampled_tokens, 0);
}

TEST_F(Scheduling, WhatIsTooLongOrWrongIsToldAtOnce) {
  Context context(*engine, served(1, 64));
  Scheduler scheduler(context, quiet(1));
  try {
    scheduler.submit(prompt_of(65, 1, 1));
    FAIL() << "it fits";
  } catch (const ContextOverflow& overflow) {
    EXPECT_EQ(overflow.prompt_tokens(), 65);
    EXPECT_EQ(overflow.context(), 64);
    EXPECT_THAT(overflow.what(), HasSubstr("--ctx"));
  }
  const auto refused = [&](auto change, const char* why) {
    Request r = prompt_of(5, 1, 1);
    change(r);
    EXPECT_THAT(error_of([&] { scheduler.submit(r); }), HasSubstr(why));
  };
  refused([](Request& r) { r.prompt.clear(); }, "no tokens");
  refused([](Request& r) { r.prompt[2] = -1; }, "token -1");
  refused([](Request& r) { r.prompt[2] = 1 << 30; }, "vocabulary");
  refused([](Request& r) { r.slot = 1; }, "no slot 1");
  refused([](Request& r) { r.sampler.top_p = 2; }, "top-p");
  refused([](Request& r) { r.stop = {""}; }, "empty stop text");
  refused([](Request& r) { r.n_probs = 1000; }, "log-probabilities");
  refused([](Request& r) { r.sampler.logit_bias = {{1 << 30, 1.0f}}; }, "logit bias");
  refused([](Request& r) { r.max_tokens = -2; }, "-2 tokens");
  // A full context ends the answer and says so.
  const Request full = prompt_of(60, 1, -1);
  const Received got = receive(*scheduler.submit(full));
  EXPECT_EQ(got.result.finish, Finish::context_full);
  expect_as_alone(*engine, served(1, 64), full, got);
}

TEST_F(Scheduling, PromptsAloneAreComputedAndKept) {
  Context context(*engine, served(1));
  Scheduler scheduler(context, quiet(1));
  Request r = prompt_of(50, 1, 0);
  r.progress = true;
  const Received got = receive(*scheduler.submit(r));
  EXPECT_EQ(got.result.finish, Finish::length);
  EXPECT_EQ(got.result.sampled_tokens, 0);
  EXPECT_GE(got.progress, 1);
  r.max_tokens = 3;
  EXPECT_EQ(scheduler.submit(r)->wait().cached_tokens, 49);
}

TEST_F(Scheduling, LogProbabilitiesAreThoseOfTheModel) {
  Context context(*engine, served(1));
  Scheduler scheduler(context, quiet(1));
  Request r = prompt_of(20, 1, 6);
  r.n_probs = 4;
  const Received got = receive(*scheduler.submit(r));
  ASSERT_EQ(got.tokens.size(), 6u);
  Context own(*engine, served(1));
  SequenceState sequence = own.new_sequence();
  std::vector<float> logits = feed(own, sequence, r.prompt);
  for (const TokenOut& out : got.tokens) {
    const auto vocab = static_cast<size_t>(engine->model().hparams().vocab);
    const std::span<const float> last = std::span<const float>(logits).last(vocab);
    double sum = 0;
    for (const float x : last) sum += std::exp(static_cast<double>(x));
    ASSERT_EQ(out.top.size(), 4u);
    EXPECT_EQ(out.top.front().token, out.token) << "greedy";
    for (size_t i = 0; i < out.top.size(); ++i) {
      const auto id = static_cast<size_t>(out.top[i].token);
      EXPECT_NEAR(out.top[i].logprob, static_cast<double>(last[id]) - std::log(sum), 1e-4);
      if (i > 0) {
        EXPECT_LE(out.top[i].logprob, out.top[i - 1].logprob);
      }
    }
    EXPECT_EQ(out.logprob, out.top.front().logprob);
    logits = feed(own, sequence, {&out.token, 1});
  }
}

TEST_F(Scheduling, WorkOfOthersRunsBetweenSteps) {
  Context context(*engine, served(1));
  Scheduler scheduler(context, quiet(1));
  const auto stream = scheduler.submit(prompt_of(5, 1, 50));
  int64_t length = 0;
  scheduler.run_exclusive([&](Context& c) {
    SequenceState s = c.new_sequence();
    feed(c, s, some_tokens(*engine, 10, 3));
    length = s.length();
  });
  EXPECT_EQ(length, 10);
  EXPECT_THAT(error_of([&] { scheduler.run_exclusive([](Context&) { fail("no"); }); }), HasSubstr("no"));
  EXPECT_EQ(stream->wait().finish, Finish::length);
  scheduler.stop();
  EXPECT_THROW(scheduler.run_exclusive([](Context&) {}), Stopping);
}

/// Its stream is not read, so that it pauses until it is.
struct Paused {
  Paused(Scheduler& scheduler, Request request) : stream(scheduler.submit(std::move(request))) {
    while (!scheduler.slots()[0].paused) std::this_thread::sleep_for(milliseconds(2));
  }
  std::shared_ptr<Stream> stream;
};

/// It generates for more than a second, and keeps its slot and pages so long.
struct AtWork {
  AtWork(Scheduler& scheduler, Request request) {
    request.constraint = std::make_shared<SlowConstraint>(milliseconds(25));
    stream = scheduler.submit(std::move(request));
    while (scheduler.slots()[0].sampled_tokens == 0) std::this_thread::sleep_for(milliseconds(2));
  }
  std::shared_ptr<Stream> stream;
};

SchedulerOptions pausing() {
  SchedulerOptions options = quiet(1);
  options.stream_events = 4;
  return options;
}

TEST_F(Scheduling, WorkThatNeedsPagesWaitsForThemInTurn) {
  Context context(*engine, served(1));
  Scheduler scheduler(context, quiet(1));
  const auto work_of = [&](size_t rows) {
    return [&, rows](Context& c) {
      SequenceState s = c.new_sequence();
      feed(c, s, some_tokens(*engine, rows, 3));
    };
  };
  AtWork first(scheduler, prompt_of(150, 1, 60));
  // There is a page left beside it: it does not wait.
  EXPECT_EQ(error_of([&] { scheduler.run_exclusive(work_of(64), pages_for(64)); }), "");
  EXPECT_TRUE(scheduler.slots()[0].busy);
  // All pages: as soon as the slot is free, which the one that waits for it gets after that.
  const auto second = scheduler.submit(prompt_of(150, 2, 60));
  auto all = std::async(std::launch::async,
                        [&] { return error_of([&] { scheduler.run_exclusive(work_of(256), pages_for(256)); }); });
  EXPECT_EQ(all.wait_for(milliseconds(300)), std::future_status::timeout);
  EXPECT_EQ(first.stream->wait().finish, Finish::length);
  EXPECT_EQ(all.get(), "");
  EXPECT_EQ(second->wait().finish, Finish::length);
}

/// Reads it to the end: its tokens and their log-probabilities.
std::vector<std::pair<TokenId, float>> all_of(Stream& stream) {
  std::vector<std::pair<TokenId, float>> out;
  while (!stream.ended()) {
    const auto event = stream.next(milliseconds(1000));
    if (!event) continue;
    for (const TokenOut& token : event->tokens) out.emplace_back(token.token, token.logprob);
    if (event->result != nullptr) {
      EXPECT_EQ(event->result->finish, Finish::length);
    }
  }
  return out;
}

/// A request whose reader stalls gives its slot to others, keeps its pages if it can, and goes on as if nothing was.
TEST_F(Scheduling, AnswersThatWereSetAsideAreTheSame) {
  for (const int64_t others : {20, 150}) {  // tokens of their prompts: beside its pages, or in their place
    Context context(*engine, served(1));
    Scheduler scheduler(context, pausing());
    const auto note = std::make_shared<RequestNote>();
    const auto wanted = [&] {
      Request request = prompt_of(100, 1, 60);
      request.note = note;
      request.n_probs = 0;
      request.sampler.temperature = 1;
      request.sampler.seed = 5;
      return request;
    };
    const auto alone = all_of(*scheduler.submit(wanted()));
    ASSERT_EQ(alone.size(), 60u);
    Paused stalled(scheduler, wanted());
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(scheduler.submit(prompt_of(static_cast<size_t>(others), 2 + i, 30))->wait().finish, Finish::length);
    EXPECT_THAT(scheduler.metrics_text(), HasSubstr("moetier:requests_set_aside 1\n"));
    EXPECT_EQ(all_of(*stalled.stream), alone) << others;
    EXPECT_EQ(scheduler.slots()[0].note, note);  // /slots tells of it again
    EXPECT_THAT(scheduler.metrics_text(), HasSubstr("moetier:requests_set_aside 0\n"));
  }
}

TEST_F(Scheduling, OneThatWasSetAsideEndsWhenItIsNotReadOrNotWanted) {
  SchedulerOptions options = pausing();
  options.stall_seconds = 0.5;
  Context context(*engine, served(1));
  Scheduler scheduler(context, options);
  Paused stalled(scheduler, prompt_of(20, 1, 60));
  EXPECT_EQ(scheduler.submit(prompt_of(20, 2, 10))->wait().finish, Finish::length);
  while (scheduler.metrics_text().find("moetier:requests_total{finish=\"stalled\"} 1\n") == std::string::npos)
    std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(stalled.stream->wait().finish, Finish::stalled);
  Paused cancelled(scheduler, prompt_of(20, 3, 60));
  EXPECT_EQ(scheduler.submit(prompt_of(20, 4, 10))->wait().finish, Finish::length);
  cancelled.stream->cancel();
  EXPECT_EQ(cancelled.stream->wait().finish, Finish::cancelled);
  Paused last(scheduler, prompt_of(20, 5, 60));
  EXPECT_EQ(scheduler.submit(prompt_of(20, 6, 10))->wait().finish, Finish::length);
  scheduler.stop();
  EXPECT_EQ(last.stream->wait().finish, Finish::shutdown);
}

TEST_F(Scheduling, WorkThatNobodyWantsAnyMoreIsWithdrawn) {
  Context context(*engine, served(1));
  Scheduler scheduler(context, quiet(1));
  const AtWork first(scheduler, prompt_of(150, 1, 60));
  bool ran = false;
  const auto work = [&](Context&) { ran = true; };
  EXPECT_THROW(scheduler.run_exclusive(work, pages_for(256), 0, [] { return true; }), Cancelled);
  std::thread stopping([&] {
    std::this_thread::sleep_for(milliseconds(300));
    scheduler.stop();
  });
  EXPECT_THROW(scheduler.run_exclusive(work, pages_for(256)), Stopping);
  stopping.join();
  EXPECT_FALSE(ran);
}

TEST_F(Scheduling, DrainingFinishesAndStoppingEndsAtOnce) {
  Context context(*engine, served(1, 8192));
  SchedulerOptions options = quiet(1);
  options.stream_events = 100000;
  Scheduler scheduler(context, options);
  const auto first = scheduler.submit(prompt_of(5, 1, 40)), second = scheduler.submit(prompt_of(5, 2, 40));
  scheduler.drain(60);
  EXPECT_TRUE(scheduler.stopping());
  EXPECT_EQ(first->wait().finish, Finish::length);
  EXPECT_EQ(second->wait().finish, Finish::length);
  EXPECT_THROW(scheduler.submit(prompt_of(5, 1, 1)), Stopping);

  Context another(*engine, served(1, 16384));
  Scheduler stopped(another, options);
  const Request endless = prompt_of(5, 1, 16000);
  const auto running = stopped.submit(endless), waiting = stopped.submit(prompt_of(5, 2, 40));
  ASSERT_TRUE(eventually([&] { return stopped.busy_slots() == 1 && stopped.slots().front().sampled_tokens > 0; }));
  std::thread draining([&] { stopped.drain(600); });
  stopped.stop();
  draining.join();
  const Received got = receive(*running);
  EXPECT_EQ(got.result.finish, Finish::shutdown);
  EXPECT_EQ(got.text, got.result.text);
  EXPECT_GT(got.result.sampled_tokens, 0);
  EXPECT_EQ(waiting->wait().finish, Finish::shutdown);
}

TEST_F(Scheduling, ADrainThatTakesTooLongEndsTheRest) {
  Context context(*engine, served(1, 16384));
  SchedulerOptions options = quiet(1);
  options.stream_events = 100000;
  Scheduler scheduler(context, options);
  const auto running = scheduler.submit(prompt_of(5, 1, 16000));
  scheduler.drain(0.2);
  EXPECT_EQ(running->wait().finish, Finish::shutdown);
}

TEST_F(Scheduling, OptionsOutOfRangeAreRefused) {
  Context context(*engine, served(2));
  const auto refused = [&](auto change, const char* why) {
    SchedulerOptions o = quiet(2);
    change(o);
    EXPECT_THAT(error_of([&] { Scheduler(context, o); }), HasSubstr(why));
  };
  refused([](SchedulerOptions& o) { o.parallel = 3; }, "3 slots");
  refused([](SchedulerOptions& o) { o.parallel = 0; }, "--parallel");
  refused([](SchedulerOptions& o) { o.queue = -1; }, "--queue");
  refused([](SchedulerOptions& o) { o.stream_events = 0; }, "events");
}

}  // namespace
}  // namespace moetier
