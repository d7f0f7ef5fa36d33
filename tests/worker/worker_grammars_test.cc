// Requests with grammars in a worker: they wait for their grammar before a scheduler knows of them,
// and a grammar that cannot go on ends its own request. The test plays the compiler.
#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <map>

#include "tests/support/hash_backend.h"
#include "tests/support/hash_grammar.h"
#include "tests/support/prefill_parts.h"
#include "tests/support/sequential_run.h"
#include "worker/worker_core.h"

namespace baton {
namespace {

constexpr int kPageTokens = 4, kPages = 40;
constexpr Incarnation kSelf = 5;

const std::vector<int32_t> kPrompt = {3, 1, 4, 1, 5, 9, 2, 6};

// Records what the rows of a step need before they are sampled.
struct NotingMasks : MaskThread {
  void Start(std::span<SequenceSampling* const> sequences) override {
    max_started = std::max(max_started, sequences.size());
    MaskThread::Start(sequences);
  }
  size_t max_started = 0;
};

struct GrammarWorker {
  explicit GrammarWorker(bool compiles = true)
      : backend(kPageTokens), pool(std::move(*KvPool::Create(backend.kv_layout(), kPages))) {
    backend.SetPages(pool->pages());
    WorkerCoreOptions options;
    backend.set_limits({.max_step_tokens = 64});
    options.decode.max_batch = 4;
    WorkerPorts ports{.clock = [this] { return now += absl::Microseconds(10); },
                      .transfer = [](TransferCommand) {},
                      .report = [this](uint64_t, const WorkerReport& report) { Take(report); },
                      .masks = &masks};
    if (compiles) ports.compile = [this](GrammarJob job) { jobs.push_back(std::move(job)); };
    core = std::make_unique<WorkerCore>(options, WorkerFacts{.self = kSelf, .max_context = 100},
                                        &backend, pool.get(), std::move(ports));
    core->Handle(RouterEvent(RouterConnected{}));
  }
  ~GrammarWorker() {
    core->Close();
    core->Abandon();
  }

  void Take(const WorkerReport& report) {
    for (const WorkerEvent& event : report.events) {
      if (const auto* token = std::get_if<TokenOut>(&event))
        tokens[token->request_id].push_back(token->token);
      if (const auto* ended = std::get_if<PartEnded>(&event)) ends.push_back(*ended);
    }
  }
  void Send(RouterMessage message) {
    RouterMessages messages;
    messages.messages.push_back(std::move(message));
    core->Handle(RouterEvent(std::move(messages)));
  }
  // Both parts of a request, as a router sends them to a worker that does both.
  void Serve(RequestId id, const SamplingParams& sampling, int max_tokens, Epoch epoch = 1) {
    const TicketId ticket{.high = epoch, .low = id};
    Send(DecodeRequest{.request_id = id,
                       .epoch = epoch,
                       .ticket_id = ticket,
                       .tokens = kPrompt,
                       .max_tokens = max_tokens,
                       .is_local = true,
                       .sampling = sampling});
    PrefillRequest prefill{.request_id = id,
                           .epoch = epoch,
                           .tokens = kPrompt,
                           .sampling = sampling,
                           .max_total_tokens = static_cast<int32_t>(kPrompt.size()) + max_tokens};
    SetWhole(&prefill,
             {.id = ticket, .promise = ticket, .kv_pages = 2, .promise_pages = 12, .n_pages = 2},
             {.incarnation = kSelf});
    Send(std::move(prefill));
  }
  void CompileNext() {
    REQUIRE_FALSE(jobs.empty());
    core->Handle(
        GrammarCompiled{jobs.front().id, HashGrammarOf(jobs.front().spec, HashBackend::kVocab)});
    jobs.pop_front();
  }
  void Turns() {
    while (core->Turn()) {
    }
    core->Turn();  // sends what is left to report
  }
  std::vector<PartEnded> EndsOf(RequestId id) const {
    std::vector<PartEnded> found;
    for (const PartEnded& end : ends)
      if (end.request_id == id) found.push_back(end);
    return found;
  }

