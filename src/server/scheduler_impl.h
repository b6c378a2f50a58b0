// The scheduler's inside. What stands under "any thread" is guarded by `mutex`; all else is its thread's alone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include "server/alarm.h"
#include "server/job.h"
#include "server/pace.h"
#include "server/prompt_store.h"
#include "server/scheduler.h"
#include "server/serve_meters.h"
#include "server/session_file.h"

namespace moetier {

struct Scheduler::Impl {
  /// Work that a caller waits for. What it throws is handed over whole, so that it is the caller's alone.
  struct Command {
    std::function<void()> work;
    std::promise<std::exception_ptr> error;  // nullptr: it went well
  };

  /// Work that waits for pages. What is said of Command holds.
  struct Exclusive {
    uint64_t task;
    int64_t pages, prompt_tokens;
    std::function<void(Context&)> work;
    std::promise<std::exception_ptr> error;
  };

  Impl(Context& context, const SchedulerOptions& options);
  ~Impl();

  // --- any thread (scheduler.cpp)
  std::shared_ptr<Stream> submit(Request request);
  void check(const Request& request) const;
  int retry_after() const;  // the mutex is held
  void command(std::function<void()> work);
  void exclusive(const std::function<void(Context&)>& work, int64_t pages, int64_t prompt_tokens,
                 const std::function<bool()>& stop);
  bool withdraw(uint64_t task);
  void drain(double seconds);
  void stop();

  // --- the thread's loop (scheduler.cpp)
  void run();
  bool turn();
  void run_commands();
  bool run_waiting_work();
  std::optional<Exclusive> next_work();
  void end_waiting();
  void end_active();
  void describe(const Slot& slot, SlotInfo& info) const;
  void show(const Slot& slot);
  void show_request(const Slot& slot);
  void publish();
  Job::Time next_event() const;
  void end_all();

  // --- giving slots (admission.cpp)
  void admit();
  std::unique_ptr<Job> next_job();
  Slot& choose_slot(const Job& job);
  void assign(Slot& slot, std::unique_ptr<Job> job);
  void take_prefix(Slot& slot, const Job& job);
  void take_saved_prefix(Slot& slot, const Job& job);
  void replace(Slot& slot, HeldSequence fresh, size_t reused);
  void save_to_store(Slot& slot);
  bool save_one();
  bool catch_up(Slot& slot);
  void make_room(int64_t pages, int32_t states);
  SlotFile save(int id, const std::string& name);
  uint64_t read_saved(const std::string& path, HeldSequence& fresh);
  SlotFile restore(int id, const std::string& name);
  SlotFile erase(int id);
  Slot& idle_slot(int id);

  // --- readers that do not keep up (set_aside.cpp)
  bool give_way();
  bool give_way_to_work();
  void set_aside(Slot& slot);
  bool is_wanted(int id) const;
  bool take_up();
  bool take_pages_of_aside();
  void finish_aside(size_t place, Finish how);
  void turn_counters(Job& job) const;

  // --- a step (step.cpp)
  struct Part {
    Slot* slot;
    size_t first, rows;  // in rows_
    bool logits;         // of its last row
  };
  /// Where the logits of a step come from: the context, or a copy where rows of prompts had some, too.
  struct StepLogits {
    std::vector<float> copies;
    size_t vocab = 0;  // 0: they are the context's
    std::span<const float> at(const Context& context, int64_t index) const;
  };
  bool step();
  size_t add_generating();
  void add_prompts(int64_t budget);
  void compute(std::span<const Part> parts);
  void decode(std::span<const Part> parts, std::span<const BatchRow> rows);
  void decode_scored(std::span<const Part> parts, std::span<const BatchRow> rows);
  void advance(const Part& part, int64_t index);
  void prompt_done(Job& job);
  static TokenOut probabilities(Job& job, TokenId token, std::span<const float> logits);
  void sample(Slot& slot, std::span<const float> logits);
  void send(Job& job);
  void finish(Slot& slot, Finish finish, const Error* error = nullptr);
  void conclude(Job& job, Finish how);
  void fill_times(Job& job) const;
  void fill_counters(Job& job) const;
  void close(Job& job, const Error* error);
  void report(const Job& job);
  void run_apart(const std::function<void(Context&)>& work, int64_t prompt_tokens);

  Context& context;
  Engine& engine;
  const SchedulerOptions options;
  const std::shared_ptr<Bell> bell = std::make_shared<Bell>();
  Alarm alarm;
  std::atomic<bool> stopping{false};

  mutable std::mutex mutex;
  std::condition_variable idle;  // nothing to do is left, or it was stopped
  std::deque<std::unique_ptr<Job>> waiting;
  std::deque<Command> commands;
  std::deque<Exclusive> exclusives;
  bool exclusive_runs = false;
  std::vector<SlotInfo> infos;
  int busy = 0, n_aside = 0;
  bool draining = false, ended = false;
  uint64_t last_task = 0;
  ServeMeters meters;
  TierSnapshot tier;

  std::vector<Slot> slots;
  std::vector<Aside> aside;  // in the order in which they lost their slots
  KeptSequences kept;
  std::unique_ptr<PromptStore> store;  // null without a directory
  ModelId model_id;
  Pace pace;
  uint64_t uses = 0;
  Job::Time published;
  uint64_t steps_ = 0;
  std::vector<BatchRow> rows_;
  std::vector<Part> parts_;
  StepLogits logits_;

  std::mutex join_mutex;
  std::thread thread;
};

}  // namespace moetier
