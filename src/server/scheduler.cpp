#include "server/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "server/scheduler_impl.h"

namespace moetier {
namespace {

constexpr std::chrono::milliseconds kPublishEvery{50};
constexpr int kMostSlots = 1024;
constexpr int kMostRetryAfter = 600;

Pace::Limits pace_limits(Context& context, const SchedulerOptions& options) {
  ExpertStore* store = context.engine().store();
  Pace::Limits limits;
  limits.ubatch = context.options().ubatch;
  limits.group_rows = context.options().group_rows;
  limits.slice = options.prompt_slice;
  limits.streaming = store != nullptr && store->status().mode == ExpertMode::stream;
  return limits;
}

const SchedulerOptions& checked(const Context& context, const SchedulerOptions& o) {
  if (o.parallel < 1 || o.parallel > kMostSlots)
    usage_error("--parallel {}: choose 1 to {} sequences", o.parallel, kMostSlots);
  if (context.options().sequences < o.parallel) {
    usage_error("{} slots need a context of as many sequences, and it has {}", o.parallel, context.options().sequences);
  }
  if (o.queue < 0) usage_error("--queue {}: a queue has 0 places or more", o.queue);
  if (o.prompt_slice < 0) usage_error("a prompt cannot be cut into slices of {} rows", o.prompt_slice);
  if (o.stream_events < 1) usage_error("a stream of {} events holds nothing: it needs one or more", o.stream_events);
  if (!(o.stall_seconds > 0))
    usage_error("a reader must have more than {} s before it counts as stalled", o.stall_seconds);
  if (o.kept_sequences < 0) usage_error("{} sequences cannot be kept", o.kept_sequences);
  return o;
}

}  // namespace

Job::Job(uint64_t task, Request wanted, Answer fresh, size_t stream_events, std::shared_ptr<Bell> bell)
    : request(std::move(wanted)), answer(std::move(fresh)), stream(task, stream_events, std::move(bell)) {
  submitted = Clock::now();
  deadline = Time::max();
  if (request.time_limit > 0 && request.time_limit < 1e9) {
    deadline =
        submitted + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(request.time_limit));
  }
  result.task = task;
  result.prompt_tokens = static_cast<int64_t>(request.prompt.size());
}

Scheduler::Impl::Impl(Context& with, const SchedulerOptions& wanted)
    : context(with),
      engine(with.engine()),
      options(checked(with, wanted)),
      alarm([this] { bell->abort(); }),
      kept(static_cast<size_t>(wanted.kept_sequences)),
      pace(pace_limits(with, wanted)) {
  if (!options.prompt_cache_dir.empty() || !options.slot_save_path.empty()) model_id = identify(context);
  if (!options.prompt_cache_dir.empty()) {
    // What waits to be written takes no more than a full slot does; memory was planned for that.
    ContextOptions one = context.options();
    one.sequences = 1;
    const uint64_t most_waiting = context_bytes(engine.model().hparams(), one, false).kv;
    store = std::make_unique<PromptStore>(options.prompt_cache_dir, options.prompt_cache_bytes, model_id, most_waiting,
                                          [rung = bell] { rung->ring(); });
  }
  if (!options.slot_save_path.empty()) prepare_state_directory("saved slots", options.slot_save_path);
  for (int id = 0; id < options.parallel; ++id) {
    slots.push_back({id, {context.new_sequence(), {}}, nullptr});
    infos.push_back({});
    infos.back().id = id;
  }
  context.cancel_on(bell->abort_flag());
  tier = read_tier(context);
  thread = std::thread([this] { run(); });
}

Scheduler::Impl::~Impl() {
  stop();
  context.cancel_on(nullptr);
}

// --- any thread

