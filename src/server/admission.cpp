// Which request gets which slot, and which pages it begins with.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "server/scheduler_impl.h"

namespace moetier {

/// Gives slots to those that wait, first come, first served, after those that had one before.
void Scheduler::Impl::admit() {
  do {
    while (take_up()) {
    }
    while (std::unique_ptr<Job> job = next_job()) {
      Slot& slot = choose_slot(*job);
      assign(slot, std::move(job));
    }
  } while (give_way());
}

/// The first that waits for a slot that is free; null if there is none.
std::unique_ptr<Job> Scheduler::Impl::next_job() {
  const auto free = [&](int id) { return slots[static_cast<size_t>(id)].job == nullptr; };
  const bool any = std::any_of(slots.begin(), slots.end(), [](const Slot& s) { return s.job == nullptr; });
  const std::lock_guard lock(mutex);
  for (auto it = waiting.begin(); any && it != waiting.end(); ++it) {
    const int wanted = (*it)->request.slot;
    if (wanted >= 0 && !free(wanted)) continue;
    std::unique_ptr<Job> job = std::move(*it);
    waiting.erase(it);
    ++busy;
    return job;
  }
  return nullptr;
}

/// The wanted slot, or the free one that holds most of the prompt's beginning, or the one unused for longest.
Slot& Scheduler::Impl::choose_slot(const Job& job) {
  if (job.request.slot >= 0) return slots[static_cast<size_t>(job.request.slot)];
  Slot* best = nullptr;
  size_t longest = 0;
  for (Slot& slot : slots) {
    if (slot.job != nullptr) continue;
    const size_t same = job.request.cache_prompt ? common_prefix(slot.held.tokens, job.request.prompt) : 0;
    if (best == nullptr || same > longest || (same == longest && slot.used < best->used)) {
      best = &slot;
      longest = same;
    }
  }
  return *best;
}

void Scheduler::Impl::assign(Slot& slot, std::unique_ptr<Job> given) {
  slot.job = std::move(given);
  slot.used = ++uses;
  Job& job = *slot.job;
  job.started = Job::Clock::now();
  job.result.slot = slot.id;
  job.result.queue_seconds = seconds_between(job.submitted, job.started);
  if (ExpertStore* experts = engine.store(); experts != nullptr) {
    const std::lock_guard quiet(engine.run_mutex());  // other contexts use the store, too
    job.before = experts->counters();
    job.wait_before = experts->meters().read_wait_seconds;
  }
  if (job.request.cache_prompt) {
    take_prefix(slot, job);
    if (store != nullptr) take_saved_prefix(slot, job);
  } else {
    replace(slot, {context.new_sequence(), {}}, 0);
  }
  job.result.cached_tokens = static_cast<int64_t>(slot.held.tokens.size());
  show_request(slot);
}

/// Gives the slot another sequence. What it had is kept if the new one begins with so few of its positions that it may
/// be worth it.
void Scheduler::Impl::replace(Slot& slot, HeldSequence fresh, size_t reused) {
  HeldSequence old = std::exchange(slot.held, std::move(fresh));
  if (old.tokens.size() < reused + static_cast<size_t>(kPagePositions)) return;  // what it goes on with is saved later
  if (slot.unsaved) store->save(old.tokens, old.state);
  slot.unsaved = false;
  kept.keep(std::move(old));
}

void Scheduler::Impl::save_to_store(Slot& slot) {
  if (slot.unsaved) store->save(slot.held.tokens, slot.held.state);
  slot.unsaved = false;
}

/// Saves what an idle slot holds, when there is nothing better to do. False if there is nothing to save, or no room for
/// it yet: the bell rings when there is.
bool Scheduler::Impl::save_one() {
  for (Slot& slot : slots) {
    if (slot.job != nullptr || !slot.unsaved || !store->has_room(slot.held.state)) continue;
    save_to_store(slot);
    return true;
  }
  return false;
}

/// Leaves in the slot the longest beginning of the prompt that any sequence holds.
void Scheduler::Impl::take_prefix(Slot& slot, const Job& job) {
  const std::vector<TokenId>& prompt = job.request.prompt;
  std::vector<PrefixMatch> matches = kept.find(prompt);
  for (const Slot& other : slots) matches.push_back({&other.held, common_prefix(other.held.tokens, prompt)});
  for (const Aside& other : aside) matches.push_back({&other.held, common_prefix(other.held.tokens, prompt)});
  const PrefixMatch own{&slot.held, common_prefix(slot.held.tokens, prompt)};
  matches.push_back(own);
  // Of equally long ones the slot's own, which stands last.
  std::stable_sort(matches.begin(), matches.end(),
                   [](const PrefixMatch& a, const PrefixMatch& b) { return a.length < b.length; });
  HeldSequence best{context.new_sequence(), {}};
  const HeldSequence* source = nullptr;
  for (auto match = matches.rbegin(); match != matches.rend() && match->length > best.tokens.size(); ++match) {
    // The last token is always computed: its logits are what goes on. A state that cannot be cut there gives less.
    HeldSequence fork = fork_prefix(*match->held, std::min(match->length, prompt.size() - 1));
    if (fork.tokens.size() <= best.tokens.size()) continue;
    best = std::move(fork);
    source = match->held;
  }
  if (source != nullptr) kept.used(source);
  replace(slot, std::move(best), own.length);
}

/// Reads a state from the disk if it holds much more of the prompt than the slot does.
void Scheduler::Impl::take_saved_prefix(Slot& slot, const Job& job) {
  const std::vector<TokenId>& prompt = job.request.prompt;
  const size_t have = slot.held.tokens.size();
  const PromptStore::Match match = store->find(prompt);
  const size_t gain = std::min(match.length, prompt.size() - 1);
  if (gain < have + static_cast<size_t>(std::max<int64_t>(options.prompt_cache_min_tokens, 1))) return;
  const int64_t pages = pages_for(static_cast<int64_t>(match.tokens));
  make_room(pages, kSlotsPerSequence);
  if (context.kv().free_pages() < pages) return;  // requests at work hold them; that is not the file's fault
  HeldSequence read{context.new_sequence(), {}};
  try {
    read.tokens = store->load(match, read.state);
  } catch (const Error& error) {
    log::warn("a saved prompt is not used: {}", error.what());
    store->forget(match);
    return;
  }
  if (common_prefix(read.tokens, prompt) < gain) return;  // the file was changed under us
  HeldSequence fresh = fork_prefix(read, gain);
  kept.keep(std::move(read));
  if (fresh.tokens.size() > have) slot.held = std::move(fresh);
}

/// Before a slice of the slot's prompt is computed: takes over what another slot has computed of the same prompt since.
/// False if another is about to compute more of it, so that waiting is cheaper.
bool Scheduler::Impl::catch_up(Slot& slot) {
  Job& job = *slot.job;
  if (!job.request.cache_prompt) return true;
  const std::vector<TokenId>& prompt = job.request.prompt;
  const size_t have = slot.held.tokens.size(), most = prompt.size() - 1;
  const HeldSequence* best = nullptr;
  size_t longest = have;
  bool wait = false;
  for (const Slot& other : slots) {
    if (&other == &slot) continue;
    if (const size_t same = std::min(common_prefix(other.held.tokens, prompt), most); same > longest) {
      best = &other.held;
      longest = same;
    }
    if (other.job == nullptr || other.job->generating() || other.job->result.task > job.result.task) continue;
    const size_t shared = std::min(common_prefix(other.job->request.prompt, prompt), most);
    wait = wait || shared >= std::max(have, other.held.tokens.size()) + static_cast<size_t>(kPagePositions);
  }
  // A few positions are computed sooner than a shared page is copied.
  if (best != nullptr && longest >= have + static_cast<size_t>(kPagePositions)) {
    HeldSequence fork = fork_prefix(*best, longest);
    if (fork.tokens.size() > have) slot.held = std::move(fork);
    job.result.cached_tokens += static_cast<int64_t>(slot.held.tokens.size() - have);
  }
  return !wait;
}

/// Drops what is only kept, oldest first, until so many pages are free, and so many states of recurrent layers (in
/// models that have any). Then those that were set aside lose what they hold.
void Scheduler::Impl::make_room(int64_t pages, int32_t states) {
  const KvPool& pool = context.kv();
  const auto missing = [&] {
    return pool.free_pages() < pages || (!pool.states().none() && pool.states().free() < states);
  };
  while (missing() && kept.drop_oldest()) {
  }
  while (missing()) {
    Slot* oldest = nullptr;
    for (Slot& slot : slots) {
      if (slot.job != nullptr || slot.held.tokens.empty()) continue;
      if (oldest == nullptr || slot.used < oldest->used) oldest = &slot;
    }
    if (oldest != nullptr) {
      save_to_store(*oldest);
      cut(oldest->held, 0);
    } else if (!take_pages_of_aside()) {
      return;
    }
  }
}

Slot& Scheduler::Impl::idle_slot(int id) {
  if (id < 0 || id >= options.parallel)
    usage_error("there is no slot {}: the slots are 0 to {}", id, options.parallel - 1);
  Slot& slot = slots[static_cast<size_t>(id)];
  if (slot.job != nullptr) throw Busy(fmt::format("slot {} is at work; try again when its request is done", id), 1);
  return slot;
}

SlotFile Scheduler::Impl::save(int id, const std::string& name) {
  Stopwatch watch;
  const std::string path = session_path(options.slot_save_path, name);
  const Slot& slot = idle_slot(id);
  SlotFile file;
  file.bytes = write_session(path, model_id, slot.held.tokens, slot.held.state);
  file.tokens = static_cast<int64_t>(slot.held.tokens.size());
  file.seconds = watch.lap();
  return file;
}

/// Reads a file that a client named: that it does not fit is the client's error. Returns its bytes.
uint64_t Scheduler::Impl::read_saved(const std::string& path, HeldSequence& fresh) {
  try {
    const SessionReader reader(path, model_id);
    const auto tokens = static_cast<int64_t>(reader.tokens().size());
    if (tokens > context.options().context) throw ContextOverflow(tokens, context.options().context);
    make_room(pages_for(tokens), kSlotsPerSequence);
    reader.load(fresh.state);
    fresh.tokens = reader.tokens();
    return reader.bytes();
  } catch (const ContextOverflow&) {
    throw;
  } catch (const Error& error) {
    usage_error("{}", error.what());
  }
}

SlotFile Scheduler::Impl::restore(int id, const std::string& name) {
  Stopwatch watch;
  const std::string path = session_path(options.slot_save_path, name);
  Slot& slot = idle_slot(id);
  SlotFile file;
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error)
    throw NotThere(fmt::format("there is no saved slot '{}'; action=save makes one", name));
  HeldSequence fresh{context.new_sequence(), {}};
  file.bytes = read_saved(path, fresh);
  file.tokens = static_cast<int64_t>(fresh.tokens.size());
  replace(slot, std::move(fresh), 0);
  show(slot);
  file.seconds = watch.lap();
  return file;
}

SlotFile Scheduler::Impl::erase(int id) {
  Stopwatch watch;
  Slot& slot = idle_slot(id);
  SlotFile file;
  file.tokens = static_cast<int64_t>(slot.held.tokens.size());
  cut(slot.held, 0);
  slot.unsaved = false;
  show(slot);
  file.seconds = watch.lap();
  return file;
}

}  // namespace moetier
