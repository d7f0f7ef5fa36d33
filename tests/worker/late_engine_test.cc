// A worker over an engine that computes later: steps are submitted while others run, and what comes
// of it is what a sequential run gives. The test is the device; it also is the router.
#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>

#include "common/mailbox_thread.h"
#include "engine/load_backend.h"
#include "tests/support/hash_backend.h"
#include "tests/support/hash_grammar.h"
#include "tests/support/late_backend.h"
#include "tests/support/prefill_parts.h"
#include "tests/support/sequential_run.h"
#include "worker/engine_thread.h"
#include "worker/worker_core.h"

namespace baton {
namespace {

constexpr int kPageTokens = 4, kPages = 60;
constexpr Incarnation kSelf = 5;

std::vector<int32_t> PromptOf(int n, int vocab = HashBackend::kVocab) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < n; ++i) prompt.push_back((3 + i * 7) % vocab);
  return prompt;
}

struct LateRequest {
  RequestId id = 1;
  std::vector<int32_t> prompt = PromptOf(10);
  int max_tokens = 20;
  SamplingParams sampling{.temperature = 0};
  std::vector<int32_t> stop_tokens{};
};

// Both parts of a request, as a router sends them to a worker that does both.
std::vector<RouterMessage> PartsOf(const LateRequest& request, int page_tokens) {
  const auto n_prompt = static_cast<int>(request.prompt.size());
  const TicketId ticket{.high = 1, .low = request.id};
  const int pages = (n_prompt + page_tokens - 1) / page_tokens;
  const int to_end = (n_prompt + request.max_tokens + page_tokens - 1) / page_tokens;
  PrefillRequest prefill{.request_id = request.id,
                         .epoch = 1,
                         .tokens = request.prompt,
                         .sampling = request.sampling,
                         .stop_tokens = request.stop_tokens,
                         .want_digests = true,
                         .max_total_tokens = n_prompt + request.max_tokens};
  SetWhole(&prefill,
           {.id = ticket,
            .promise = ticket,
            .kv_pages = pages,
            .promise_pages = to_end,
            .n_pages = pages},
           {.incarnation = kSelf});
  return {DecodeRequest{.request_id = request.id,
                        .epoch = 1,
                        .ticket_id = ticket,
                        .tokens = request.prompt,
                        .max_tokens = request.max_tokens,
                        .is_local = true,
                        .sampling = request.sampling,
                        .stop_tokens = request.stop_tokens,
                        .want_digests = true},
          prefill};
}

class LateWorker {
 public:
  explicit LateWorker(int depth, std::unique_ptr<Backend> inner = MakeHash(),
                      Role role = Role::kBoth)
      : late_(std::move(inner), depth),
        pool_(std::move(*KvPool::Create(late_.kv_layout(), kPages,
                                        [this](int64_t bytes) { return late_.NewArena(bytes); }))) {
    late_.SetPages(pool_->pages());
    WorkerCoreOptions options;
    options.decode.max_batch = 4;
    core_ = std::make_unique<WorkerCore>(
        options, WorkerFacts{.self = kSelf, .role = role, .max_context = 200}, &late_, pool_.get(),
        WorkerPorts{
            .clock = [this] { return now_ += absl::Microseconds(10); },
            .transfer = [this](TransferCommand command) { commands.push_back(std::move(command)); },
            .report = [this](uint64_t, const WorkerReport& report) { Take(report); },
            .compile =
                [this](GrammarJob job) {
                  compiled_.push_back({job.id, HashGrammarOf(job.spec, HashBackend::kVocab)});
                },
            .wake = [this] { is_awake_ = true; }});
    core_->Handle(RouterEvent(RouterConnected{}));
  }
  ~LateWorker() {
    core_->Close();
    Run();
    CHECK(core_->IsQuiet());
    core_->Abandon();
  }

  static std::unique_ptr<Backend> MakeHash() {
    auto hash = std::make_unique<HashBackend>(kPageTokens);
    hash->set_limits({.max_step_tokens = 16});
    return hash;
  }

  void Submit(const LateRequest& request) {
    for (RouterMessage& part : PartsOf(request, late_.kv_layout().page_tokens))
      Say(std::move(part));
    for (GrammarCompiled& compiled : std::exchange(compiled_, {}))
      core_->Handle(std::move(compiled));
  }
  void Say(RouterMessage message) {
    RouterMessages messages;
    messages.messages.push_back(std::move(message));
    core_->Handle(RouterEvent(std::move(messages)));
    is_awake_ = true;
  }
  // Turns only when there is more to do or a fence woke the worker. False: nothing is left.
  bool Once() {
    while (std::exchange(is_awake_, false)) is_awake_ = core_->Turn() || is_awake_;
    if (!late_.has_work()) return false;
    ++n_operations;
    n_with[std::min<size_t>(static_cast<size_t>(late_.steps_under_way()), n_with.size() - 1)] += 1;
    late_.Execute();
    return true;
  }
  void Run() {
    while (Once()) {
    }
  }
  LateBackend& late() { return late_; }
  WorkerCore& core() { return *core_; }
  KvPool& pool() { return *pool_; }