void Scheduler::Impl::check(const Request& r) const {
  const int64_t vocab = engine.model().hparams().vocab, most = context.options().context;
  if (r.prompt.empty()) usage_error("the prompt has no tokens, so there is nothing to go on from");
  if (static_cast<int64_t>(r.prompt.size()) > most) throw ContextOverflow(static_cast<int64_t>(r.prompt.size()), most);
  for (const TokenId token : r.prompt) {
    if (token < 0 || token >= vocab)
      usage_error("the prompt has token {}, and the vocabulary has {} tokens", token, vocab);
  }
  for (const auto& [token, bias] : r.sampler.logit_bias) {
    if (token >= vocab) usage_error("a logit bias names token {}, and the vocabulary has only {}", token, vocab);
  }
  for (const TokenId token : r.sampler.suppress) {
    if (token >= vocab) usage_error("token {} cannot be suppressed: the vocabulary has only {}", token, vocab);
  }
  if (r.max_tokens < -1)
    usage_error("{} tokens cannot be asked for: choose 0 or more, or -1 for no limit", r.max_tokens);
  for (const int n : {r.n_probs, r.prompt_probs}) {
    if (n < -1 || n > kMostProbs)
      usage_error("log-probabilities of {} tokens were asked for: choose up to {}", n, kMostProbs);
  }
  if (r.slot < -1 || r.slot >= options.parallel)
    usage_error("there is no slot {}: the slots are 0 to {}", r.slot, options.parallel - 1);
  if (!(r.time_limit >= 0)) usage_error("a time limit of {} s is none: choose 0 (no limit) or more", r.time_limit);
  if (!r.stop.empty() || r.constraint != nullptr) engine.tokenizer();  // says why there is none
}

/// Seconds until a place in the queue may be free, from how long requests have taken.
int Scheduler::Impl::retry_after() const {
  const double each = meters.request.count > 0 ? meters.request.sum / static_cast<double>(meters.request.count) : 1;
  const double wait = each / options.parallel;
  return static_cast<int>(std::clamp(std::ceil(wait), 1.0, static_cast<double>(kMostRetryAfter)));
}

std::shared_ptr<Stream> Scheduler::Impl::submit(Request request) {
  check(request);
  if (request.prompt_probs >= 0) request.cache_prompt = false;
  AnswerOptions answer_options;
  answer_options.max_tokens = request.max_tokens;
  answer_options.sampler = request.sampler;
  answer_options.stop = request.stop;
  answer_options.ignore_eog = request.ignore_eog;
  answer_options.special = request.special;
  answer_options.constraint = request.constraint;
  answer_options.thoughts = request.thoughts;
  Answer answer(engine.has_tokenizer() ? &engine.tokenizer() : nullptr, engine.model().hparams().vocab, answer_options);
  answer.begin(request.prompt);
  std::shared_ptr<Stream> stream;
  {
    const std::lock_guard lock(mutex);
    if (draining || ended) throw Stopping();
    const auto places = static_cast<size_t>(std::max(options.queue + options.parallel - busy - n_aside, 0));
    if (waiting.size() >= places) {
      ++meters.refused;
      throw Busy(fmt::format("{} requests are served and {} wait, which is all there is room for: try again later",
                             busy, waiting.size()),
                 retry_after());
    }
    auto job = std::make_unique<Job>(++last_task, std::move(request), std::move(answer),
                                     static_cast<size_t>(options.stream_events), bell);
    stream = job->stream.reader();
    waiting.push_back(std::move(job));
  }
  bell->ring();
  return stream;
}

void Scheduler::Impl::command(std::function<void()> work) {
  Command command{std::move(work), {}};
  std::future<std::exception_ptr> done = command.error.get_future();
  {
    const std::lock_guard lock(mutex);
    if (ended) throw Stopping();
    commands.push_back(std::move(command));
  }
  bell->ring();
  std::exception_ptr error;
  try {
    error = done.get();
  } catch (const std::future_error&) {  // it was dropped when the thread ended
    throw Stopping();
  }
  if (error != nullptr) std::rethrow_exception(error);
}

void Scheduler::Impl::drain(double seconds) {
  {
    std::unique_lock lock(mutex);
    draining = true;
    const auto time = std::chrono::duration<double>(std::clamp(seconds, 0.0, 1e8));
    idle.wait_for(lock, time, [&] {
      return stopping || (busy == 0 && n_aside == 0 && waiting.empty() && exclusives.empty() && !exclusive_runs);
    });
  }
  stop();
}

void Scheduler::Impl::stop() {
  stopping = true;
  {
    const std::lock_guard lock(mutex);
    draining = true;
  }
  idle.notify_all();
  bell->abort();
  bell->ring();
  const std::lock_guard lock(join_mutex);
  if (thread.joinable()) thread.join();
}

// --- the thread's loop

