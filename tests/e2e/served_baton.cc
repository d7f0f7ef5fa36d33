#include "tests/e2e/served_baton.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace baton {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(20);  // interval between polls of processes

}  // namespace

ServedBaton::ServedBaton(pid_t pid, int output)
    : pid_(pid), output_(output), reader_([this] { ReadOutput(); }) {}

absl::StatusOr<std::unique_ptr<ServedBaton>> ServedBaton::Start(std::vector<std::string> args,
                                                                absl::Duration limit) {
  return Run("serve", std::move(args), "ready  ", limit);
}

absl::StatusOr<std::unique_ptr<ServedBaton>> ServedBaton::StartRouter(
    std::vector<std::string> args) {
  return Run("router", std::move(args), "listening on ", absl::Seconds(60));
}

absl::StatusOr<std::unique_ptr<ServedBaton>> ServedBaton::StartWorker(
    const std::string& role, std::vector<std::string> args) {
  return Run(role, std::move(args), "metrics on ", absl::Seconds(60));
}

absl::StatusOr<std::unique_ptr<ServedBaton>> ServedBaton::Run(const std::string& command,
                                                              std::vector<std::string> args,
                                                              const std::string& ready_mark,
                                                              absl::Duration limit) {
  args.insert(args.begin(), {BATON_BINARY, command});
  const bool is_worker = command == "prefill" || command == "decode";
  if (!is_worker && std::find(args.begin(), args.end(), "--port") == args.end())
    args.insert(args.end(), {"--port", "0"});
  int pipe_ends[2];
  if (::pipe2(pipe_ends, O_CLOEXEC) != 0) return absl::InternalError("pipe2 failed");
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setpgid(0, 0);  // so that a test can kill all processes of the group
    ::dup2(pipe_ends[1], STDOUT_FILENO);
    ::dup2(pipe_ends[1], STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(pipe_ends[1]);
  if (pid < 0) return absl::InternalError("fork failed");
  std::unique_ptr<ServedBaton> served(new ServedBaton(pid, pipe_ends[0]));
  const absl::Time deadline = absl::Now() + limit;
  while (absl::Now() < deadline) {
    const std::string log = served->log();
    const size_t ready = log.find(ready_mark);
    if (ready != std::string::npos && log.find('\n', ready) != std::string::npos) {
      const std::string line = log.substr(ready, log.find('\n', ready) - ready);
      const size_t address = line.find("://");
      if (address == std::string::npos) return served;  // on a Unix socket alone
      ASSIGN_OR_RETURN(
          served->url_,
          HttpUrl::Parse("http" +
                         line.substr(address, line.find_first_of(" ,", address) - address)));
      return served;
    }
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) == pid) {
      served->reaped_ = true;
      served->reader_.join();
      return absl::AbortedError(
          absl::StrFormat("baton ended with status %d:\n%s", status, served->log()));
    }
    absl::SleepFor(kLook);
  }
  return absl::DeadlineExceededError("no ready line:\n" + served->log());
}

ServedBaton::~ServedBaton() {
  ::kill(-pid_, SIGKILL);
  if (!reaped_) ::waitpid(pid_, nullptr, 0);
  if (reader_.joinable()) reader_.join();
  ::close(output_);
}

void ServedBaton::ReadOutput() {
  char chunk[4096];
  ssize_t got = 0;
  while ((got = ::read(output_, chunk, sizeof(chunk))) > 0) {
    std::lock_guard lock(mutex_);
    log_.append(chunk, static_cast<size_t>(got));
  }
}

std::string ServedBaton::LogFrom(size_t offset) const {
  std::lock_guard lock(mutex_);
  return log_.substr(std::min(offset, log_.size()));
}

int ServedBaton::control_port() const {
  const std::string mark = "workers dial port ", text = log();
  const size_t at = text.find(mark);
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + mark.size());
}

bool ServedBaton::WaitForLog(const std::string& text, absl::Duration limit) const {
  const absl::Time deadline = absl::Now() + limit;
  do {
    if (log().find(text) != std::string::npos) return true;
    absl::SleepFor(kLook);
  } while (absl::Now() < deadline);
  return false;
}

std::vector<pid_t> ServedBaton::Children() const {
  std::ifstream file(absl::StrFormat("/proc/%d/task/%d/children", pid_, pid_));
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

pid_t ServedBaton::Child(const std::string& word) const {
  for (const pid_t child : Children()) {
    std::ifstream file(absl::StrFormat("/proc/%d/cmdline", child));
    std::string argument;
    while (std::getline(file, argument, '\0')) {
      if (argument.find(word) != std::string::npos) return child;
    }
  }
  return 0;
}

absl::StatusOr<int> ServedBaton::Terminate(absl::Duration limit) {
  ::kill(pid_, SIGTERM);
  const absl::StatusOr<int> status = WaitForEnd(limit);
  if (status.ok()) return status;
  return absl::DeadlineExceededError("still running after SIGTERM:\n" + log());
}

absl::StatusOr<int> ServedBaton::WaitForEnd(absl::Duration limit) {
  const absl::Time deadline = absl::Now() + limit;
  int status = 0;
  while (absl::Now() < deadline) {
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      reaped_ = true;
      reader_.join();  // all writers are gone: the pipe has ended
      return status;
    }
    absl::SleepFor(kLook);
  }
  return absl::DeadlineExceededError("still running:\n" + log());
}

}  // namespace baton