  absl::Time now = absl::UnixEpoch();
  NotingMasks masks;
  HashBackend backend;
  std::unique_ptr<KvPool> pool;
  std::unique_ptr<WorkerCore> core;
  std::deque<GrammarJob> jobs;
  std::map<RequestId, std::vector<int32_t>> tokens;
  std::vector<PartEnded> ends;
};

SamplingParams With(const std::string& text) {
  return {.temperature = 1, .seed = 9, .grammar = {GrammarKind::kRegex, text}};
}

SequentialTokens Expected(const SamplingParams& sampling, int max_tokens) {
  HashBackend reference(kPageTokens);
  return SequentialRun(&reference, kPrompt, max_tokens, sampling, {},
                       HashGrammarOf(sampling.grammar, HashBackend::kVocab));
}

TEST_CASE("a request waits for its grammar, others do not, and its tokens are the grammar's") {
  GrammarWorker worker;
  const SamplingParams with = With("a"), without{.temperature = 1, .seed = 9};
  worker.Serve(1, with, 6);
  worker.Serve(2, without, 6);
  worker.Turns();
  REQUIRE(worker.jobs.size() == 2);  // of both parts
  CHECK(worker.jobs[0].spec == with.grammar);
  CHECK(worker.tokens[1].empty());
  CHECK(worker.tokens[2] == Expected(without, 6).tokens);
  CHECK_FALSE(worker.core->IsQuiet());
  worker.CompileNext();
  worker.CompileNext();
  worker.Turns();
  CHECK(worker.tokens[1] == Expected(with, 6).tokens);
  CHECK(worker.tokens[1] != worker.tokens[2]);
  CHECK(worker.masks.max_started == 1);
  CHECK(worker.core->IsQuiet());
}

TEST_CASE("rows with grammars share a step") {
  GrammarWorker worker;
  for (RequestId id = 1; id <= 3; ++id) worker.Serve(id, With(std::string(id, 'g')), 8);
  while (!worker.jobs.empty()) worker.CompileNext();
  worker.Turns();
  for (RequestId id = 1; id <= 3; ++id)
    CHECK(worker.tokens[id] == Expected(With(std::string(id, 'g')), 8).tokens);
  CHECK(worker.masks.max_started == 3);
}

TEST_CASE(
    "a request that is cancelled while it waits ends at once, and its grammar comes in vain") {
  GrammarWorker worker;
  worker.Serve(1, With("a"), 6, 1);
  worker.Serve(1, With("a"), 6, 2);
  worker.Serve(2, With("b"), 6);
  worker.Send(CancelRequest{.request_id = 1, .epoch = 1});
  worker.Turns();
  REQUIRE(worker.EndsOf(1).size() == 2);
  for (const PartEnded& end : worker.EndsOf(1)) {
    CHECK(end.epoch == 1);
    CHECK(end.reason == EndReason::kCancelled);
  }
  CHECK(worker.EndsOf(1)[0].was_prefill != worker.EndsOf(1)[1].was_prefill);
  while (!worker.jobs.empty()) worker.CompileNext();
  worker.Turns();
  CHECK(worker.tokens[1] == Expected(With("a"), 6).tokens);  // the second attempt
  CHECK(worker.tokens[2] == Expected(With("b"), 6).tokens);
}

TEST_CASE("a draining worker serves what waits for a grammar; a lost router's requests are gone") {
  GrammarWorker worker;
  worker.Serve(1, With("a"), 3);
  worker.core->Drain();
  worker.Turns();
  CHECK_FALSE(worker.core->IsQuiet());
  while (!worker.jobs.empty()) worker.CompileNext();
  worker.Turns();
  CHECK(worker.tokens[1].size() == 3);
  CHECK(worker.core->IsQuiet());

  GrammarWorker other;
  other.Serve(1, With("a"), 3);
  other.core->Handle(RouterEvent(RouterDisconnected{}));
  CHECK(other.core->IsQuiet());
  while (!other.jobs.empty()) other.CompileNext();
  other.Turns();
  CHECK(other.tokens[1].empty());
  CHECK(other.core->IsQuiet());
}

TEST_CASE("a grammar that breaks ends its own request with its message") {
  GrammarWorker worker;
  const int breaks_at = GENERATE(0, 1, 4);
  const SamplingParams broken = With("a breaks " + std::to_string(breaks_at));
  worker.Serve(1, broken, 6);
  worker.Serve(2, With("b"), 6);
  while (!worker.jobs.empty()) worker.CompileNext();
  worker.Turns();
  CHECK(worker.tokens[1] == Expected(broken, 6).tokens);
  CHECK(worker.tokens[1].size() == static_cast<size_t>(breaks_at));
  CHECK(worker.tokens[2] == Expected(With("b"), 6).tokens);
  const std::vector<PartEnded> ends = worker.EndsOf(1);
  const auto failed = std::find_if(ends.begin(), ends.end(), [](const PartEnded& end) {
    return end.reason == EndReason::kFailed;
  });
  REQUIRE(failed != ends.end());
  CHECK(failed->fault == PartFault::kGrammar);
  CHECK(failed->message == "the grammar broke");
  CHECK(failed->was_prefill == (breaks_at == 0));
  if (breaks_at == 0) worker.Send(CancelRequest{.request_id = 1, .epoch = 1});
  worker.Turns();
  CHECK(worker.core->IsQuiet());
}

TEST_CASE("a grammar that does not compile, and a worker that compiles none, refuse by name") {
  GrammarWorker worker;
  worker.Serve(1, With("a"), 6);
  for (const GrammarJob& job : worker.jobs)
    worker.core->Handle(GrammarCompiled{job.id, absl::InvalidArgumentError("no such grammar")});
  worker.Turns();
  REQUIRE(worker.EndsOf(1).size() == 2);
  for (const PartEnded& end : worker.EndsOf(1)) {
    CHECK(end.fault == PartFault::kGrammar);
    CHECK(end.message == "no such grammar");
  }
  GrammarWorker none(false);
  none.Serve(1, With("a"), 6);
  none.Turns();
  REQUIRE(none.EndsOf(1).size() == 2);
  CHECK(none.EndsOf(1)[0].fault == PartFault::kGrammar);
  CHECK_THAT(none.EndsOf(1)[0].message, Catch::Contains("tokenizer"));
}

TEST_CASE("as many requests wait as the desk has room for, and the next is refused") {
  GrammarWorker worker;
  const auto n = static_cast<RequestId>(GrammarDesk::kMaxWaiting);
  for (RequestId id = 1; id <= n + 1; ++id)
    worker.Send(DecodeRequest{
        .request_id = id, .epoch = 1, .tokens = {1, 2, 3}, .max_tokens = 2, .sampling = With("a")});
  worker.Turns();
  CHECK(worker.jobs.size() == n);
  REQUIRE(worker.ends.size() == 1);
  CHECK(worker.ends[0].request_id == n + 1);
  CHECK(worker.ends[0].fault == PartFault::kOwn);  // another worker may have room
}

}  // namespace
}  // namespace baton