void Scheduler::Impl::run() {
  while (!stopping) {
    try {
      if (!turn()) bell->wait(next_event());
    } catch (const std::exception& error) {
      // Out of memory, say: whoever is served gets an error, and the next may fare better.
      const Error wrapped(ErrorKind::failed, error.what());
      for (Slot& slot : slots) {
        if (slot.job != nullptr) finish(slot, Finish::failed, &wrapped);
      }
    }
  }
  end_all();
}

/// One round. False if there is nothing to do until the bell rings or the next event is due.
bool Scheduler::Impl::turn() {
  run_commands();
  end_waiting();
  end_active();
  const bool ran = run_waiting_work();  // before a slot is given away whose pages it may wait for
  admit();
  const bool worked = step() || ran || save_one();
  if (!worked || Job::Clock::now() - published >= kPublishEvery) publish();
  return worked;
}

void Scheduler::Impl::run_commands() {
  while (true) {
    Command command;
    {
      const std::lock_guard lock(mutex);
      if (commands.empty()) return;
      command = std::move(commands.front());
      commands.pop_front();
    }
    bell->begin_batch(0);
    std::exception_ptr error;
    try {
      command.work();
    } catch (...) {
      error = std::current_exception();
    }
    command.error.set_value(std::move(error));
  }
}

/// Ends waiting requests that were cancelled or took too long.
void Scheduler::Impl::end_waiting() {
  const Job::Time now = Job::Clock::now();
  std::vector<std::unique_ptr<Job>> over;
  {
    const std::lock_guard lock(mutex);
    for (auto it = waiting.begin(); it != waiting.end();) {
      Job& job = **it;
      if (!job.stream.cancelled() && !job.timed_out(now)) {
        ++it;
        continue;
      }
      job.result.finish = job.stream.cancelled().value_or(Finish::timed_out);
      over.push_back(std::move(*it));
      it = waiting.erase(it);
    }
  }
  for (const auto& job : over) close(*job, nullptr);
}

/// Ends requests with a slot, or that had one, that were cancelled, took too long, or are not read.
void Scheduler::Impl::end_active() {
  const Job::Time now = Job::Clock::now();
  const auto over = [&](Job& job) -> std::optional<Finish> {
    if (!job.stream.full()) {
      job.full_since.reset();
    } else if (!job.full_since) {
      job.full_since = now;
    }
    if (const auto cancelled = job.stream.cancelled()) return cancelled;
    if (job.timed_out(now)) return Finish::timed_out;
    if (job.full_since && seconds_between(*job.full_since, now) >= options.stall_seconds) return Finish::stalled;
    return std::nullopt;
  };
  for (Slot& slot : slots) {
    if (slot.job == nullptr) continue;
    if (const auto how = over(*slot.job)) finish(slot, *how);
  }
  for (size_t i = aside.size(); i-- > 0;) {
    if (const auto how = over(*aside[i].job)) finish_aside(i, *how);
  }
}

/// When a request that nothing is computed for will be over.
Job::Time Scheduler::Impl::next_event() const {
  Job::Time next = Job::Time::max();
  const auto stall = std::chrono::duration_cast<Job::Clock::duration>(
      std::chrono::duration<double>(std::min(options.stall_seconds, 1e8)));
  const auto look = [&](const Job& job) {
    next = std::min(next, job.deadline);
    if (job.full_since) next = std::min(next, *job.full_since + stall);
  };
  for (const Slot& slot : slots) {
    if (slot.job != nullptr) look(*slot.job);
  }
  for (const Aside& one : aside) look(*one.job);
  const std::lock_guard lock(mutex);
  for (const auto& job : waiting) next = std::min(next, job->deadline);
  return next;
}

/// Ends everything: the thread is about to.
void Scheduler::Impl::end_all() {
  for (Slot& slot : slots) {
    if (slot.job != nullptr) finish(slot, Finish::shutdown);
  }
  while (!aside.empty()) finish_aside(aside.size() - 1, Finish::shutdown);
  std::deque<std::unique_ptr<Job>> over;
  {
    const std::lock_guard lock(mutex);
    over.swap(waiting);
    commands.clear();
    exclusives.clear();
    ended = true;
  }
  for (const auto& job : over) {
    job->result.finish = Finish::shutdown;
    close(*job, nullptr);
  }
  for (Slot& slot : slots) {
    if (slot.unsaved) store->wait_for_room(slot.held.state);
    save_to_store(slot);
  }
  store.reset();  // finishes what it writes
  publish();
}

