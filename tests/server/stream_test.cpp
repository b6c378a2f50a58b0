// A stream between one that writes and never waits, and one that reads.
#include "server/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "server/alarm.h"
#include "server/stream_writer.h"
#include "support/error_of.h"

namespace moetier {
namespace {

using namespace testing_support;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

StreamEvent text(const std::string& words) {
  StreamEvent event;
  event.text = words;
  return event;
}

StreamEvent done() {
  StreamEvent event;
  event.kind = StreamEvent::Kind::done;
  event.result = std::make_shared<RequestResult>();
  return event;
}

/// True if the bell rang since the last time.
bool rang(Bell& bell) {
  const auto start = Clock::now();
  bell.wait(start + milliseconds(50));
  return Clock::now() < start + milliseconds(50);
}

TEST(Stream, GivesEventsInOrderAndThenNoMore) {
  StreamWriter writer(7, 10, std::make_shared<Bell>());
  const auto stream = writer.reader();
  EXPECT_EQ(stream->task(), 7u);
  EXPECT_FALSE(stream->next(milliseconds(1)).has_value());
  writer.push(text("a"));
  writer.push(text("b"));
  writer.push(done());
  writer.push(text("too late"));
  EXPECT_EQ(stream->next(milliseconds(1))->text, "a");
  EXPECT_EQ(stream->next(milliseconds(1))->text, "b");
  EXPECT_FALSE(stream->ended());
  EXPECT_EQ(stream->next(milliseconds(1))->kind, StreamEvent::Kind::done);
  EXPECT_TRUE(stream->ended());
  const auto start = Clock::now();
  EXPECT_FALSE(stream->next(std::chrono::seconds(60)).has_value());
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(30)) << "after the last one nothing is waited for";
}

TEST(Stream, IsFullUntilHalfOfItWasRead) {
  const auto bell = std::make_shared<Bell>();
  StreamWriter writer(1, 4, bell);
  const auto stream = writer.reader();
  for (int i = 0; i < 3; ++i) writer.push(text("x"));
  EXPECT_FALSE(writer.full());
  writer.push(text("x"));
  EXPECT_TRUE(writer.full());
  stream->next(milliseconds(1));
  EXPECT_TRUE(writer.full());
  EXPECT_FALSE(rang(*bell));
  stream->next(milliseconds(1));
  EXPECT_FALSE(writer.full());
  EXPECT_TRUE(rang(*bell));
  writer.push(text("x"));
  writer.push(text("x"));
  EXPECT_TRUE(writer.full());
  writer.push(done());
  int events = 0;
  while (stream->next(milliseconds(1))) ++events;
  EXPECT_EQ(events, 5) << "the last one always fits";
}

TEST(Stream, LettingGoCancelsAndRings) {
  const auto bell = std::make_shared<Bell>();
  StreamWriter writer(1, 4, bell);
  auto stream = writer.reader();
  bell->begin_batch(1);
  EXPECT_FALSE(writer.cancelled());
  stream.reset();
  EXPECT_TRUE(writer.cancelled());
  EXPECT_TRUE(*bell->abort_flag()) << "its batch was its alone";
  EXPECT_TRUE(rang(*bell));
}

TEST(Stream, ThatIsOverIsNotCancelled) {
  StreamWriter writer(1, 4, std::make_shared<Bell>());
  const auto stream = writer.reader();
  writer.push(done());
  stream->cancel();
  EXPECT_FALSE(writer.cancelled());
}

TEST(Stream, OfARequestThatWasLostEndsWithAnError) {
  auto writer = std::make_unique<StreamWriter>(1, 4, std::make_shared<Bell>());
  const auto stream = writer->reader();
  writer.reset();
  EXPECT_THAT(error_of([&] { stream->wait(); }), testing::HasSubstr("given up"));
}

TEST(Stream, AWaitAsksWhetherToStop) {
  StreamWriter writer(1, 4, std::make_shared<Bell>());
  const auto stream = writer.reader();
  std::thread scheduler([&] {
    while (!writer.cancelled()) std::this_thread::sleep_for(milliseconds(1));
    writer.push(done());
  });
  int asked = 0;
  stream->wait([&] { return ++asked == 2; });
  scheduler.join();
  EXPECT_EQ(asked, 2);
}

TEST(Alarm, CallsWhenItIsTimeAndNotWhenCleared) {
  std::atomic<int> calls{0};
  Alarm alarm([&] { ++calls; });
  alarm.set(Clock::now() + std::chrono::hours(1));
  alarm.clear();
  alarm.set(Clock::now() + milliseconds(20));
  for (int i = 0; i < 1000 && calls == 0; ++i) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(calls, 1);
  alarm.set(Clock::now() + milliseconds(50));
  alarm.clear();
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace moetier
