#include "cli/self_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

extern char** environ;

namespace moetier::cli {

std::string run_self(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"moetier"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int pipe_ends[2] = {-1, -1};
  if (::pipe(pipe_ends) != 0) fail("cannot make a pipe: {}", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addclose(&actions, pipe_ends[0]);
  ::posix_spawn_file_actions_addclose(&actions, pipe_ends[1]);
  pid_t child = -1;
  const int spawned = ::posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(pipe_ends[1]);
  std::string out;
  if (spawned == 0) {
    char chunk[1 << 16];
    ssize_t n = 0;
    while ((n = ::read(pipe_ends[0], chunk, sizeof chunk)) > 0 || (n < 0 && errno == EINTR)) {
      if (n > 0) out.append(chunk, static_cast<size_t>(n));
    }
  }
  ::close(pipe_ends[0]);
  if (spawned != 0) fail("cannot start this program anew: {}", std::strerror(spawned));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    fail("'moetier {}' ended with {} {}", fmt::join(arguments, " "), WIFEXITED(status) ? "code" : "signal",
         WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
  }
  return out;
}

}  // namespace moetier::cli
