#include "cli/process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "moetier-test-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::write(const std::string& name, const std::string& text) const {
  std::ofstream(file(name), std::ios::binary) << text;
  return file(name);
}

namespace {

int exit_code(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// In the child: runs the program with these descriptors and never returns.
[[noreturn]] void run_program(const std::vector<std::string>& arguments, int in, const std::string& out,
                              const std::string& err) {
  std::vector<std::string> words = {MOETIER_BINARY};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const auto redirect = [](const std::string& path, int to) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ::dup2(fd, to) < 0) ::_exit(126);
  };
  if (in < 0 || ::dup2(in, STDIN_FILENO) < 0) ::_exit(126);
  redirect(out, STDOUT_FILENO);
  redirect(err, STDERR_FILENO);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

}  // namespace

ProcessResult run_moetier(const std::vector<std::string>& arguments, const std::string& input,
                          const std::vector<std::string>& environment) {
  const TemporaryFolder folder;
  const std::string in = folder.write("in", input), out = folder.file("out"), err = folder.file("err");
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    for (const std::string& pair : environment) {
      const size_t equals = pair.find('=');
      ::setenv(pair.substr(0, equals).c_str(), pair.substr(equals + 1).c_str(), 1);
    }
    run_program(arguments, ::open(in.c_str(), O_RDONLY), out, err);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child) throw std::runtime_error("waitpid failed");
  ProcessResult result;
  result.code = exit_code(status);
  result.out = slurp(out);
  result.err = slurp(err);
  return result;
}

RunningMoetier::RunningMoetier(const std::vector<std::string>& arguments)
    : out_(folder_.write("out", "")), err_(folder_.write("err", "")) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
  input_ = ends[1];
  child_ = ::fork();
  if (child_ < 0) throw std::runtime_error("fork failed");
  if (child_ == 0) {
    ::signal(SIGINT, SIG_DFL);  // a test that runs in a script's background ignores it
    run_program(arguments, ends[0], out_, err_);
  }
  ::close(ends[0]);
}

RunningMoetier::~RunningMoetier() {
  close_input();
  if (ended()) return;
  ::kill(child_, SIGKILL);
  ::waitpid(child_, &status_, 0);
}

void RunningMoetier::write(const std::string& text) const {
  if (::write(input_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw std::runtime_error("the program takes no input");
}

void RunningMoetier::close_input() {
  if (input_ >= 0) ::close(input_);
  input_ = -1;
}

bool RunningMoetier::ended() {
  if (!ended_) ended_ = ::waitpid(child_, &status_, WNOHANG) == child_;
  return ended_;
}

bool RunningMoetier::wait_for(const std::string& path, const std::string& text, double seconds) {
  for (int tries = static_cast<int>(seconds * 500); tries > 0; --tries) {
    const bool over = ended();  // before the look: its last words count
    if (slurp(path).find(text) != std::string::npos) return true;
    if (over) return false;
    ::usleep(2000);
  }
  return false;
}

bool RunningMoetier::wait_until_caught(int number, double seconds) {
  for (int tries = static_cast<int>(seconds * 500); tries > 0 && !ended(); --tries) {
    const std::string status = slurp("/proc/" + std::to_string(child_) + "/status");
    const size_t at = status.find("SigCgt:");
    if (at != std::string::npos && (std::stoull(status.substr(at + 7), nullptr, 16) >> (number - 1) & 1) != 0)
      return true;
    ::usleep(2000);
  }
  return false;
}

void RunningMoetier::signal(int number) const {
  ::kill(child_, number);
}

ProcessResult RunningMoetier::finish(double seconds) {
  for (int tries = static_cast<int>(seconds * 500); tries > 0 && !ended(); --tries) ::usleep(2000);
  ProcessResult result;
  if (ended()) result.code = exit_code(status_);
  result.out = slurp(out_);
  result.err = slurp(err_);
  return result;
}
