#include "server/process/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace baton {
namespace {

constexpr int kStartDescriptor = 3, kReportDescriptor = 4;
constexpr size_t kMaxPartialLine = 4096;
// Settings of UCX that it reads while it is loaded, before any code of ours runs: no patching of
// memory calls, no signal handlers of its own.
constexpr const char* kUcxSettings[] = {"UCX_MEM_EVENTS=n", "UCX_HANDLE_ERRORS=none"};

absl::Status Errno(const char* what) {
  return absl::InternalError(absl::StrCat(what, " failed: ", std::strerror(errno)));
}

absl::StatusOr<int> MemoryFile(const std::string& text) {
  const int file = memfd_create("baton-start", MFD_CLOEXEC);
  if (file < 0) return Errno("memfd_create");
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(file, text.data() + at, text.size() - at);
    if (n <= 0) {
      ::close(file);
      return Errno("writing the start order");
    }
    at += static_cast<size_t>(n);
  }
  ::lseek(file, 0, SEEK_SET);
  return file;
}

// Runs in the child, between fork and exec: system calls only.
[[noreturn]] void Become(const char* program, char* const* argv, char* const* environment,
                         int start, int report, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it died before the line above
  ::setpgid(0, 0);  // Ctrl-C and kills of our group are the supervisor's to hand on, in order
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // Out of the way first: either may sit on a number the other wants. dup2 clears close-on-exec.
  const int start_copy = ::fcntl(start, F_DUPFD_CLOEXEC, 10);
  const int report_copy = ::fcntl(report, F_DUPFD_CLOEXEC, 10);
  ::dup2(start_copy, kStartDescriptor);
  ::dup2(report_copy, kReportDescriptor);
  ::execve(program, argv, environment);
  ::_exit(127);
}

// Our own, with UCX's settings in place of any that are there.
std::vector<std::string> ChildEnvironment() {
  std::vector<std::string> environment(std::begin(kUcxSettings), std::end(kUcxSettings));
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const bool is_ours = std::any_of(
        std::begin(kUcxSettings), std::end(kUcxSettings),
        [name](const char* setting) { return std::string_view(setting).starts_with(name); });
    if (!is_ours) environment.emplace_back(text);
  }
  return environment;
}

std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::string& program,
                                                 const std::string& subcommand,
                                                 const LaunchSpec& order) {
  ASSIGN_OR_RETURN(const int start, MemoryFile(order.Text()));
  std::array<int, 2> report{};
  if (::pipe2(report.data(), O_CLOEXEC) != 0) {
    ::close(start);
    return Errno("pipe2");
  }
  std::vector<std::string> args = {"baton",
                                   subcommand,
                                   "--start-descriptor",
                                   absl::StrCat(kStartDescriptor),
                                   "--report-descriptor",
                                   absl::StrCat(kReportDescriptor)};
  const std::vector<char*> argv = Pointers(&args);
  std::vector<std::string> environment_texts = ChildEnvironment();
  const std::vector<char*> environment = Pointers(&environment_texts);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) Become(program.c_str(), argv.data(), environment.data(), start, report[1], parent);
  ::close(start);
  ::close(report[1]);
  if (pid < 0) {
    ::close(report[0]);
    return Errno("fork");
  }
  ::fcntl(report[0], F_SETFL, O_NONBLOCK);
  return ChildProcess(pid, report[0]);
}

ChildProcess::~ChildProcess() {
  if (report_ >= 0) ::close(report_);
}
ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(other.pid_),
      report_(std::exchange(other.report_, -1)),
      partial_line_(std::move(other.partial_line_)) {}
ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(report_, other.report_);
  std::swap(partial_line_, other.partial_line_);
  return *this;
}

std::vector<StartReport> ChildProcess::ReadReports() {
  std::vector<StartReport> reports;
  char chunk[4096];
  ssize_t n = 0;
  while (report_ >= 0 && (n = ::read(report_, chunk, sizeof chunk)) > 0) {
    partial_line_.append(chunk, static_cast<size_t>(n));
    size_t end = 0;
    while ((end = partial_line_.find('\n')) != std::string::npos) {
      if (auto report = ParseReportLine(std::string_view(partial_line_).substr(0, end))) {
        reports.push_back(*report);
      }
      partial_line_.erase(0, end + 1);
    }
    if (partial_line_.size() > kMaxPartialLine) partial_line_.clear();
  }
  if (n == 0 && report_ >= 0) {
    ::close(report_);
    report_ = -1;
  }
  return reports;
}

void ChildProcess::Signal(int signal) const { ::kill(pid_, signal); }

}  // namespace baton
