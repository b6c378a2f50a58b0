// One step: a batch, the tokens that come of it, and the requests that end with them.
#include <algorithm>
#include <cmath>
#include <exception>
#include <iterator>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "engine/run_meters.h"
#include "server/audit.h"
#include "server/logprobs.h"
#include "server/scheduler_impl.h"

namespace moetier {
namespace {

constexpr int64_t kPagesInReserve = 1;  // of each sequence: a shared page that is copied before it is appended to

}  // namespace

/// Computes what there is to compute. False if that is nothing.
bool Scheduler::Impl::step() {
  rows_.clear();
  parts_.clear();
  ++steps_;
  const size_t generating = add_generating();
  add_prompts(pace.prompt_rows(static_cast<int64_t>(generating)));
  if (parts_.empty()) return false;
  int64_t pages = 0;
  for (const Part& part : parts_) {
    const SequenceState& state = part.slot->held.state;
    pages += pages_for(state.length() + static_cast<int64_t>(part.rows)) - pages_for(state.length()) + kPagesInReserve;
  }
  make_room(pages, static_cast<int32_t>(parts_.size()));
  const auto prompt_rows = static_cast<int64_t>(rows_.size() - generating);
  const Job::Time start = Job::Clock::now();
  const size_t slots_at_work = parts_.size();
  compute(parts_);
  const double seconds = seconds_between(start, Job::Clock::now());
  pace.note(static_cast<int64_t>(generating), prompt_rows, seconds);
  const std::lock_guard lock(mutex);
  meters.note_step(slots_at_work, seconds);
  return true;
}

/// A row for each slot that generates and whose reader keeps up. How many.
size_t Scheduler::Impl::add_generating() {
  for (Slot& slot : slots) {
    if (slot.job == nullptr || !slot.job->generating() || slot.job->stream.full() || slot.replays()) continue;
    parts_.push_back({&slot, rows_.size(), 1, true});
    rows_.push_back({slot.job->answer.tokens().back(), &slot.held.state, true});
  }
  return parts_.size();
}

/// Up to `budget` rows of prompts. They take turns, so that a short one is not kept waiting by a long one.
void Scheduler::Impl::add_prompts(int64_t budget) {
  if (budget <= 0) return;
  std::vector<Slot*> prompts;
  for (Slot& slot : slots) {
    if (slot.job != nullptr && (!slot.job->generating() || slot.replays())) prompts.push_back(&slot);
  }
  const auto turn_of = [](const Slot* slot) { return std::pair(slot->job->last_slice, slot->job->result.task); };
  std::sort(prompts.begin(), prompts.end(), [&](const Slot* a, const Slot* b) { return turn_of(a) < turn_of(b); });
  for (Slot* slot : prompts) {
    if (budget <= 0) return;
    const bool again = slot->replays();
    if (!again && !catch_up(*slot)) continue;
    Job& job = *slot->job;
    if (job.prompt_began == Job::Time()) job.prompt_began = Job::Clock::now();
    job.last_slice = steps_;
    const std::vector<TokenId>& prompt = again ? job.replay : job.request.prompt;
    const size_t begin = slot->held.tokens.size();
    const size_t n = std::min(prompt.size() - begin, static_cast<size_t>(budget));
    const bool logits = !again && begin + n == prompt.size() && job.request.max_tokens != 0;
    parts_.push_back({slot, rows_.size(), n, logits});
    for (size_t i = begin; i < begin + n; ++i) {
      const bool last = i + 1 == prompt.size();
      rows_.push_back({prompt[i], &slot->held.state, last ? logits : !again && job.request.prompt_probs >= 0});
    }
    budget -= static_cast<int64_t>(n);
  }
}

/// Computes parts of the step together. If that fails, each by itself, so that only those end that cannot be computed:
/// the answers of the others are the same either way.
void Scheduler::Impl::compute(std::span<const Part> parts) {
  const Part& front = parts.front();
  const size_t rows = parts.back().first + parts.back().rows - front.first;
  const Job& first = *front.slot->job;
  bell->begin_batch(parts.size() == 1 ? first.result.task : 0);
  if (parts.size() == 1 && first.deadline != Job::Time::max()) alarm.set(first.deadline);
  if (stopping || (parts.size() == 1 && first.stream.cancelled())) bell->abort();
  try {
    decode(parts, std::span<const BatchRow>(rows_).subspan(front.first, rows));
    alarm.clear();
  } catch (const Cancelled&) {
    alarm.clear();
    return;  // everything is as it was; the next round sees who is over
  } catch (const Error& error) {
    alarm.clear();
    if (parts.size() == 1) {
      log::warn("request {} failed: {}", first.result.task, error.what());
      finish(*front.slot, Finish::failed, &error);
      return;
    }
    for (size_t i = 0; i < parts.size(); ++i) compute(parts.subspan(i, 1));
    return;
  }
  int64_t index = 0;
  for (const Part& part : parts) {
    advance(part, index);
    index += part.logits ? 1 : 0;
  }
}

void Scheduler::Impl::decode(std::span<const Part> parts, std::span<const BatchRow> rows) {
  const bool scored = std::any_of(parts.begin(), parts.end(), [](const Part& part) {
    const Job& job = *part.slot->job;
    return !job.generating() && job.request.prompt_probs >= 0;
  });
  if (scored) return decode_scored(parts, rows);
  logits_.vocab = 0;
  context.decode(rows);
}

/// With prompts whose tokens get log-probabilities: their logits are made into those row by row, so that a prompt of
/// any length needs no memory for them. What the samplers need is copied.
void Scheduler::Impl::decode_scored(std::span<const Part> parts, std::span<const BatchRow> rows) {
  struct Wanted {
    const Part* part;
    size_t row;  // of the part
  };
  std::vector<Wanted> wanted;
  for (const Part& part : parts) {
    for (size_t row = 0; row < part.rows; ++row) {
      if (rows_[part.first + row].want_logits) wanted.push_back({&part, row});
    }
  }
  std::vector<std::vector<TokenOut>> scores(parts.size());
  logits_.copies.clear();
  logits_.vocab = static_cast<size_t>(engine.model().hparams().vocab);
  context.decode(rows, [&](int64_t index, std::span<const float> logits) {
    const auto [part, row] = wanted[static_cast<size_t>(index)];
    if (part->logits && row + 1 == part->rows) {
      logits_.copies.insert(logits_.copies.end(), logits.begin(), logits.end());
      return;
    }
    const Request& request = part->slot->job->request;
    const TokenId next = request.prompt[part->slot->held.tokens.size() + row + 1];
    scores[static_cast<size_t>(part - parts.data())].push_back(token_with_probs(logits, next, request.prompt_probs));
  });
  // Only now: a batch that failed leaves nothing behind.
  for (size_t i = 0; i < parts.size(); ++i) {
    std::vector<TokenOut>& all = parts[i].slot->job->scores;
    std::move(scores[i].begin(), scores[i].end(), std::back_inserter(all));
  }
}

std::span<const float> Scheduler::Impl::StepLogits::at(const Context& context, int64_t index) const {
  if (vocab == 0) return context.logits(index);
  return std::span<const float>(copies).subspan(static_cast<size_t>(index) * vocab, vocab);
}

/// The part's rows are computed; its logits, if any, are number `index`.
void Scheduler::Impl::advance(const Part& part, int64_t index) {
  Slot& slot = *part.slot;
  Job& job = *slot.job;
  std::vector<TokenId>& tokens = slot.held.tokens;
  const bool again = slot.replays();
  for (size_t i = part.first; i < part.first + part.rows; ++i) tokens.push_back(rows_[i].token);
  if (again) return;
  if (!job.generating()) {
    job.result.computed_tokens += static_cast<int64_t>(part.rows);
    if (job.request.progress && !job.stream.full()) {
      StreamEvent event;
      event.kind = StreamEvent::Kind::progress;
      event.prompt_done = static_cast<int64_t>(tokens.size());
      event.prompt_tokens = job.result.prompt_tokens;
      event.prompt_cached = job.result.cached_tokens;
      event.slot = slot.id;
      event.prompt_seconds = seconds_between(job.prompt_began, Job::Clock::now());
      job.stream.push(std::move(event));
    }
    if (tokens.size() < job.request.prompt.size()) return;
    prompt_done(job);
    if (job.request.max_tokens == 0) return finish(slot, Finish::length);
  }
  try {
    sample(slot, logits_.at(context, index));
  } catch (const Error& error) {
    finish(slot, Finish::failed, &error);
  }
}

void Scheduler::Impl::prompt_done(Job& job) {
  job.prompt_ended = Job::Clock::now();
  if (job.request.prompt_probs < 0) return;
  StreamEvent event;
  event.kind = StreamEvent::Kind::prompt;
  event.tokens.push_back({job.request.prompt.front(), std::numeric_limits<float>::quiet_NaN(), {}});
  std::move(job.scores.begin(), job.scores.end(), std::back_inserter(event.tokens));
  job.scores.clear();
  job.stream.push(std::move(event));
}

/// The token, with what is to be told of it.
TokenOut Scheduler::Impl::probabilities(Job& job, TokenId token, std::span<const float> logits) {
  TokenOut out;
  out.token = token;
  const int n = job.request.n_probs;
  if (n < 0) return out;
  if (!job.request.sampled_probs) return token_with_probs(logits, token, n);
  out.logprob = static_cast<float>(job.answer.sampler().chance(token));
  for (const TokenChance& one : job.answer.sampler().chances(static_cast<size_t>(n)))
    out.top.push_back({one.token, static_cast<float>(one.probability)});
  return out;
}

/// The slot's next token.
void Scheduler::Impl::sample(Slot& slot, std::span<const float> logits) {
  Job& job = *slot.job;
  Answer& answer = job.answer;
  const TokenId token = answer.sample(logits);
  const Job::Time now = Job::Clock::now();
  if (job.generating()) {
    const std::lock_guard lock(mutex);
    meters.token_gap.observe(seconds_between(job.last_token, now));
  } else {
    job.first_token = now;
  }
  job.last_token = now;
  ++job.result.sampled_tokens;
  const size_t before = answer.tokens().size();
  job.pending.text += answer.take(token);
  TokenOut out = probabilities(job, token, logits);
  if (answer.tokens().size() > before) {
    job.pending.tokens.push_back(std::move(out));
  } else if (job.request.n_probs >= 0) {
    job.result.ending = std::move(out);
  }
  if (!job.pending.text.empty()) send(job);
  if (answer.reason()) {
    return finish(slot, *answer.reason() == StopReason::stop_text ? Finish::stop_text : Finish::end_of_generation);
  }
  if (answer.full()) return finish(slot, Finish::length);
  if (slot.held.state.length() >= context.options().context) finish(slot, Finish::context_full);
}

/// Hands out what is pending.
void Scheduler::Impl::send(Job& job) {
  job.result.text += job.pending.text;
  if (job.request.timings) {
    fill_times(job);
    job.pending.usage = job.result;
  }
  job.pending.slot = job.result.slot;
  job.stream.push(std::exchange(job.pending, {}));
}

/// The last that the request's reader and books get, but for the end of its stream.
void Scheduler::Impl::conclude(Job& job, Finish how) {
  job.result.finish = how;
  if (how != Finish::cancelled && how != Finish::failed) {
    // What was held back is part of the answer after all, and may end with a stop text only now.
    job.pending.text += job.answer.finish();
    if (job.answer.reason() == StopReason::stop_text) job.result.finish = Finish::stop_text;
    const bool swallowed = job.result.finish == Finish::stop_text && job.pending.text.empty();
    if (!swallowed && !(job.pending.text.empty() && job.pending.tokens.empty())) send(job);
  }
  fill_times(job);
  fill_counters(job);
}

/// The slot's request is over; `error` says why it failed.
void Scheduler::Impl::finish(Slot& slot, Finish how, const Error* error) {
  conclude(*slot.job, how);
  std::unique_ptr<Job> over;
  {
    // Before its stream ends: who has read the end finds the slot free.
    const std::lock_guard lock(mutex);
    describe(slot, infos[static_cast<size_t>(slot.id)]);
    over = std::move(slot.job);
    infos[static_cast<size_t>(slot.id)].busy = false;
    --busy;
  }
  close(*over, error);
  slot.unsaved = store != nullptr && static_cast<int64_t>(slot.held.tokens.size()) >= options.prompt_cache_min_tokens;
  idle.notify_all();
}

void Scheduler::Impl::fill_times(Job& job) const {
  RequestResult& result = job.result;
  if (job.first_token != Job::Time()) {
    result.first_token_seconds = seconds_between(job.submitted, job.first_token);
    result.decode_seconds = seconds_between(job.first_token, job.last_token);
  }
  if (job.prompt_began != Job::Time()) {
    const Job::Time end = job.prompt_ended != Job::Time() ? job.prompt_ended : Job::Clock::now();
    result.prompt_seconds = seconds_between(job.prompt_began, end);
  }
}

/// What the store did since the request got its slot.
void Scheduler::Impl::fill_counters(Job& job) const {
  ExpertStore* experts = engine.store();
  const std::lock_guard quiet(engine.run_mutex());
  if (experts == nullptr || !has_cache(experts->status())) return;
  const StoreCounters passed = experts->counters() - job.before;
  RequestResult& result = job.result;
  result.has_cache = true;
  result.hits = passed.hits;
  result.hits_profile = passed.hits_profile;
  result.misses = passed.misses;
  result.bytes_read = passed.bytes_read;
  result.read_wait_seconds = experts->meters().read_wait_seconds - job.wait_before;
}

/// Ends a request's stream and tells everyone who keeps books.
void Scheduler::Impl::close(Job& job, const Error* error) {
  RequestResult& result = job.result;
  result.tokens = job.answer.tokens();
  result.thought_tokens = job.answer.thought_tokens();
  if (result.finish == Finish::stop_text) result.stop_text = job.answer.stop().matched();
  result.total_seconds = seconds_between(job.submitted, Job::Clock::now());
  report(job);
  {
    const std::lock_guard lock(mutex);
    meters.note_request(result);
  }
  StreamEvent event;
  event.kind = error == nullptr ? StreamEvent::Kind::done : StreamEvent::Kind::error;
  if (error != nullptr) {
    event.message = error->what();
    event.error = error->kind();
  }
  event.result = std::make_shared<RequestResult>(result);
  job.stream.push(std::move(event));
}

/// The request's lines in the log and its record. Nothing of what it asked or was answered is in them.
void Scheduler::Impl::report(const Job& job) {
  const RequestResult& r = job.result;
  if (options.audit != nullptr && r.slot >= 0) options.audit->request(context, r);
  if (!options.log_requests) return;
  log::info("request {}: slot {}, prompt {} tokens ({} cached) at {:.1f} tok/s, {} tokens at {:.1f} tok/s, {}", r.task,
            r.slot, r.prompt_tokens, r.cached_tokens, r.prompt_tok_s(), r.sampled_tokens, r.decode_tok_s(),
            to_string(r.finish));
  if (!r.has_cache) return;
  log::info("{}", hits_line(r));
}

/// Work without a slot, whose lookups are its own: its record has them, and those of the requests at work do not, so
/// that records add up to what the store did.
void Scheduler::Impl::run_apart(const std::function<void(Context&)>& work, int64_t prompt_tokens) {
  const auto counters = [&]() -> std::pair<StoreCounters, double> {
    ExpertStore* experts = engine.store();
    const std::lock_guard quiet(engine.run_mutex());
    if (experts == nullptr || !has_cache(experts->status())) return {};
    return {experts->counters(), experts->meters().read_wait_seconds};
  };
  const auto [before, wait_before] = counters();
  const Job::Time start = Job::Clock::now();
  std::exception_ptr error;
  try {
    work(context);
  } catch (...) {
    error = std::current_exception();
  }
  const auto [after, wait_after] = counters();
  const StoreCounters passed = after - before;
  for (Slot& slot : slots) {
    if (slot.job == nullptr) continue;
    slot.job->before += passed;
    slot.job->wait_before += wait_after - wait_before;
  }
  if (options.audit != nullptr && prompt_tokens > 0) {
    RequestResult result;
    result.slot = 0;  // it has none, and a record names one
    result.prompt_tokens = result.computed_tokens = prompt_tokens;
    result.prompt_seconds = seconds_between(start, Job::Clock::now());
    result.hits = passed.hits;
    result.hits_profile = passed.hits_profile;
    result.misses = passed.misses;
    result.bytes_read = passed.bytes_read;
    {
      const std::lock_guard lock(mutex);
      result.task = ++last_task;
    }
    options.audit->request(context, result);
  }
  if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace moetier
