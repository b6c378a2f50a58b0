// A request while the scheduler works on it, and the slot it has.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "engine/answer.h"
#include "experts/store.h"
#include "server/kept_sequences.h"
#include "server/stream_writer.h"

namespace moetier {

struct Job {
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  Job(uint64_t task, Request wanted, Answer answer, size_t stream_events, std::shared_ptr<Bell> bell);

  bool generating() const { return first_token != Time(); }  ///< the prompt is computed; a token waits to be decoded
  bool timed_out(Time now) const { return now >= deadline; }

  Request request;
  Answer answer;
  StreamWriter stream;
  RequestResult result;
  StreamEvent pending;                ///< text and tokens that were not sent yet
  Time submitted, started, deadline;  ///< deadline: max() if there is none
  Time prompt_began, prompt_ended, first_token, last_token;
  std::optional<Time> full_since;  ///< nobody reads its stream
  std::vector<TokenOut> scores;    ///< of the prompt's tokens computed so far, where they are wanted
  uint64_t last_slice = 0;         ///< the step that computed a slice of its prompt last; 0 = none yet
  std::vector<TokenId> replay;     ///< what its sequence held before its pages went to others; empty: they did not
  StoreCounters before;            ///< of the store, when it got its slot
  double wait_before = 0;
};

inline double seconds_between(Job::Time from, Job::Time to) {
  return std::chrono::duration<double>(to - from).count();
}

struct Slot {
  int id;
  HeldSequence held;
  std::unique_ptr<Job> job;  ///< null: idle
  uint64_t used = 0;         ///< the scheduler's count when it was last given a job
  bool unsaved = false;      ///< what it holds is worth a file and has none
  /// Tokens that were computed before are computed again, before the job goes on.
  bool replays() const { return held.tokens.size() < job->replay.size(); }
  /// Nothing can be made for its reader, so the slot is better used for others. (A prompt needs no reader.)
  bool gives_way() const { return job != nullptr && job->generating() && job->full_since && job->stream.full(); }
};

/// A request that has lost its slot, because its reader did not keep up and others waited, with what it had there.
struct Aside {
  HeldSequence held;
  std::unique_ptr<Job> job;
  Job::Time since;
};

}  // namespace moetier
