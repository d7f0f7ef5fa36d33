#include "tests/e2e/chaos/command.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace baton {

absl::Status RunCommand(const std::vector<std::string>& args) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return absl::InternalError("pipe2 failed");
  std::vector<std::string> copy = args;
  std::vector<char*> argv;
  for (std::string& arg : copy) argv.push_back(arg.data());
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string output;
  char chunk[1024];
  for (ssize_t got = 0; (got = ::read(ends[0], chunk, sizeof(chunk))) > 0;) {
    output.append(chunk, static_cast<size_t>(got));
  }
  ::close(ends[0]);
  int status = -1;
  if (pid > 0) ::waitpid(pid, &status, 0);
  if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrFormat("%s: status %d: %s", absl::StrJoin(args, " "), status, output));
}

}  // namespace baton
