// Requests whose readers do not keep up give their slots to those that wait, and go on when they are read again.
#include <algorithm>
#include <utility>

#include "server/scheduler_impl.h"

namespace moetier {

/// Frees a slot whose reader stalls for one that waits for it. False if there is none.
bool Scheduler::Impl::give_way() {
  Slot* longest = nullptr;
  for (Slot& slot : slots) {
    if (!slot.gives_way() || !is_wanted(slot.id)) continue;
    if (longest == nullptr || slot.job->full_since < longest->job->full_since) longest = &slot;
  }
  if (longest == nullptr) return false;
  set_aside(*longest);
  return true;
}

/// Frees a slot whose reader stalls for work that waits for pages, where no slot is free. False if there is none.
bool Scheduler::Impl::give_way_to_work() {
  {
    const std::lock_guard lock(mutex);
    if (exclusives.empty()) return false;
  }
  Slot* stalled = nullptr;
  for (Slot& slot : slots) {
    if (slot.job == nullptr) return false;
    if (stalled == nullptr && slot.gives_way()) stalled = &slot;
  }
  if (stalled == nullptr) return false;
  set_aside(*stalled);
  return true;
}

/// Takes a request out of its slot, with all that it has there.
void Scheduler::Impl::set_aside(Slot& slot) {
  turn_counters(*slot.job);
  HeldSequence held = std::exchange(slot.held, {context.new_sequence(), {}});
  aside.push_back({std::move(held), std::move(slot.job), Job::Clock::now()});
  slot.unsaved = false;
  {
    const std::lock_guard lock(mutex);
    --busy;
    ++n_aside;
  }
  show(slot);
}

/// Whether one that waits, or was set aside and is read again, may have this slot.
bool Scheduler::Impl::is_wanted(int id) const {
  const auto suits = [id](const Job& job) { return job.request.slot < 0 || job.request.slot == id; };
  if (std::any_of(aside.begin(), aside.end(), [&](const Aside& a) { return !a.job->stream.full() && suits(*a.job); }))
    return true;
  const std::lock_guard lock(mutex);
  return std::any_of(waiting.begin(), waiting.end(), [&](const auto& job) { return suits(*job); });
}

/// Gives a free slot to the request that was set aside first of those that are read again. False if there is none.
bool Scheduler::Impl::take_up() {
  for (auto it = aside.begin(); it != aside.end(); ++it) {
    if (it->job->stream.full()) continue;
    Slot* free = nullptr;
    for (Slot& slot : slots) {
      if (slot.job != nullptr || (it->job->request.slot >= 0 && it->job->request.slot != slot.id)) continue;
      if (free == nullptr || slot.id == it->job->result.slot) free = &slot;
    }
    if (free == nullptr) continue;
    Aside back = std::move(*it);
    aside.erase(it);
    const size_t same = common_prefix(free->held.tokens, back.held.tokens);
    replace(*free, std::move(back.held), same);
    free->job = std::move(back.job);
    free->job->result.aside_seconds += seconds_between(back.since, Job::Clock::now());
    free->used = ++uses;
    free->job->result.slot = free->id;
    free->job->full_since.reset();
    turn_counters(*free->job);
    {
      const std::lock_guard lock(mutex);
      ++busy;
      --n_aside;
    }
    show_request(*free);
    return true;
  }
  return false;
}

/// Lets the pages go that the last one set aside holds: it computes their tokens again before it goes on, to the same
/// bits. False if none holds any.
bool Scheduler::Impl::take_pages_of_aside() {
  const auto holds = [](const Aside& one) { return !one.held.tokens.empty(); };
  const auto last = std::find_if(aside.rbegin(), aside.rend(), holds);
  if (last == aside.rend()) return false;
  if (last->job->generating() && last->held.tokens.size() > last->job->replay.size())
    last->job->replay = last->held.tokens;
  cut(last->held, 0);
  return true;
}

/// Ends the one at this place; what it holds is kept for its beginning.
void Scheduler::Impl::finish_aside(size_t place, Finish how) {
  Aside over = std::move(aside[place]);
  aside.erase(aside.begin() + static_cast<std::ptrdiff_t>(place));
  turn_counters(*over.job);
  over.job->result.aside_seconds += seconds_between(over.since, Job::Clock::now());
  conclude(*over.job, how);
  {
    const std::lock_guard lock(mutex);
    --n_aside;
  }
  close(*over.job, nullptr);
  if (how != Finish::shutdown) kept.keep(std::move(over.held));
  idle.notify_all();
}

/// Between a request's being set aside and taken up again the store works for others. What it did for the request so
/// far becomes what it had done before the request, and the other way round.
void Scheduler::Impl::turn_counters(Job& job) const {
  ExpertStore* experts = engine.store();
  if (experts == nullptr) return;
  const std::lock_guard quiet(engine.run_mutex());
  job.before = experts->counters() - job.before;
  job.wait_before = experts->meters().read_wait_seconds - job.wait_before;
}

}  // namespace moetier
