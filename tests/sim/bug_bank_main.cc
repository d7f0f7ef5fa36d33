// baton_bug_bank: plants one bug after the other in the production cores and lets the simulation
// look for it. Each bug runs in a process of its own, for it may end in a failed CHECK.
//   baton_bug_bank [--seeds N] [--jobs N] [BUG NUMBER...]     prints a table for RELIABILITY.md
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/log.h"
#include "common/planted_bug.h"
#include "tests/sim/world.h"

namespace baton::sim {
namespace {

constexpr unsigned kHangSeconds = 60;  // of one seed

struct BugRow {
  PlantedBug bug;
  const char* text;
};
constexpr BugRow kBugs[] = {
    {PlantedBug::kCrcNotChecked, "a damaged chunk counts as verified"},
    {PlantedBug::kLostChunkCounts, "a chunk whose connection broke under it counts as verified"},
    {PlantedBug::kPagesBackUnderWrite, "an aborted handoff's pages go back with receives posted"},
    {PlantedBug::kEndUnderRead, "a handoff ends while the link still reads its pages"},
    {PlantedBug::kSlotBackEarly, "a bounce slot is used again before it was read"},
    {PlantedBug::kPromiseKept, "an aborted handoff's promise is never released"},
    {PlantedBug::kBoundPagesLost, "an aborted handoff's pages never come back"},
    {PlantedBug::kWaitsAfterAbort, "an aborted handoff stays in the queue for room"},
    {PlantedBug::kPromisesPromptOnly, "a promise checks room for the prompt only"},
    {PlantedBug::kSinksOfLostPeerStay, "handoffs from a lost peer are never given up"},
    {PlantedBug::kLateKvDropped, "pages of KV that comes after its cancel are forgotten"},
    {PlantedBug::kOrphansKept, "no deadline for KV whose request never comes"},
    {PlantedBug::kCancelsEveryone, "cancelling one request cancels all on the worker"},
    {PlantedBug::kRowKeepsPages, "a row that ends by a stop token keeps its pages"},
    {PlantedBug::kTrimsTooMuch, "a page is given back that the window still reaches"},
    {PlantedBug::kTrimsShared, "planes are given back that another holder of the page reads"},
    {PlantedBug::kCachedBeforeComputed, "pages are found in the cache before they are computed"},
    {PlantedBug::kAnnouncesBeforeCompute, "layers are announced before they are computed"},
    {PlantedBug::kLastPageNotSent, "the last, partial page is not sent"},
    {PlantedBug::kPagesBackAtCancel, "a cancelled prompt's pages go back while they are sent"},
    {PlantedBug::kFailureEndsAll, "one failed handoff ends every prompt of its worker"},
    {PlantedBug::kPromiseAfterNoRoom, "a promise that follows NO_ROOM is not heard"},
    {PlantedBug::kNeverAges, "short prompts pass a long one for ever"},
    {PlantedBug::kAnnouncedUnprojected,
     "a slice's first layer is announced before it is projected"},
    {PlantedBug::kPartNotPushed, "a head does not hand on the last page of its part"},
    {PlantedBug::kInflowAssumed, "a layer is finished before that layer of the inflow is there"},
    {PlantedBug::kKeptTooFar, "a kept slice is taken over with a page more than there is"},
    {PlantedBug::kKeptPageSkipped, "a page of a mended relay's inflow is not asked for"},
    {PlantedBug::kKeptOffEngine, "a kept slice is gone on with that the engine has no more"},
    {PlantedBug::kSweepNeedsWork, "timers run only in turns that compute"},
    {PlantedBug::kLenderIsDeaf, "lent pages are not asked back for a prompt that waits"},
    {PlantedBug::kLostRouterIgnored, "a worker goes on when its router is lost"},
    {PlantedBug::kPrefillNotCancelled, "an end is not told to the prefill worker"},
    {PlantedBug::kDecodeFailureWaits, "a failed decode part waits for the prefill part"},
    {PlantedBug::kLostDecodeIgnored, "requests wait for a decode worker that is lost"},
    {PlantedBug::kDispatchesWithPromptOnly, "a new attempt starts without the tokens so far"},
    {PlantedBug::kNeverCovered, "a preempted request is preempted without end"},
    {PlantedBug::kLedgerKept, "an attempt that ends keeps its place in the ledger"},
    {PlantedBug::kStaleTokens, "tokens of an earlier attempt are taken"},
    {PlantedBug::kGapsPassed, "a token is passed on although the one before is missing"},
};
static_assert(std::size(kBugs) + 1 == static_cast<size_t>(PlantedBug::kCount));

uint64_t seed_now = 0;
int report_fd = -1;

void Report(const char* how) {
  char text[512];
  const int n =
      std::snprintf(text, sizeof(text), "%llu %s", static_cast<unsigned long long>(seed_now), how);
  const auto length = static_cast<size_t>(n) < sizeof(text) ? static_cast<size_t>(n) : sizeof(text);
  if (::write(report_fd, text, length) < 0) ::_exit(3);
}

void OnSignal(int signal) {
  Report(signal == SIGALRM   ? "does not come to an end"
         : signal == SIGABRT ? "CHECK failed"
                             : "crashed");
  ::_exit(0);
}

// In the child.
[[noreturn]] void Hunt(PlantedBug bug, uint64_t n_seeds) {
  planted_bug = bug;
  SetLog(LogLevel::kError, "bug_bank");
  if (std::freopen("/dev/null", "w", stderr) == nullptr) ::_exit(3);
  for (const int signal : {SIGABRT, SIGSEGV, SIGALRM}) std::signal(signal, OnSignal);
  for (seed_now = 1; seed_now <= n_seeds; ++seed_now) {
    ::alarm(kHangSeconds);
    const Outcome outcome = RunSeed(seed_now);
    if (outcome.violation.empty()) continue;
    Report(outcome.violation.substr(0, outcome.violation.find('\n')).c_str());
    ::_exit(0);
  }
  Report("");
  ::_exit(0);
}

struct Job {
  int bug = 0, fd = -1;
};

// What a run said, without the numbers that another seed would change.
std::string WithoutIds(const std::string& text) {
  constexpr size_t kIdDigits = 12, kMost = 120;
  std::string out;
  for (size_t begin = 0; begin < text.size() && out.size() < kMost;) {
    size_t end = begin;
    while (end < text.size() && std::isxdigit(static_cast<unsigned char>(text[end]))) ++end;
    if (end - begin >= kIdDigits) {
      out += "X";
      begin = end;
    } else {
      end = std::max(end, begin + 1);
      out += text.substr(begin, end - begin);
      begin = end;
    }
  }
  return out;
}

std::string ReadAll(int fd) {
  std::string text;
  char buffer[512];
  for (ssize_t n; (n = ::read(fd, buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  ::close(fd);
  return text;
}

int Main(int argc, char** argv) {
  uint64_t n_seeds = 10'000;
  size_t n_jobs = 2, n_missed = 0;
  std::vector<int> bugs;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--seeds" && i + 1 < argc)
      n_seeds = std::stoull(argv[++i]);
    else if (argument == "--jobs" && i + 1 < argc)
      n_jobs = std::stoull(argv[++i]);
    else
      bugs.push_back(std::stoi(argument));
  }
  if (bugs.empty())
    for (const BugRow& row : kBugs) bugs.push_back(static_cast<int>(row.bug));
  std::map<int, std::string> rows;  // by bug
  std::map<pid_t, Job> running;
  for (size_t next = 0; next < bugs.size() || !running.empty();) {
    if (next < bugs.size() && running.size() < n_jobs) {
      int pipe_fds[2];
      if (::pipe(pipe_fds) != 0) return 3;
      std::fflush(stdout);
      const pid_t child = ::fork();
      if (child < 0) return 3;
      if (child == 0) {
        ::close(pipe_fds[0]);
        report_fd = pipe_fds[1];
        Hunt(static_cast<PlantedBug>(bugs[next]), n_seeds);
      }
      ::close(pipe_fds[1]);
      running[child] = {bugs[next++], pipe_fds[0]};
      continue;
    }
    int status = 0;
    const pid_t child = ::wait(&status);
    const Job job = running.at(child);
    running.erase(child);
    const std::string text = ReadAll(job.fd);
    const size_t space = text.find(' ');
    const std::string how = space == std::string::npos ? "" : text.substr(space + 1);
    n_missed += how.empty();
    rows[job.bug] =
        absl::StrFormat("| %d | %s | %s | %s |\n", job.bug, kBugs[job.bug - 1].text,
                        how.empty() ? "not found" : text.substr(0, space), WithoutIds(how));
  }
  std::printf("| | bug | seeds to detection | found as |\n|---|---|---|---|\n");
  for (const auto& [bug, row] : rows) std::printf("%s", row.c_str());
  std::printf("\n%d of %d bugs found\n", static_cast<int>(bugs.size() - n_missed),
              static_cast<int>(bugs.size()));
  return n_missed == 0 ? 0 : 2;
}

}  // namespace
}  // namespace baton::sim

int main(int argc, char** argv) { return baton::sim::Main(argc, argv); }
