// Saved states of prompts and answers on disk, found again by the longest common prefix.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/state.h"
#include "server/model_id.h"
#include "tokenizer/tokenizer.h"

namespace moetier {

/// One directory, which several servers may share, of any models. Files are written by a thread of its own, beside and
/// renamed; those unused for longest are removed when all of them take more than was allowed.
class PromptStore {
 public:
  /// Makes the directory if there is none, and looks through it. States that wait in memory to be written take at most
  /// `most_waiting` bytes together; a larger one waits alone. `written` is called after each file, by the thread that
  /// writes. Errors: a directory that cannot be made or written to.
  PromptStore(std::string directory, uint64_t most_bytes, const ModelId& model, uint64_t most_waiting,
              std::function<void()> written = {});
  /// Waits until everything is written.
  ~PromptStore();
  PromptStore(const PromptStore&) = delete;
  PromptStore& operator=(const PromptStore&) = delete;

  struct Match {
    size_t length = 0;  ///< of the common prefix; 0 = none
    size_t tokens = 0;  ///< that the file holds
    std::string path;
  };
  Match find(std::span<const TokenId> prompt) const;
  /// Gives the state what the file holds, and the tokens of that. Errors as SessionReader's.
  std::vector<TokenId> load(const Match& match, SequenceState& state);
  /// Removes a file that is of no use.
  void forget(const Match& match);
  /// Writes a sequence soon, unless a file holds (nearly) all of it, or there is no room for it to wait (which is
  /// said). Files that it begins with are then removed.
  void save(std::span<const TokenId> tokens, const SequenceState& state);
  bool has_room(const SequenceState& state) const;  ///< for it to wait in
  void wait_for_room(const SequenceState& state);
  uint64_t waiting_bytes() const;
  uint64_t bytes() const;  ///< of the files of this model that are known

 private:
  struct Entry {
    std::string path;
    std::vector<TokenId> tokens;
    uint64_t bytes;
  };
  struct Work {
    std::vector<TokenId> tokens;
    std::string state;
  };
  bool fits(uint64_t bytes) const;  // the mutex is held
  void look_through();
  void run();
  void write(const Work& work);
  void make_room();

  const std::string directory_;
  const uint64_t most_bytes_;
  const ModelId model_;
  const uint64_t most_waiting_;
  const std::function<void()> written_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> entries_;
  std::deque<Work> queue_;
  uint64_t waiting_ = 0;  // bytes of the queue's states
  bool end_ = false;
  std::thread thread_;
};

}  // namespace moetier
