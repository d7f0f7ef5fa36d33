// A worker whose engine is lost at any operation: tokens that left are right, nothing leaves any
// more, and it is told once. Each loss is in a process of its own, which ends as a worker does:
// nothing is unwound.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/hash_backend.h"
#include "tests/support/late_backend.h"
#include "tests/support/prefill_parts.h"
#include "tests/support/sequential_run.h"
#include "worker/worker_core.h"

namespace baton {
namespace {

constexpr int kPageTokens = 4, kPages = 60, kMaxTokens = 12;
constexpr Incarnation kSelf = 5;

std::vector<int32_t> PromptTokens() {
  std::vector<int32_t> prompt;
  for (int i = 0; i < 21; ++i) prompt.push_back((3 + i * 7) % HashBackend::kVocab);
  return prompt;
}

std::unique_ptr<HashBackend> MakeHash() {
  auto hash = std::make_unique<HashBackend>(kPageTokens);
  hash->set_limits({.max_step_tokens = 16});
  return hash;
}

// A worker that computes one request, prompt and tokens. The test is router and device.
struct Rig {
  explicit Rig(int depth) : late(MakeHash(), depth) {
    pool = std::move(*KvPool::Create(late.kv_layout(), kPages,
                                     [this](int64_t bytes) { return late.NewArena(bytes); }));
    late.SetPages(pool->pages());
    WorkerCoreOptions options;
    options.decode.max_batch = 4;
    core = std::make_unique<WorkerCore>(
        options, WorkerFacts{.self = kSelf, .role = Role::kBoth, .max_context = 200}, &late,
        pool.get(),
        WorkerPorts{.clock = [this] { return now += absl::Microseconds(10); },
                    .transfer = [](TransferCommand) {},
                    .report = [this](uint64_t, const WorkerReport& report) { Take(report); },
                    .wake = [this] { is_awake = true; },
                    .lost = [this](const std::string& why) { lost.push_back(why); }});
    core->Handle(RouterEvent(RouterConnected{}));
    RouterMessages messages;
    const TicketId ticket{.high = 1, .low = 1};
    const int n_prompt = static_cast<int>(PromptTokens().size()),
              n_pages = (n_prompt + 3) / kPageTokens;
    const SamplingParams greedy{.temperature = 0};
    messages.messages.push_back(DecodeRequest{.request_id = 1,
                                              .epoch = 1,
                                              .ticket_id = ticket,
                                              .tokens = PromptTokens(),
                                              .max_tokens = kMaxTokens,
                                              .is_local = true,
                                              .sampling = greedy});
    PrefillRequest prefill{.request_id = 1,
                           .epoch = 1,
                           .tokens = PromptTokens(),
                           .sampling = greedy,
                           .max_total_tokens = n_prompt + kMaxTokens};
    SetWhole(&prefill,
             {.id = ticket,
              .promise = ticket,
              .kv_pages = n_pages,
              .promise_pages = n_pages + kMaxTokens / kPageTokens,
              .n_pages = n_pages},
             {.incarnation = kSelf});
    messages.messages.push_back(std::move(prefill));
    core->Handle(RouterEvent(std::move(messages)));
  }
  void Take(const WorkerReport& report) {
    n_reports += 1;
    for (const WorkerEvent& event : report.events) {
      if (const auto* token = std::get_if<TokenOut>(&event)) tokens.push_back(token->token);
      if (const auto* ended = std::get_if<PartEnded>(&event))
        has_failed |= ended->reason == EndReason::kFailed;
    }
  }
  // Turns only when the worker asked for it. Returns the operations executed, at most n.
  int Run(int n) {
    for (int done = 0;; ++done) {
      while (std::exchange(is_awake, false)) is_awake = core->Turn() || is_awake;
      if (done == n || !late.has_work()) return done;
      late.Execute();
    }
  }

  LateBackend late;
  std::unique_ptr<KvPool> pool;
  std::unique_ptr<WorkerCore> core;
  absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  bool is_awake = true, has_failed = false;
  int n_reports = 0;
  std::vector<int32_t> tokens;
  std::vector<std::string> lost;
};

// Loses the engine after n operations. Returns what is wrong; empty: nothing.
std::string LoseAfter(int n, int depth, const std::vector<int32_t>& expected) {
  Rig& rig = *new Rig(depth);  // its pages are never given back
  if (rig.Run(n) < n) return "the run is over";
  if (!rig.late.has_work()) return "nothing is under way";
  const size_t n_tokens = rig.tokens.size();
  rig.late.Lose("at a test");
  if (rig.Run(0) != 0 || rig.lost.empty()) return "nobody is told";
  const int n_reports = rig.n_reports;
  rig.is_awake = true;
  rig.Run(0);
  if (rig.lost != std::vector<std::string>{"at a test"}) return "it is told twice";
  if (rig.n_reports != n_reports || rig.tokens.size() != n_tokens || rig.has_failed)
    return "something leaves a worker that is lost";
  if (!std::equal(rig.tokens.begin(), rig.tokens.end(), expected.begin())) return "a wrong token";
  if (!rig.core->is_lost() || rig.core->NextDeadline() != absl::InfiniteFuture())
    return "it goes on";
  return "";
}

}  // namespace

TEST_CASE("an engine lost at any operation: its worker tells it once, and nothing else") {
  const std::unique_ptr<HashBackend> reference = MakeHash();
  const std::vector<int32_t> expected =
      SequentialRun(reference.get(), PromptTokens(), kMaxTokens, {.temperature = 0}).tokens;
  for (const int depth : {1, 2, 3}) {
    int n_losses = 0;
    for (int n = 0;; ++n) {
      CAPTURE(depth, n);
      int fds[2];
      REQUIRE(::pipe(fds) == 0);
      const pid_t child = ::fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        const std::string wrong = LoseAfter(n, depth, expected);
        if (::write(fds[1], wrong.data(), wrong.size()) < 0) ::_exit(2);
        ::_exit(0);
      }
      ::close(fds[1]);
      char text[100];
      const ssize_t length = ::read(fds[0], text, sizeof(text));
      ::close(fds[0]);
      int status = 0;
      REQUIRE(::waitpid(child, &status, 0) == child);
      REQUIRE(status == 0);
      const std::string wrong(text, static_cast<size_t>(std::max<ssize_t>(length, 0)));
      if (wrong == "the run is over" || wrong == "nothing is under way") break;
      CHECK(wrong == "");
      ++n_losses;
    }
    CHECK(n_losses > 40);
  }
}

}  // namespace baton
