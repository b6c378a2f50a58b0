// A request's answer as it comes: a bounded queue of events between the scheduler, which never waits, and one reader.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/request.h"

namespace moetier {

class Bell;

struct StreamEvent {
  enum class Kind {
    progress,  ///< only where Request::progress asks: prompt_done of prompt_tokens are computed or were cached
    prompt,    ///< only where Request::prompt_probs asks: `tokens` are the prompt's, all of which are computed
    text,      ///< `text` became certain; `tokens` were sampled since the event before
    done,      ///< the last: `result`
    error,     ///< the last: the request failed; `message` says why, `result` how far it came
  };
  Kind kind = Kind::text;
  std::string text;  ///< never half a character, never part of a stop text; may be empty where `tokens` is not
  std::vector<TokenOut> tokens;
  int64_t prompt_done = 0, prompt_tokens = 0, prompt_cached = 0;
  int slot = -1;                                ///< that works on it
  double prompt_seconds = 0;                    ///< progress: since the first slice of the prompt began
  std::optional<RequestUsage> usage;            ///< text: so far, where Request::timings asks
  std::shared_ptr<const RequestResult> result;  ///< done and error
  std::string message;                          ///< error: one sentence
  ErrorKind error = ErrorKind::failed;          ///< error: usage = the request was wrong (HTTP 400), failed = 500
};

/// Held by the reader. Letting go of it (the last shared_ptr) cancels the request, so a handler that leaves on any path
/// never leaves work behind. All calls are safe from any thread; next() is for one reader.
///
/// Texts of events are those of GenerateResult::text in pieces: joined they are RequestResult::text. Tokens whose text
/// is held back (half a character, the possible beginning of a stop text) come with the event that brings it; joined
/// they are RequestResult::tokens, except that tokens of a stop text come only in the result.
class Stream {
 public:
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// The next event, waiting up to `timeout` for it; nullopt if there is none yet, and after the last one. A wait that
  /// ends empty is the moment for a keep-alive.
  std::optional<StreamEvent> next(std::chrono::milliseconds timeout);
  /// Rings `bell` from now on for every event that comes, so that one reader can wait for several streams. Events may
  /// have come before.
  void ring_also(std::shared_ptr<Bell> bell);
  /// True once the last event (done or error) was taken.
  bool ended() const;
  /// Ends the request soon: what waits leaves the queue at once, what is computed alone stops in mid-batch. A done
  /// event (cancelled) still comes, unless one was there already. More calls do nothing. `stalled`: its reader's own
  /// reader took nothing for too long, so that it ends as stalled.
  void cancel(bool stalled = false);
  uint64_t task() const;
  /// Reads to the end. For readers who want the whole answer; what fails is thrown as an Error. `stop` is asked about
  /// ten times a second and cancels by returning true (a client that hung up, say).
  RequestResult wait(const std::function<bool()>& stop = {});

 private:
  friend class StreamWriter;
  struct Impl;
  explicit Stream(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace moetier
