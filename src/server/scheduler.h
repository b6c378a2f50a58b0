// Serves many requests with one model: slots, a fair queue, continuous batching, and prefixes shared between requests.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/context.h"
#include "server/request.h"
#include "server/stream.h"

namespace moetier {

class AuditLog;

struct SchedulerOptions {
  int parallel = 1;  ///< slots; the context must be made for as many sequences or more
  int queue = 64;    ///< requests that may wait for a slot; one more is Busy
  /// Rows of prompts in a batch while others generate; 0 = chosen from the speed measured so far.
  int64_t prompt_slice = 0;
  int stream_events = 256;    ///< an unread stream of so many events pauses its slot...
  double stall_seconds = 30;  ///< ...and if half of them are not read within so long, ends it
  int kept_sequences = 32;    ///< finished sequences kept for their prefixes beside those of the slots, memory allowing
  /// States of finished prompts and answers are kept here too, and found by later runs; empty = none.
  std::string prompt_cache_dir;
  uint64_t prompt_cache_bytes = uint64_t{4096} << 20;  ///< the oldest unused are removed above it
  int64_t prompt_cache_min_tokens = 64;                ///< shorter ones are not worth a file
  std::string slot_save_path;  ///< directory of save_slot() and restore_slot(); empty = they are refused
  AuditLog* audit = nullptr;   ///< gets a `request` record for each finished request; must outlive the scheduler
  bool log_requests = true;    ///< the reference's line of hits for each request
};

/// A slot as /slots shows it.
struct SlotInfo {
  int id = 0;
  bool busy = false;        ///< what follows is of the request it works on, or of the last one
  uint64_t task = 0;        ///< 0: it never had one
  bool prompt = false;      ///< computing the prompt
  bool paused = false;      ///< waits for its reader
  int64_t held_tokens = 0;  ///< positions the slot's sequence holds
  int64_t prompt_tokens = 0, prompt_done = 0, cached_tokens = 0, sampled_tokens = 0, max_tokens = -1;
  double seconds = 0;  ///< since the request was submitted
  SamplerOptions sampler;
  std::shared_ptr<const RequestNote> note;  ///< the request's
};

/// What save_slot() and its like did.
struct SlotFile {
  int64_t tokens = 0;  ///< saved, restored or erased
  uint64_t bytes = 0;  ///< of the file; 0 for erase
  double seconds = 0;
};

/// One thread of its own decodes: each step a batch of one row for every slot that generates, and a slice of the
/// prompts that wait. While anyone generates, prompts take about half of the time, so that others keep at least about
/// half of their pace; while nobody does, a prompt goes through whole (layer-major where experts are streamed). All
/// calls are safe from any thread. Nothing here waits for a reader.
class Scheduler {
 public:
  /// The context is the scheduler's alone until it is destroyed. Errors: options out of range, a context with fewer
  /// sequences than slots, a directory that cannot be used.
  Scheduler(Context& context, const SchedulerOptions& options);
  /// As stop().
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Queues a request. Throws Busy (the queue is full), Stopping, ContextOverflow, or a usage Error about its options
  /// (an empty prompt, a token outside the vocabulary, a slot that does not exist, sampler options out of range, an
  /// empty stop text, ...). Order is first come, first served; a request for a certain slot waits for that one without
  /// holding up those behind it.
  std::shared_ptr<Stream> submit(Request request);

  const SchedulerOptions& options() const;
  Engine& engine();
  int64_t context_length() const;  ///< positions of a slot
  std::vector<SlotInfo> slots() const;
  int busy_slots() const;
  int queued() const;  ///< requests that wait for a slot
  bool stopping() const;

  /// /metrics: Prometheus text format 0.0.4 of everything counted here and of the tier cache. Never waits for a batch:
  /// counters are as of the last step.
  std::string metrics_text() const;

  // Of an idle slot; each waits for the end of the step that runs. `name`: a file name, without any directory, in
  // slot_save_path. Errors: a slot that does not exist or is busy (Busy), a bad name, no slot_save_path, a file that
  // is not there (NotThere) or does not fit this model.
  SlotFile save_slot(int id, const std::string& name);
  SlotFile restore_slot(int id, const std::string& name);
  SlotFile erase_slot(int id);

  /// Runs `work` on the scheduler's thread between two steps and waits for it; what it throws comes out here. For what
  /// needs the context and is no generation (embeddings, say). Sequences that it makes take pages from the same pool
  /// and must be gone when it returns. Throws Stopping once the scheduler has ended.
  /// `pages`, at most a slot's: how many are made free for it beforehand, at the cost of kept prefixes. Where requests
  /// at work hold them it waits, first come, first served, until there are enough: at the latest when a slot becomes
  /// free, which no request is given before. While anyone generates, such work takes about half of the time, as prompts
  /// do. `prompt_tokens`: how many it computes; they get a record in the audit log, and requests at work do not count
  /// what the store did for them. `stop` is asked a few times a second; when it says true, Cancelled is thrown, also in
  /// the middle of a batch.
  void run_exclusive(const std::function<void(Context&)>& work, int64_t pages = 0, int64_t prompt_tokens = 0,
                     const std::function<bool()>& stop = {});

  /// Takes no more requests; lets those it has finish for up to `seconds`, and then ends the rest (shutdown). Returns
  /// when nothing is left to do. Streams keep their unread events.
  void drain(double seconds);
  /// Ends every request at once, in mid-batch, and the thread. Also while drain() waits, from another thread.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moetier
