// baton_sim: runs seeds of the simulation and says what they found.
//   baton_sim [--seeds A..B] [--threads N] [--twice N] [--commit TEXT]   every N-th seed twice
//   baton_sim --until-violation [--seeds A..B]   in one thread, up to the first violation
//   baton_sim --trace SEED
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>

#include "common/log.h"
#include "tests/sim/seeds.h"

namespace baton::sim {
namespace {

constexpr unsigned kHangSeconds = 60;  // --until-violation: a seed that runs longer never ends

thread_local uint64_t seed_now = 0;

// Names the seed when a CHECK of the product, or the alarm, ends the process.
void OnSignal(int signal) {
  char text[80];
  const int n = std::snprintf(text, sizeof(text), "VIOLATION seed %llu: %s\n",
                              static_cast<unsigned long long>(seed_now),
                              signal == SIGALRM   ? "does not come to an end"
                              : signal == SIGSEGV ? "crashed"
                                                  : "aborted");
  if (::write(STDERR_FILENO, text, static_cast<size_t>(n)) < 0) ::_exit(3);
  ::_exit(2);
}

struct Arguments {
  uint64_t first = 1, last = 1000, twice = 10;
  int threads = 2;
  bool trace = false, until_violation = false;
  std::string commit = "unknown";
};

bool Parse(int argc, char** argv, Arguments* out) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&]() -> std::string { return i + 1 < argc ? argv[++i] : ""; };
    if (name == "--seeds") {
      const std::string range = value();
      const size_t dots = range.find("..");
      if (dots == std::string::npos) return false;
      out->first = std::stoull(range.substr(0, dots));
      out->last = std::stoull(range.substr(dots + 2));
    } else if (name == "--trace") {
      out->trace = true;
      out->first = out->last = std::stoull(value());
    } else if (name == "--until-violation") {
      out->until_violation = true;
    } else if (name == "--threads") {
      out->threads = std::stoi(value());
    } else if (name == "--twice") {
      out->twice = std::stoull(value());
    } else if (name == "--commit") {
      out->commit = value();
    } else {
      return false;
    }
  }
  return out->first <= out->last && out->threads > 0;
}

void PrintViolation(const Outcome& outcome) {
  std::printf("VIOLATION seed %llu: %s\n", static_cast<unsigned long long>(outcome.seed),
              outcome.violation.c_str());
  std::fflush(stdout);
}

// One thread, so that the first violating seed is found; an alarm ends a seed that hangs.
int RunUntilViolation(uint64_t first, uint64_t last) {
  std::signal(SIGALRM, OnSignal);
  for (seed_now = first; seed_now <= last; ++seed_now) {
    ::alarm(kHangSeconds);
    const Outcome outcome = RunSeed(seed_now);
    if (outcome.violation.empty()) continue;
    PrintViolation(outcome);
    return 2;
  }
  return 0;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  if (!Parse(argc, argv, &arguments)) {
    std::fprintf(stderr,
                 "usage: baton_sim [--seeds A..B] [--threads N] [--twice N] [--commit TEXT] | "
                 "--until-violation [--seeds A..B] | --trace SEED\n");
    return 1;
  }
  for (const int signal : {SIGABRT, SIGSEGV}) std::signal(signal, OnSignal);
  SetLog(LogLevel::kError, "sim");
  if (arguments.trace) {
    seed_now = arguments.first;
    const Outcome outcome = RunSeed(arguments.first, true);
    std::printf("%d events, digest %016llx\n%s\n", static_cast<int>(outcome.n_events),
                static_cast<unsigned long long>(outcome.digest),
                outcome.violation.empty() ? "no violation" : outcome.violation.c_str());
    return outcome.violation.empty() ? 0 : 2;
  }
  if (arguments.until_violation) return RunUntilViolation(arguments.first, arguments.last);
  const SeedReport report = RunSeeds({.first = arguments.first,
                                      .last = arguments.last,
                                      .threads = arguments.threads,
                                      .twice_every = arguments.twice,
                                      .began = [](uint64_t seed) { seed_now = seed; },
                                      .violated = PrintViolation});
  std::printf("COMMIT=%s SEEDS=%llu..%llu\n%s", arguments.commit.c_str(),
              static_cast<unsigned long long>(arguments.first),
              static_cast<unsigned long long>(arguments.last), report.ToString().c_str());
  return report.n_violations == 0 ? 0 : 2;
}

}  // namespace
}  // namespace baton::sim

int main(int argc, char** argv) { return baton::sim::Main(argc, argv); }
