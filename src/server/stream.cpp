#include "server/stream.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "server/stream_writer.h"

namespace moetier {

void Bell::ring() {
  {
    const std::lock_guard lock(mutex_);
    ringing_ = true;
  }
  rung_.notify_one();
}

void Bell::wait(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  if (until == Clock::time_point::max()) {
    rung_.wait(lock, [&] { return ringing_; });
  } else {
    rung_.wait_until(lock, until, [&] { return ringing_; });
  }
  ringing_ = false;
}

struct Stream::Impl {
  Impl(uint64_t number, size_t most, std::shared_ptr<Bell> to_ring)
      : task(number), capacity(most), bell(std::move(to_ring)) {}

  const uint64_t task;
  const size_t capacity;
  const std::shared_ptr<Bell> bell;
  std::atomic<bool> cancelled{false}, stalled{false};  // stalled: set before, if it is why

  mutable std::mutex mutex;
  std::condition_variable arrived;
  std::deque<StreamEvent> events;
  std::shared_ptr<Bell> reader;
  bool full = false, closed = false, ended = false;  // closed: the last event was pushed; ended: it was taken
};

namespace {

bool is_last(const StreamEvent& event) {
  return event.kind == StreamEvent::Kind::done || event.kind == StreamEvent::Kind::error;
}

}  // namespace

Stream::Stream(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Stream::~Stream() {
  cancel();
}

std::optional<StreamEvent> Stream::next(std::chrono::milliseconds timeout) {
  bool room = false;
  std::optional<StreamEvent> event;
  {
    std::unique_lock lock(impl_->mutex);
    impl_->arrived.wait_for(lock, timeout, [&] { return !impl_->events.empty() || impl_->ended; });
    if (impl_->events.empty()) return std::nullopt;
    event = std::move(impl_->events.front());
    impl_->events.pop_front();
    impl_->ended = is_last(*event);
    if (impl_->full && impl_->events.size() <= impl_->capacity / 2) {
      impl_->full = false;
      room = true;
    }
  }
  if (room) impl_->bell->ring();
  return event;
}

void Stream::ring_also(std::shared_ptr<Bell> bell) {
  const std::lock_guard lock(impl_->mutex);
  impl_->reader = std::move(bell);
}

bool Stream::ended() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->ended;
}

void Stream::cancel(bool stalled) {
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->closed) return;
  }
  if (impl_->cancelled) return;
  impl_->stalled = stalled;
  if (impl_->cancelled.exchange(true)) return;
  impl_->bell->abort_if_alone(impl_->task);
  impl_->bell->ring();
}

uint64_t Stream::task() const {
  return impl_->task;
}

RequestResult Stream::wait(const std::function<bool()>& stop) {
  constexpr std::chrono::milliseconds kAsk{100};
  while (!ended()) {
    const std::optional<StreamEvent> event = next(kAsk);
    if (event && event->kind == StreamEvent::Kind::error) throw Error(event->error, event->message);
    if (event && event->kind == StreamEvent::Kind::done) return *event->result;
    if (stop && stop()) cancel();
  }
  fail("the stream has ended: its last event was taken before");
}

StreamWriter::StreamWriter(uint64_t task, size_t capacity, std::shared_ptr<Bell> bell)
    : impl_(std::make_shared<Stream::Impl>(task, capacity, std::move(bell))) {}

StreamWriter::~StreamWriter() {
  StreamEvent lost;
  lost.kind = StreamEvent::Kind::error;
  lost.message = "the request was given up before it was complete";
  auto result = std::make_shared<RequestResult>();
  result->finish = Finish::failed;
  lost.result = std::move(result);
  push(std::move(lost));
}

std::shared_ptr<Stream> StreamWriter::reader() {
  return std::shared_ptr<Stream>(new Stream(impl_));
}

bool StreamWriter::full() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->full;
}

std::optional<Finish> StreamWriter::cancelled() const {
  if (!impl_->cancelled) return std::nullopt;
  return impl_->stalled ? Finish::stalled : Finish::cancelled;
}

void StreamWriter::push(StreamEvent event) {
  std::shared_ptr<Bell> reader;
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->closed) return;
    impl_->closed = is_last(event);
    impl_->events.push_back(std::move(event));
    if (impl_->events.size() >= impl_->capacity) impl_->full = true;
    reader = impl_->reader;
  }
  if (reader != nullptr) reader->ring();
  impl_->arrived.notify_all();
}

}  // namespace moetier
