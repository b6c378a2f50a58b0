// A read engine whose reads can be made to fail, to come late and to come in another order.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "io/read_engine.h"

namespace moetier::testing_support {

/// Reads of `file` that touch [begin, end) answer `error`, the first `times` of them after letting `after` pass.
struct ReadFault {
  int error = EIO;
  int file = 0;
  uint64_t begin = 0, end = std::numeric_limits<uint64_t>::max();
  int after = 0;
  int times = std::numeric_limits<int>::max();
};

struct FaultyOptions {
  uint64_t seed = 1;
  int hold_polls = 0;                  ///< each result is kept back for 0 to this many calls of poll() (seeded)
  std::chrono::microseconds delay{0};  ///< slept by wait() before it gives something
  bool shuffle = false;                ///< results that can be given are given in a seeded order
  size_t most_at_once = static_cast<size_t>(-1);  ///< results given by one call
  std::function<void()> on_wait = {};             ///< called when somebody waits, while reads are outstanding
  /// What a read will land on is overwritten when it is submitted, so that bytes used before they came are seen.
  bool scribble = true;
};

/// Wraps another engine. With the same seed and the same calls, what has come is given in the same order.
class FaultyReads final : public ReadEngine {
 public:
  explicit FaultyReads(std::unique_ptr<ReadEngine> inner, FaultyOptions options = {})
      : inner_(std::move(inner)), options_(options), random_(options.seed) {}

  void add(const ReadFault& fault) { faults_.push_back(fault); }
  void clear_faults() { faults_.clear(); }
  const std::vector<ReadRequest>& seen() const { return seen_; }  ///< every request so far, as submitted
  void forget_seen() { seen_.clear(); }
  int injected() const { return injected_; }  ///< errors so far
  bool registered() const { return registered_; }

  std::string_view name() const override { return inner_->name(); }
  int depth() const override { return inner_->depth(); }

  void submit(std::span<const ReadRequest> requests) override {
    std::vector<ReadRequest> forwarded;
    for (ReadRequest request : requests) {
      seen_.push_back(request);
      if (options_.scribble && request.bytes != 0) std::memset(request.to, 0xdb, request.bytes);
      const int error = fault_of(request);
      if (error != 0) {
        ++injected_;
        hold({request.tag, error});
        continue;
      }
      const size_t index = take_index();
      tags_[index] = request.tag;
      request.tag = index;
      forwarded.push_back(request);
    }
    inner_->submit(forwarded);
  }

  size_t poll(std::span<ReadResult> results) override {
    collect(false);
    for (Held& held : held_) held.polls = std::max(held.polls - 1, 0);
    return give(results);
  }

  size_t wait(std::span<ReadResult> results) override {
    if (results.empty() || outstanding() == 0) return 0;
    if (options_.on_wait) options_.on_wait();
    if (options_.delay.count() > 0) std::this_thread::sleep_for(options_.delay);
    collect(held_.empty());
    if (const size_t n = give(results)) return n;
    held_[random_.next_starstar() % held_.size()].polls = 0;
    return give(results);
  }

  size_t outstanding() const override { return inner_->outstanding() + held_.size(); }

  void cancel() override {
    inner_->cancel();
    held_.clear();
    free_.clear();
    for (size_t i = 0; i < tags_.size(); ++i) free_.push_back(i);
  }

  std::string register_memory(std::span<const std::span<std::byte>> regions) override {
    registered_ = true;
    return inner_->register_memory(regions);
  }
  void unregister_memory() override {
    registered_ = false;
    inner_->unregister_memory();
  }
  ReadMeters meters() const override { return inner_->meters(); }

 private:
  struct Held {
    ReadResult result;
    int polls = 0;
  };

  int fault_of(const ReadRequest& request) {
    for (ReadFault& fault : faults_) {
      const bool touches = request.file == fault.file && request.offset < fault.end &&
                           (request.offset >= fault.begin || request.bytes > fault.begin - request.offset);
      if (!touches || fault.times == 0) continue;
      if (fault.after > 0) {
        --fault.after;
        continue;
      }
      --fault.times;
      return fault.error;
    }
    return 0;
  }

  size_t take_index() {
    if (free_.empty()) {
      tags_.push_back(0);
      return tags_.size() - 1;
    }
    const size_t index = free_.back();
    free_.pop_back();
    return index;
  }

  void hold(ReadResult result) {
    const int most = options_.hold_polls;
    held_.push_back(
        {result, most > 0 ? static_cast<int>(random_.next_starstar() % static_cast<uint64_t>(most + 1)) : 0});
  }

  /// Takes what has come from the inner engine.
  void collect(bool block) {
    ReadResult come[16];
    for (size_t n = block ? inner_->wait(come) : inner_->poll(come); n > 0; n = inner_->poll(come)) {
      for (size_t i = 0; i < n; ++i) {
        const auto index = static_cast<size_t>(come[i].tag);
        free_.push_back(index);
        hold({tags_[index], come[i].error});
      }
    }
  }

  size_t give(std::span<ReadResult> results) {
    if (options_.shuffle) {
      for (size_t i = held_.size(); i > 1; --i) std::swap(held_[i - 1], held_[random_.next_starstar() % i]);
    }
    const size_t most = std::min(results.size(), options_.most_at_once);
    size_t given = 0, kept = 0;
    for (const Held& held : held_) {
      if (held.polls == 0 && given < most) {
        results[given++] = held.result;
      } else {
        held_[kept++] = held;
      }
    }
    held_.resize(kept);
    return given;
  }

  std::unique_ptr<ReadEngine> inner_;
  FaultyOptions options_;
  Xoshiro256 random_;
  std::vector<ReadFault> faults_;
  std::vector<ReadRequest> seen_;
  std::vector<uint64_t> tags_;  ///< the caller's, by the tag the inner engine gets
  std::vector<size_t> free_;    ///< indexes of tags_
  std::vector<Held> held_;
  int injected_ = 0;
  bool registered_ = false;
};

}  // namespace moetier::testing_support