  std::map<RequestId, std::vector<int32_t>> tokens;
  std::map<RequestId, std::vector<uint64_t>> digests;
  std::vector<PartEnded> ends;
  std::vector<TransferCommand> commands;
  int n_operations = 0;
  std::array<int, 4> n_with{};  // operations begun while so many steps were under way

 private:
  void Take(const WorkerReport& report) {
    for (const WorkerEvent& event : report.events) {
      if (const auto* token = std::get_if<TokenOut>(&event)) {
        tokens[token->request_id].push_back(token->token);
        digests[token->request_id].push_back(token->digest);
      }
      if (const auto* ended = std::get_if<PartEnded>(&event)) ends.push_back(*ended);
    }
  }

  absl::Time now_ = absl::UnixEpoch();
  bool is_awake_ = true;
  LateBackend late_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<WorkerCore> core_;
  std::vector<GrammarCompiled> compiled_;
};

SequentialTokens Expected(const LateRequest& request) {
  HashBackend reference(kPageTokens);
  const GrammarSpec& grammar = request.sampling.grammar;
  return SequentialRun(
      &reference, request.prompt, request.max_tokens, request.sampling, request.stop_tokens,
      grammar.kind == GrammarKind::kNone ? nullptr : HashGrammarOf(grammar, HashBackend::kVocab));
}

TEST_CASE("a step is submitted before the one before it is reached, at every depth") {
  const int depth = GENERATE(1, 2, 3);
  LateWorker worker(depth);
  LateRequest request{.max_tokens = 40};
  worker.Submit(request);
  worker.Run();
  CHECK(worker.tokens[1] == Expected(request).tokens);
  CHECK(worker.digests[1] == Expected(request).digests);
  CHECK(worker.core().IsQuiet());
  // Steps under way are as many as the depth, except at the beginning and at the end.
  CHECK(worker.n_with[static_cast<size_t>(depth)] > worker.n_operations * 3 / 4);
}

TEST_CASE(
    "rows that look back are sampled when the token before is known; their layers are ahead") {
  LateWorker worker(2);
  std::vector<LateRequest> requests(4);
  requests[0].sampling = {.temperature = 1, .seed = 9, .grammar = {GrammarKind::kRegex, "a"}};
  requests[1].sampling = {.temperature = 1, .seed = 3, .frequency_penalty = 1};
  requests[2].sampling = {.temperature = 1, .seed = 5, .bad_words = {{1, 2}, {3, 4}}};
  requests[3].sampling = {.temperature = 1, .seed = 7};
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].id = i + 1;
    worker.Submit(requests[i]);
  }
  worker.Run();
  for (const LateRequest& request : requests) {
    CAPTURE(request.id);
    CHECK(worker.tokens[request.id] == Expected(request).tokens);
  }
  CHECK(worker.n_with[2] > worker.n_operations / 4);
}

TEST_CASE("the row under way of a stream that ended is dropped, and its pages serve another") {
  LateWorker worker(2);
  LateRequest request{.max_tokens = 40};
  const std::vector<int32_t> all = Expected(request).tokens;
  request.stop_tokens = {all[9]};
  const std::vector<int32_t> expected = Expected(request).tokens;
  REQUIRE(expected.size() < all.size());
  worker.Submit(request);
  while (worker.tokens[1].size() < expected.size()) REQUIRE(worker.Once());
  CHECK(worker.late().steps_under_way() == 1);
  LateRequest other{.id = 2, .prompt = PromptOf(90), .max_tokens = 100};
  worker.Submit(other);
  worker.Run();
  CHECK(worker.tokens[1] == expected);
  CHECK(worker.tokens[2] == Expected(other).tokens);
}

TEST_CASE("pages are lent at once, with the fence at which they are zeroed") {
  LateWorker worker(2, LateWorker::MakeHash(), Role::kDecode);
  const auto page_bytes = static_cast<size_t>(worker.late().kv_layout().page_bytes);
  std::memset(worker.pool().base(), 0xff, page_bytes * kPages);
  REQUIRE(worker.Once());
  REQUIRE_FALSE(worker.commands.empty());
  const LendPages lend = std::get<LendPages>(worker.commands.front());
  REQUIRE(lend.pages.size() > 1);
  CHECK_FALSE(worker.late().reached({lend.after}));
  while (!worker.late().reached({lend.after})) REQUIRE(worker.Once());
  for (const int32_t page : lend.pages) {
    const std::byte* const at = worker.pool().base() + page * page_bytes;
    CHECK(std::all_of(at, at + page_bytes, [](std::byte byte) { return byte == std::byte{0}; }));
  }
  worker.Run();
  PagesReturned returned;
  for (const TransferCommand& command : worker.commands)
    if (const auto* lent = std::get_if<LendPages>(&command))
      returned.pages.insert(returned.pages.end(), lent->pages.begin(), lent->pages.end());
  worker.core().Handle(TransferEvent(std::move(returned)));
}

