#include "io/mapped_faults.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace moetier {

/// One watched mapping. The handler reads it without a lock while others may be changing it: `version` is odd during a
/// change, and a reader that saw it change looks away. The slot of the mapping that faults never changes meanwhile,
/// since whoever reads the mapping keeps it watched.
struct MappedFaults::Slot {
  std::atomic<uint32_t> version{0};
  std::atomic<uintptr_t> begin{0}, end{0};  // end 0: free
  std::atomic<bool> damaged{false};

  void set(uintptr_t first, uintptr_t last) {
    ++version;
    begin = first;
    end = last;
    damaged = false;
    ++version;
  }
  /// Where the mapping is, if it holds `address`; else an empty range.
  std::pair<uintptr_t, uintptr_t> around(uintptr_t address) const {
    const uint32_t before = version;
    const uintptr_t first = begin, last = end;
    const bool steady = before % 2 == 0 && version == before;
    return steady && address >= first && address < last ? std::pair(first, last) : std::pair<uintptr_t, uintptr_t>();
  }
};

/// What the handler knows. The handler touches atomics, mmap() and sigaction() and nothing else.
struct MappedFaults::Table {
  static std::array<Slot, kMost> slots;
  static std::atomic<size_t> ever_used;  // slots from here on never were
  static std::mutex mutex;               // of those who change slots; the handler does not take it
  static size_t watched;
  static bool installed;
  static struct sigaction previous;  // before ours; written only while ours is not installed

  static void install();
  static void uninstall() noexcept;
  static bool replace(uintptr_t address);
  static void pass_on(int signal, siginfo_t* info, void* context);
  static void handle(int signal, siginfo_t* info, void* context);
};

static_assert(std::atomic<uintptr_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

std::array<MappedFaults::Slot, MappedFaults::kMost> MappedFaults::Table::slots;
std::atomic<size_t> MappedFaults::Table::ever_used{0};
std::mutex MappedFaults::Table::mutex;
size_t MappedFaults::Table::watched = 0;
bool MappedFaults::Table::installed = false;
struct sigaction MappedFaults::Table::previous;

/// Puts zeros in the place of the mapping that holds `address`; false if none is watched there.
bool MappedFaults::Table::replace(uintptr_t address) {
  for (size_t i = 0; i < ever_used; ++i) {
    const auto [begin, end] = slots[i].around(address);
    if (begin == end) continue;
    slots[i].damaged = true;
    // All of it and not the page alone: nothing of it will be used again, and a file of millions of pages would fault
    // as often.
    return ::mmap(reinterpret_cast<void*>(begin), end - begin, PROT_READ,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
  }
  return false;
}

/// To the handler before ours, as if ours did not exist.
void MappedFaults::Table::pass_on(int signal, siginfo_t* info, void* context) {
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
    return;
  }
  const bool sent = info->si_code <= 0;  // by kill() and the like, not by a fault
  if (previous.sa_handler == SIG_IGN && sent) return;
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
    return;
  }
  // The default action: a fault happens again on return, a signal that was sent has to be sent again.
  ::sigaction(signal, &previous, nullptr);
  if (sent) ::raise(signal);
}

void MappedFaults::Table::handle(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const bool fault = info->si_code > 0;
  if (!fault || !replace(reinterpret_cast<uintptr_t>(info->si_addr))) pass_on(signal, info, context);
  errno = error;
}

void MappedFaults::Table::install() {
  if (installed) return;
  // In two steps: the handler may be called as soon as it is installed.
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | SA_RESTART;
  sigemptyset(&action.sa_mask);
  if (::sigaction(SIGBUS, nullptr, &previous) != 0 || ::sigaction(SIGBUS, &action, nullptr) != 0) {
    fail("the handler for files that are cut short cannot be installed: {}", std::strerror(errno));
  }
  installed = true;
}

void MappedFaults::Table::uninstall() noexcept {
  struct sigaction current {};
  // A handler installed after ours may call it, and then ours has to stay.
  if (::sigaction(SIGBUS, nullptr, &current) == 0 && (current.sa_flags & SA_SIGINFO) != 0 &&
      current.sa_sigaction == handle) {
    ::sigaction(SIGBUS, &previous, nullptr);
    installed = false;
  }
}

MappedFaults::MappedFaults(std::span<const std::byte> mapping) {
  if (mapping.empty()) return;
  const auto begin = reinterpret_cast<uintptr_t>(mapping.data());
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  if (begin % page != 0) fail("a mapping to watch begins in the middle of a page");
  const std::lock_guard lock(Table::mutex);
  size_t i = 0;
  while (i < kMost && Table::slots[i].end != 0) ++i;
  if (i == kMost) fail("{} mapped files are open, and no more can be watched for faults: close models", kMost);
  if (Table::watched == 0) Table::install();
  ++Table::watched;
  slot_ = &Table::slots[i];
  slot_->set(begin, begin + (mapping.size() + page - 1) / page * page);
  if (i == Table::ever_used) ++Table::ever_used;
}

MappedFaults::~MappedFaults() {
  if (slot_ == nullptr) return;
  const std::lock_guard lock(Table::mutex);
  slot_->set(0, 0);
  if (--Table::watched == 0) Table::uninstall();
}

MappedFaults::MappedFaults(MappedFaults&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}

bool MappedFaults::damaged() const {
  return slot_ != nullptr && slot_->damaged;
}

}  // namespace moetier
