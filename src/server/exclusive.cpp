// Work that is no generation and needs pages of its own: embeddings.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "server/scheduler_impl.h"

namespace moetier {
namespace {

constexpr std::chrono::milliseconds kAsk{200};  // whether the work is still wanted

}  // namespace

void Scheduler::Impl::exclusive(const std::function<void(Context&)>& work, int64_t pages, int64_t prompt_tokens,
                                const std::function<bool()>& stop) {
  std::future<std::exception_ptr> done;
  uint64_t task = 0;
  {
    const std::lock_guard lock(mutex);
    if (ended) throw Stopping();
    task = ++last_task;
    exclusives.push_back({task, pages, prompt_tokens, work, {}});
    done = exclusives.back().error.get_future();
  }
  bell->ring();
  while (done.wait_for(kAsk) == std::future_status::timeout) {
    if (!stop || !stop()) continue;
    if (withdraw(task)) throw Cancelled();
    bell->abort_if_alone(task);
  }
  std::exception_ptr error;
  try {
    error = done.get();
  } catch (const std::future_error&) {  // it was dropped when the thread ended
    throw Stopping();
  }
  if (error == nullptr) return;
  try {
    std::rethrow_exception(error);
  } catch (const Cancelled&) {
    if (stopping) throw Stopping();
    throw;
  }
}

/// Takes back work that has not begun; false if it has.
bool Scheduler::Impl::withdraw(uint64_t task) {
  bool found = false;
  {
    const std::lock_guard lock(mutex);
    found = std::erase_if(exclusives, [&](const Exclusive& one) { return one.task == task; }) > 0;
  }
  idle.notify_all();
  return found;
}

/// Runs the first that there are pages for, or none while prompts owe time to those who generate. One in each round, so
/// that any number of them leave requests their steps and slots. False if none was run.
bool Scheduler::Impl::run_waiting_work() {
  const auto generating = std::count_if(slots.begin(), slots.end(), [](const Slot& slot) {
    return slot.job != nullptr && slot.job->generating() && !slot.job->stream.full();
  });
  if (generating > 0 && pace.prompt_rows(generating) == 0) return false;
  std::optional<Exclusive> next = next_work();
  if (!next && give_way_to_work()) next = next_work();
  if (!next) return false;
  bell->begin_batch(next->task);
  if (stopping) bell->abort();
  const Job::Time start = Job::Clock::now();
  std::exception_ptr error;
  try {
    make_room(next->pages, kSlotsPerSequence);
    run_apart(next->work, next->prompt_tokens);
  } catch (...) {
    error = std::current_exception();
  }
  bell->begin_batch(0);
  pace.note(generating, 1, seconds_between(start, Job::Clock::now()));
  {
    const std::lock_guard lock(mutex);
    exclusive_runs = false;
  }
  idle.notify_all();
  next->error.set_value(std::move(error));
  return true;
}

/// The pool holds as many pages as all slots can fill, so with an idle slot there are always enough.
std::optional<Scheduler::Impl::Exclusive> Scheduler::Impl::next_work() {
  int64_t held = 0;  // shared pages are counted for each who has them: rather too many
  bool idle_slot = false;
  for (const Slot& slot : slots) {
    if (slot.job == nullptr) {
      idle_slot = true;
    } else {
      held += pages_for(slot.held.state.length());
    }
  }
  const int64_t most = context.kv().capacity() - held;
  const bool states = context.kv().states().none() || idle_slot;
  const std::lock_guard lock(mutex);
  const auto first = std::find_if(exclusives.begin(), exclusives.end(),
                                  [&](const Exclusive& one) { return idle_slot || (states && one.pages <= most); });
  if (first == exclusives.end()) return std::nullopt;
  std::optional<Exclusive> next(std::move(*first));
  exclusives.erase(first);
  exclusive_runs = true;
  return next;
}

}  // namespace moetier