TEST_CASE("cancel, lost router and shutdown come at any time of a step") {
  const int what = GENERATE(0, 1, 2);
  for (int moment = 0; moment < 120; ++moment) {
    CAPTURE(what, moment);
    LateWorker worker(2);
    LateRequest gone{.max_tokens = 30}, other{.id = 2, .prompt = PromptOf(21), .max_tokens = 30};
    worker.Submit(gone);
    worker.Submit(other);
    for (int i = 0; i < moment && worker.Once(); ++i) {
    }
    if (what == 0) {
      worker.Say(CancelRequest{.request_id = 1, .epoch = 1});
      worker.Run();
      CHECK(worker.tokens[2] == Expected(other).tokens);
    } else if (what == 1) {
      worker.core().Handle(RouterEvent(RouterDisconnected{absl::UnavailableError("gone")}));
      worker.core().Drain();
      worker.Run();
      CHECK(worker.core().IsQuiet());
      CHECK(worker.pool().free() == kPages);
    }  // else shutdown, by the destructor
  }
}

TEST_CASE("the CPU's own forward pass, computed later, gives its tokens and digests") {
  EngineOptions options;
  options.model = "random:" BATON_SOURCE_DIR "/models/demo/config.json";
  options.threads = 1;
  options.page_tokens = 16;
  options.limits.max_step_tokens = 64;
  options.limits.max_slice_tokens = 64;
  auto loaded = LoadBackend(options);
  REQUIRE(loaded.ok());
  const int vocab = (*loaded)->model().vocab;
  std::vector<LateRequest> requests(3);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].id = i + 1;
    requests[i].prompt = PromptOf(30 + 17 * static_cast<int>(i), vocab);
    requests[i].sampling = {.temperature = i == 0 ? 0.0f : 1.0f, .seed = i};
  }
  std::map<RequestId, SequentialTokens> expected;
  for (const LateRequest& request : requests)
    expected[request.id] =
        SequentialRun(loaded->get(), request.prompt, request.max_tokens, request.sampling);
  LateWorker worker(2, *std::move(loaded));
  for (const LateRequest& request : requests) worker.Submit(request);
  worker.Run();
  for (const auto& [id, sequential] : expected) {
    CAPTURE(id);
    CHECK(worker.tokens[id] == sequential.tokens);
    CHECK(worker.digests[id] == sequential.digests);
  }
}

// Executes when another thread has said that it may, and wakes from that thread, as a device does.
class DeviceBackend : public LateBackend {
 public:
  DeviceBackend()
      : LateBackend(LateWorker::MakeHash(), 2),
        device_(std::in_place, "device", 1 << 16, [this](const Signal& signal) {
          allowed_ = std::max<uint64_t>(allowed_, signal.fence.at);
          signal.wake();
        }) {}
  bool reached(Fence fence) override {
    while (has_work() && !LateBackend::reached({allowed_})) Execute();
    return LateBackend::reached(fence);
  }
  void WakeAt(Fence fence, const std::function<void()>& wake) override {
    REQUIRE(device_->TryPost({fence, wake}));
  }
  void StopWaking() override { device_.reset(); }

 private:
  struct Signal {
    Fence fence;
    std::function<void()> wake;
  };
  std::atomic<uint64_t> allowed_ = 0;
  std::optional<MailboxThread<Signal>> device_;
};

TEST_CASE("the wake-up of a fence reaches a sleeping engine thread") {
  DeviceBackend backend;
  auto pool = std::move(*KvPool::Create(backend.kv_layout(), kPages,
                                        [&](int64_t bytes) { return backend.NewArena(bytes); }));
  backend.SetPages(pool->pages());
  WorkerCoreOptions options;
  options.decode.max_batch = 4;
  std::vector<int32_t> tokens;  // of the engine thread, until all are there
  std::promise<void> are_there;
  const auto report = [&](uint64_t, const WorkerReport& told) {
    for (const WorkerEvent& event : told.events) {
      const auto* token = std::get_if<TokenOut>(&event);
      if (token == nullptr || token->request_id != 1) continue;
      tokens.push_back(token->token);
      if (tokens.size() == 60) are_there.set_value();
    }
  };
  EngineThread engine(options, WorkerFacts{.self = kSelf, .max_context = 200}, &backend, pool.get(),
                      WorkerPorts{.transfer = [](TransferCommand) {}, .report = report});
  engine.Start();
  REQUIRE(engine.Post(RouterConnected{}));
  const LateRequest request{.max_tokens = 60};
  REQUIRE(engine.Post(RouterMessages{PartsOf(request, kPageTokens)}));
  REQUIRE(are_there.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready);
  REQUIRE(engine.Post(RouterMessages{PartsOf({.id = 2, .max_tokens = 60}, kPageTokens)}));
  engine.Close();  // with steps under way
  engine.CollectPages();
  CHECK(tokens == Expected(request).tokens);
}

}  // namespace
}  // namespace baton
