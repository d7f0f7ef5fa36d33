#include "bench/relay/rank_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace baton {

absl::StatusOr<std::unique_ptr<RankProcess>> RankProcess::Start(const std::string& program) {
  std::array<int, 2> in{}, out{};
  if (::pipe2(in.data(), O_CLOEXEC) != 0) return absl::InternalError("pipe2 failed");
  if (::pipe2(out.data(), O_CLOEXEC) != 0) {
    ::close(in[0]);
    ::close(in[1]);
    return absl::InternalError("pipe2 failed");
  }
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, out[1], kAnswerDescriptor);
  // Libraries may write to stdout, so stdout goes to stderr.
  ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  std::array<std::string, 3> args = {"baton", "bench", "relay-rank"};
  const std::array<char*, 4> argv = {args[0].data(), args[1].data(), args[2].data(), nullptr};
  pid_t pid = -1;
  const int failed =
      ::posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), ::environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  if (failed != 0) {
    ::close(in[1]);
    ::close(out[0]);
    return absl::InternalError(absl::StrCat(program, " does not start: ", std::strerror(failed)));
  }
  return std::unique_ptr<RankProcess>(new RankProcess(pid, in[1], out[0]));
}

RankProcess::~RankProcess() {
  ::close(input_);
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  ::close(output_);
}

absl::Status RankProcess::Send(const std::string& line) {
  const std::string text = line + "\n";
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(input_, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return absl::UnavailableError("a process of the relay benchmark has ended");
    at += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> RankProcess::Hear(double seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point until =
      Clock::now() + std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6));
  while (true) {
    const size_t end = partial_.find('\n');
    if (end != std::string::npos) {
      std::string line = partial_.substr(0, end);
      partial_.erase(0, end + 1);
      return line;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    pollfd ready{.fd = output_, .events = POLLIN, .revents = 0};
    const int n = ::poll(&ready, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) {
      return absl::DeadlineExceededError(
          absl::StrCat("a process of the relay benchmark said nothing for ", seconds, " s"));
    }
    char chunk[4096];
    const ssize_t got = ::read(output_, chunk, sizeof chunk);
    if (got <= 0) {
      return absl::UnavailableError(
          "a process of the relay benchmark has ended; what it said is above");
    }
    partial_.append(chunk, static_cast<size_t>(got));
  }
}

}  // namespace baton
