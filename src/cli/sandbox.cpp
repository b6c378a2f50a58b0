#include "cli/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"

namespace moetier::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kWrites = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                             LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                             LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                             LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;

#if defined(__x86_64__)
constexpr uint32_t kArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArch = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kArch = 0;
#endif

std::string find_python() {
  for (const char* const path : {"/usr/bin/python3", "/usr/local/bin/python3", "/bin/python3"}) {
    if (::access(path, X_OK) == 0) return path;
  }
  return "";
}

// What follows runs in the child between fork and exec: system calls only.

bool write_only_in(const char* folder) {
  landlock_ruleset_attr rules{};
  rules.handled_access_fs = kWrites;
  const auto ruleset = static_cast<int>(::syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0));
  if (ruleset < 0) return false;
  landlock_path_beneath_attr beneath{};
  beneath.allowed_access = kWrites;
  beneath.parent_fd = ::open(folder, O_PATH | O_CLOEXEC);
  const bool good = beneath.parent_fd >= 0 &&
                    ::syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) == 0 &&
                    ::syscall(SYS_landlock_restrict_self, ruleset, 0) == 0;
  ::close(beneath.parent_fd);
  ::close(ruleset);
  return good;
}

#if defined(SYS_fork) && defined(SYS_vfork)
constexpr uint32_t kFork = SYS_fork, kVfork = SYS_vfork;
#else
constexpr uint32_t kFork = ~0U, kVfork = ~0U;  // there are none
#endif

/// Sockets, signals to others, debugging and further processes (threads may be) are refused.
bool refuse_calls() {
  if (kArch == 0) return false;
  constexpr int kDeny = 14, kUnknown = 15, kAllow = 16;  // where the answers stand
  const std::array<sock_filter, 17> filter = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArch, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, kDeny - 5, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_kill, kDeny - 6, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, kDeny - 7, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kFork, kDeny - 8, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kVfork, kDeny - 9, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, kUnknown - 10, 0),  // then clone is tried
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, kAllow - 14, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{static_cast<unsigned short>(filter.size()), const_cast<sock_filter*>(filter.data())};
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

void limit(int what, unsigned long most) {
  const rlimit both{most, most};
  ::setrlimit(what, &both);
}

[[noreturn]] void become_python(const char* python, const char* folder, const char* script, int output, bool shut_in,
                                const SandboxLimits& limits) {
  ::setsid();
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::close_range(3, ~0U, 0);
  limit(RLIMIT_CPU, static_cast<unsigned long>(limits.cpu_seconds));
  limit(RLIMIT_AS, limits.memory_bytes);
  limit(RLIMIT_FSIZE, limits.file_bytes);
  limit(RLIMIT_NOFILE, 64);
  limit(RLIMIT_CORE, 0);
  const bool good = ::chdir(folder) == 0 && ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                    (!shut_in || (write_only_in(folder) && refuse_calls()));
  if (!good) ::_exit(126);
  const char* const argv[] = {python, "-I", "-S", "-B", script, nullptr};
  const char* const environment[] = {"PATH=/usr/bin:/bin", "LANG=C.UTF-8", nullptr};
  ::execve(python, const_cast<char* const*>(argv), const_cast<char* const*>(environment));
  ::_exit(127);
}

/// A folder that is removed with it.
class Folder {
 public:
  Folder() : path_((fs::temp_directory_path() / "moetier-answer-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) fail("cannot make a folder for an answer: {}", std::strerror(errno));
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Reads until the end or the deadline; false at the deadline.
bool read_output(int fd, Clock::time_point deadline, std::string& output) {
  constexpr size_t kMost = 1 << 16;
  char chunk[4096];
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd wanted{fd, POLLIN, 0};
    const int ready = ::poll(&wanted, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t n = ::read(fd, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    if (output.size() < kMost) output.append(chunk, static_cast<size_t>(n));
  }
}

std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  const size_t begin = text.rfind('\n');
  return text.substr(begin == std::string::npos ? 0 : begin + 1).substr(0, 200);
}

}  // namespace

std::string sandbox_problem() {
  if (find_python().empty()) return "there is no python3 to run answers with";
  if (::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) < 1)
    return "this kernel has no Landlock, which keeps answers from writing to your files";
  if (kArch == 0) return "calls cannot be refused on this kind of processor";
  return "";
}

SandboxResult run_python(const std::string& program, bool shut_in, const SandboxLimits& limits) {
  const std::string python = find_python();
  if (python.empty()) fail("there is no python3 to run answers with");
  const Folder folder;
  const std::string script = folder.path() + "/answer.py";
  {
    AtomicFile file(script);
    file.write(program);
    file.commit();
  }
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) fail("cannot make a pipe: {}", std::strerror(errno));
  const pid_t child = ::fork();
  if (child == 0) become_python(python.c_str(), folder.path().c_str(), script.c_str(), ends[1], shut_in, limits);
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    fail("cannot start {}: {}", python, std::strerror(errno));
  }
  std::string output;
  const bool ended = read_output(ends[0], Clock::now() + std::chrono::seconds(limits.wall_seconds), output);
  ::kill(-child, SIGKILL);  // whatever it left behind, too
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  SandboxResult result;
  result.passed = ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (result.passed) return result;
  if (!ended) {
    result.why = fmt::format("it was stopped after {} s", limits.wall_seconds);
  } else if (WIFSIGNALED(status)) {
    result.why = fmt::format("it was ended by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  } else if (WEXITSTATUS(status) == 126 && output.empty()) {
    result.why = "it could not be shut in";
  } else {
    result.why = last_line(output);
    if (result.why.empty()) result.why = fmt::format("it ended with code {}", WEXITSTATUS(status));
  }
  return result;
}

}  // namespace moetier::cli