/// What /slots shows; of an idle slot the last request's numbers stay.
void Scheduler::Impl::describe(const Slot& slot, SlotInfo& info) const {
  info.busy = slot.job != nullptr;
  info.held_tokens = static_cast<int64_t>(slot.held.tokens.size());
  info.prompt = info.paused = false;
  if (slot.job == nullptr) return;
  const Job& job = *slot.job;
  info.task = job.result.task;
  info.prompt = !job.generating();
  info.paused = job.full_since.has_value();
  info.prompt_tokens = job.result.prompt_tokens;
  info.prompt_done = std::min(info.held_tokens, info.prompt_tokens);
  info.cached_tokens = job.result.cached_tokens;
  info.sampled_tokens = job.result.sampled_tokens;
  info.max_tokens = job.request.max_tokens;
  info.seconds = seconds_between(job.submitted, Job::Clock::now());
}

void Scheduler::Impl::show(const Slot& slot) {
  const std::lock_guard lock(mutex);
  describe(slot, infos[static_cast<size_t>(slot.id)]);
}

/// What /slots shows of the request that the slot was just given.
void Scheduler::Impl::show_request(const Slot& slot) {
  const std::lock_guard lock(mutex);
  SlotInfo& info = infos[static_cast<size_t>(slot.id)];
  describe(slot, info);
  info.sampler = slot.job->request.sampler;
  info.note = slot.job->request.note;
}

/// Makes what other threads look at anew.
void Scheduler::Impl::publish() {
  published = Job::Clock::now();
  TierSnapshot fresh = read_tier(context);
  fresh.kept_sequences = static_cast<int64_t>(kept.size());
  if (store != nullptr) fresh.stored_bytes = store->bytes();
  const std::lock_guard lock(mutex);
  tier = std::move(fresh);
  for (const Slot& slot : slots) describe(slot, infos[static_cast<size_t>(slot.id)]);
}

// --- the public face

Scheduler::Scheduler(Context& context, const SchedulerOptions& options)
    : impl_(std::make_unique<Impl>(context, options)) {}
Scheduler::~Scheduler() = default;

std::shared_ptr<Stream> Scheduler::submit(Request request) {
  return impl_->submit(std::move(request));
}
const SchedulerOptions& Scheduler::options() const {
  return impl_->options;
}
Engine& Scheduler::engine() {
  return impl_->engine;
}
int64_t Scheduler::context_length() const {
  return impl_->context.options().context;
}
std::vector<SlotInfo> Scheduler::slots() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->infos;
}
int Scheduler::busy_slots() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->busy;
}
int Scheduler::queued() const {
  const std::lock_guard lock(impl_->mutex);
  return static_cast<int>(impl_->waiting.size());
}
bool Scheduler::stopping() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->draining || impl_->ended;
}

std::string Scheduler::metrics_text() const {
  ServeMeters meters;
  TierSnapshot tier;
  ServeGauges gauges;
  {
    const std::lock_guard lock(impl_->mutex);
    meters = impl_->meters;
    tier = impl_->tier;
    gauges.busy = impl_->busy;
    gauges.queued = static_cast<int>(impl_->waiting.size());
    gauges.aside = impl_->n_aside;
  }
  gauges.slots = impl_->options.parallel;
  gauges.context = impl_->context.options().context;
  return render_metrics(meters, tier, gauges);
}

SlotFile Scheduler::save_slot(int id, const std::string& name) {
  SlotFile file;
  impl_->command([&] { file = impl_->save(id, name); });
  return file;
}
SlotFile Scheduler::restore_slot(int id, const std::string& name) {
  SlotFile file;
  impl_->command([&] { file = impl_->restore(id, name); });
  return file;
}
SlotFile Scheduler::erase_slot(int id) {
  SlotFile file;
  impl_->command([&] { file = impl_->erase(id); });
  return file;
}
void Scheduler::run_exclusive(const std::function<void(Context&)>& work, int64_t pages, int64_t prompt_tokens,
                              const std::function<bool()>& stop) {
  if (pages == 0) return impl_->command([&] { impl_->run_apart(work, prompt_tokens); });
  impl_->exclusive(work, pages, prompt_tokens, stop);
}
void Scheduler::drain(double seconds) {
  impl_->drain(seconds);
}
void Scheduler::stop() {
  impl_->stop();
}

}  // namespace moetier
