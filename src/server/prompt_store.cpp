#include "server/prompt_store.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "server/kept_sequences.h"
#include "server/session_file.h"

namespace moetier {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".prompt";
constexpr size_t kWorthWriting = 64;  // tokens that no file holds yet

/// The name says what it holds, so the same sequence is written once, whoever writes it.
std::string file_name(const ModelId& model, std::span<const TokenId> tokens) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const TokenId token : tokens) hash = (hash ^ static_cast<uint32_t>(token)) * 0x100000001b3ull;
  return fmt::format("{}-{:016x}-{}{}", model.hex().substr(0, 16), hash, tokens.size(), kSuffix);
}

void touch(const std::string& path) {
  std::error_code ignored;
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
}

}  // namespace

PromptStore::PromptStore(std::string directory, uint64_t most_bytes, const ModelId& model, uint64_t most_waiting,
                         std::function<void()> written)
    : directory_(std::move(directory)),
      most_bytes_(most_bytes),
      model_(model),
      most_waiting_(most_waiting),
      written_(std::move(written)) {
  prepare_state_directory("the prompt cache", directory_);
  look_through();
  make_room();
  thread_ = std::thread([this] { run(); });
}

PromptStore::~PromptStore() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

/// Files of other models are not ours to read; damaged ones are left to make_room().
void PromptStore::look_through() {
  const std::string mine = model_.hex().substr(0, 16);
  for (const fs::directory_entry& file : fs::directory_iterator(directory_)) {
    const std::string name = file.path().filename().string();
    if (!name.ends_with(kSuffix) || !name.starts_with(mine)) continue;
    try {
      const SessionReader reader(file.path().string(), model_);
      entries_.push_back({file.path().string(), reader.tokens(), reader.bytes()});
    } catch (const Error& error) {
      log::verbose("a saved prompt is not used: {}", error.what());
    }
  }
}

PromptStore::Match PromptStore::find(std::span<const TokenId> prompt) const {
  const std::lock_guard lock(mutex_);
  Match best;
  for (const Entry& entry : entries_) {
    const size_t same = common_prefix(entry.tokens, prompt);
    // Of equally good ones the smallest is read soonest.
    if (same > best.length || (same == best.length && same > 0 && entry.tokens.size() < best.tokens)) {
      best = {same, entry.tokens.size(), entry.path};
    }
  }
  return best;
}

std::vector<TokenId> PromptStore::load(const Match& match, SequenceState& state) {
  const SessionReader reader(match.path, model_);
  reader.load(state);
  touch(match.path);
  return reader.tokens();
}

void PromptStore::forget(const Match& match) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [&](const Entry& entry) { return entry.path == match.path; });
  }
  std::error_code ignored;
  fs::remove(match.path, ignored);
}

void PromptStore::save(std::span<const TokenId> tokens, const SequenceState& state) {
  if (find(tokens).length + kWorthWriting > tokens.size()) return;
  const uint64_t bytes = state.saved_bytes();
  if (bytes > most_bytes_) {
    log::warn("a prompt of {} tokens is not saved: it takes more than --prompt-cache-mb allows", tokens.size());
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    if (!fits(bytes)) {
      log::warn("prompts come faster than {} takes them, so not all are saved", directory_);
      return;
    }
  }
  // Only this thread adds to what waits, so the room is still there.
  Work work{{tokens.begin(), tokens.end()}, state.save()};
  {
    const std::lock_guard lock(mutex_);
    waiting_ += work.state.size();
    queue_.push_back(std::move(work));
  }
  changed_.notify_all();
}

bool PromptStore::fits(uint64_t bytes) const {
  return queue_.empty() || (waiting_ <= most_waiting_ && bytes <= most_waiting_ - waiting_);
}

bool PromptStore::has_room(const SequenceState& state) const {
  const uint64_t bytes = state.saved_bytes();
  const std::lock_guard lock(mutex_);
  return fits(bytes);
}

void PromptStore::wait_for_room(const SequenceState& state) {
  const uint64_t bytes = state.saved_bytes();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return fits(bytes); });
}

uint64_t PromptStore::waiting_bytes() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

uint64_t PromptStore::bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t sum = 0;
  for (const Entry& entry : entries_) sum += entry.bytes;
  return sum;
}

void PromptStore::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return end_ || !queue_.empty(); });
    if (queue_.empty()) return;
    // It stays in the queue while it is written: its memory counts.
    const Work& work = queue_.front();
    lock.unlock();
    try {
      write(work);
    } catch (const std::exception& error) {
      log::warn("a prompt cannot be saved: {}", error.what());
    }
    lock.lock();
    waiting_ -= work.state.size();
    queue_.pop_front();
    changed_.notify_all();
    if (!written_) continue;
    lock.unlock();
    written_();
    lock.lock();
  }
}

void PromptStore::write(const Work& work) {
  const std::string path = (fs::path(directory_) / file_name(model_, work.tokens)).string();
  const uint64_t bytes = write_session(path, model_, work.tokens, work.state);
  std::vector<std::string> covered;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [&](const Entry& entry) {
      if (common_prefix(entry.tokens, work.tokens) < entry.tokens.size()) return false;
      if (entry.path != path) covered.push_back(entry.path);
      return true;
    });
    entries_.push_back({path, work.tokens, bytes});
  }
  for (const std::string& old : covered) {
    std::error_code ignored;
    fs::remove(old, ignored);
  }
  make_room();
}

/// Removes the files unused for longest, of whatever model, until the rest take no more than is allowed.
void PromptStore::make_room() {
  struct File {
    fs::file_time_type used;
    std::string path;
    uint64_t bytes;
  };
  std::vector<File> files;
  uint64_t sum = 0;
  std::error_code ignored;
  for (const fs::directory_entry& file : fs::directory_iterator(directory_, ignored)) {
    if (!file.path().filename().string().ends_with(kSuffix)) continue;
    const uint64_t bytes = file.file_size(ignored);
    if (ignored) continue;  // another server removed it
    const fs::file_time_type used = file.last_write_time(ignored);
    if (ignored) continue;
    files.push_back({used, file.path().string(), bytes});
    sum += bytes;
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.used < b.used; });
  for (const File& file : files) {
    if (sum <= most_bytes_) return;
    sum -= file.bytes;
    forget({0, 0, file.path});
  }
}

}  // namespace moetier
