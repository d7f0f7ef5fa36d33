// The choice between relay and one worker: by the measured speeds of workers and links, by the
// errors of predictions, and by a partition table.
#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "lab/relay_lab.h"
#include "tests/support/prefill_parts.h"
#include "tests/support/router_harness.h"

namespace baton {
namespace {

using Catch::Contains;

constexpr Incarnation kDecode = 1, kTail = 11, kHead = 12;

// Returns the load of a worker that computes 100,000 tokens per second in short prompts, half of
// that in prompts of 8,192. floor: seconds of a slice on top of its tokens.
WorkerLoad Measured(double slowness = 1, double floor = 0) {
  const double token = 2.5e-6 * slowness;
  return {.prefill_cost = {.n_layers = 4,
                           .token = token,
                           .pair = token / 4096,
                           .extra_tokens = floor / (4 * token),
                           .kv_bytes = 2048},
          .fitted_tokens = 50'000};
}

double AloneMs(double tokens) { return 1e-2 * (tokens + tokens * tokens / 8192); }

RouterOptions Relays() {
  RouterOptions options;
  options.relay.min_tokens = 40;
  options.local = false;  // the decode worker is idle
  return options;
}

struct RelayPlanningFixture : RouterHarness {  // two prefill workers and a decode worker
  explicit RelayPlanningFixture(const RouterOptions& options = Relays()) : RouterHarness(options) {
    JoinWide(kDecode, Role::kDecode);
    JoinWide(kTail, Role::kPrefill);
    JoinWide(kHead, Role::kPrefill);
    ReportLoad(kTail, Measured());
    ReportLoad(kHead, Measured());
  }
  void JoinWide(Incarnation id, Role role) {
    WorkerAnnounce announce = Announce(id, role);
    announce.max_context = 1 << 20;
    announce.pages_total = 1 << 20;
    REQUIRE(Report(id, {announce}).ok());
  }
  void ReportLoad(Incarnation id, const WorkerLoad& load) { REQUIRE(Report(id, {load}).ok()); }

  // Runs a prompt with the given time to its first and only token. Returns its timeline.
  Timeline Run(int32_t n_prompt, double took_ms, int32_t reused_tokens = 0) {
    sent.clear();
    const RequestId id = Submit(n_prompt, 1);
    now += absl::Milliseconds(took_ms);
    const auto prefills = Sent<PrefillRequest>();
    for (const auto& [worker, request] : prefills) {
      if (!request.wants_first_token) {
        REQUIRE(Report(worker, {baton::Ended(id, true)}).ok());
        continue;
      }
      const PromptComputed computed{.request_id = id, .epoch = 1, .reused_tokens = reused_tokens};
      REQUIRE(Report(worker, {computed, Token(id, n_prompt, 7), baton::Ended(id, true)}).ok());
    }
    return End(id).timeline;
  }
  // Returns the slices of a prompt, which is then cancelled.
  std::vector<int32_t> Slices(int32_t n_prompt) {
    const RequestId id = Submit(n_prompt, 1);
    Cancel(id);
    return End(id).timeline.slices;
  }
};

}  // namespace

TEST_CASE("a relay's slices follow what long prompts cost each worker") {
  RelayPlanningFixture r;
  const std::vector<int32_t> even = r.Slices(8192);
  REQUIRE(even.size() == 2);
  CHECK(even[0] + even[1] == 8192);
  // Equal work: the first slice's x + x^2 / 8192 is half of 8192 + 8192.
  CHECK(even[0] == Approx(8192 * 0.618).margin(64));
  r.ReportLoad(kHead, Measured(3));  // the head of the chain became slow
  CHECK(r.Slices(8192)[0] < 8192 * 0.4);
  r.ReportLoad(kHead, Measured(1e4));
  CHECK(r.Slices(8192) == std::vector<int32_t>{8192});
}

TEST_CASE("before a worker has measured what prompts cost one computes them alone") {
  RouterHarness r(Relays());
  r.Join(kDecode, Role::kDecode);
  r.Join(kTail, Role::kPrefill);
  r.Join(kHead, Role::kPrefill);
  const auto ranks = [&r] {
    const RequestId id = r.Submit(1024, 1);
    r.Cancel(id);
    return r.End(id).timeline.slices.size();
  };
  CHECK(ranks() == 1);
  WorkerLoad load = Measured();
  load.fitted_tokens = 200;  // in a few short prompts
  REQUIRE(r.Report(kHead, {load}).ok());
  CHECK(ranks() == 1);
  load.fitted_tokens = 1200;
  REQUIRE(r.Report(kHead, {load}).ok());
  CHECK(ranks() == 2);
}

TEST_CASE("a relay's reused tokens are those of all its ranks, of its first attempt") {
  RelayPlanningFixture r;
  const RequestId id = r.Submit(8192, 1);
  for (const auto& [worker, request] : r.Sent<PrefillRequest>()) {
    if (request.wants_first_token) continue;
    PartEnded ended = Ended(id, true);
    ended.reused_tokens = 1024;
    REQUIRE(r.Report(worker, {ended}).ok());
    REQUIRE(r.Report(worker, {ended}).ok());  // told again
  }
  for (const auto& [worker, request] : r.Sent<PrefillRequest>()) {
    if (!request.wants_first_token) continue;
    PartEnded ended = Ended(id, true);
    ended.reused_tokens = 64;  // PromptComputed has told them
    const PromptComputed computed{.request_id = id, .epoch = 1, .reused_tokens = 64};
    REQUIRE(r.Report(worker, {computed, Token(id, 8192, 7), ended}).ok());
  }
  const Timeline timeline = r.End(id).timeline;
  REQUIRE(timeline.slices.size() == 2);
  REQUIRE(timeline.reused_tokens == 1024 + 64);
}

TEST_CASE("prefill workers that have to share their CPUs share no prompts") {
  for (const double share : {0.5, 1.0}) {
    RelayPlanningFixture r;
    for (const Incarnation worker : {kTail, kHead}) {
      r.Lose(worker);
      WorkerAnnounce announce = Announce(worker, Role::kPrefill);
      announce.max_context = announce.pages_total = 1 << 20;
      announce.cpu_group = 5;
      announce.cpu_share = share;
      REQUIRE(r.Report(worker, {announce, Measured()}).ok());
    }
    CHECK(r.Slices(8192).size() == (share == 1.0 ? 1 : 2));
  }
}

TEST_CASE("predicted and actual time to the first token are in the timeline") {
  RelayPlanningFixture r;
  const Timeline relay = r.Run(8192, 90);
  CHECK(relay.slices.size() == 2);
  CHECK(absl::ToDoubleMilliseconds(relay.predicted) == Approx(AloneMs(8192) / 2).epsilon(0.02));
  CHECK(relay.took == absl::Milliseconds(90));
  const Timeline alone = r.Run(39, 3);
  CHECK(alone.slices == std::vector<int32_t>{39});
  CHECK(absl::ToDoubleMilliseconds(alone.predicted) == Approx(AloneMs(39)).epsilon(0.01));
}

TEST_CASE("relays that take longer than one worker would are left, and tried again later") {
  RelayPlanningFixture r;
  const auto slow_relays = [&r] {
    int n = 0;
    while (r.Slices(8192).size() == 2) {
      REQUIRE(++n <= 6);
      REQUIRE(r.Run(8192, 200).slices.size() == 2);  // predicted: 82 ms; one worker: 164 ms
    }
    return n;
  };
  CHECK(slow_relays() > 1);                   // one outlier changes nothing
  CHECK(r.Run(2048, 18).slices.size() == 2);  // another length
  int alone = 0;
  for (; r.Slices(8192).size() == 1; ++alone) {
    REQUIRE(alone < 64);
    r.Run(8192, 164);
  }
  CHECK(alone > 0);
  CHECK(slow_relays() == 1);  // it is remembered
}

TEST_CASE("much KV that was found says nothing about predictions") {
  RelayPlanningFixture r;
  for (int i = 0; i < 20; ++i) REQUIRE(r.Run(8192, 1000, 2048).slices.size() == 2);
}

TEST_CASE("scored prompts, which take longer, say nothing about predictions") {
  RelayPlanningFixture r;
  for (int i = 0; i < 5; ++i) {
    GenerateRequest scored;
    scored.prompt.assign(8192, 5);
    scored.max_tokens = 1;
    scored.prompt_logprobs = 0;
    const RequestId id = r.Submit(std::move(scored));
    r.now += absl::Seconds(2);  // ten times the prediction
    PromptLogprobs told{.request_id = id, .epoch = 1, .position = 1};
    told.tokens.resize(8191);
    REQUIRE(
        r.Report(r.LastPrefillWorker(), {told, Token(id, 8192, 7), baton::Ended(id, true)}).ok());
    REQUIRE(r.End(id).reason == EndReason::kLength);
  }
  for (int i = 0; i < 5; ++i) REQUIRE(r.Run(8192, 200).slices.size() == 2);
  CHECK(r.Slices(8192).size() == 1);  // if such prompts counted, one worker would be as late
}

TEST_CASE("a link that falls to a hundredth: later prompts are planned by its new speed") {
  RelayPlanningFixture r;
  const auto link = [&](double bytes_per_second) {
    WorkerLoad load = Measured();
    load.links = {{.peer = kTail, .bytes_per_second = bytes_per_second}};
    r.ReportLoad(kHead, load);
  };
  // 2,048 bytes per token in each of 4 layers: 5,000 tokens are 10 MB per layer of 20 ms.
  link(1e9);
  const std::vector<int32_t> fast = r.Slices(8192);
  REQUIRE(fast.size() == 2);
  link(1e7);
  const std::vector<int32_t> slow = r.Slices(8192);
  CHECK((slow.size() == 1 || slow[0] < fast[0] / 10));
  CHECK(r.Run(8192, 164).took == absl::Milliseconds(164));
  link(1e9);
  CHECK(r.Slices(8192) == fast);
}

TEST_CASE("a link that is held to a rate is planned with before it was measured") {
  const auto slices = [](double bytes_per_second) {
    RelayPlanningFixture r;
    WorkerAnnounce third = Announce(13, Role::kPrefill);
    third.max_context = 1 << 20;
    third.pages_total = 1 << 20;
    third.link_bytes_per_second = bytes_per_second;
    REQUIRE(r.Report(13, {third}).ok());
    r.Lose(kHead);
    return r.Slices(8192);
  };
  CHECK(slices(0).size() == 2);
  CHECK(slices(1e9) == slices(0));
  CHECK((slices(1e6).size() == 1 || slices(1e6)[0] < slices(0)[0] / 10));
}

TEST_CASE("shorter prompts go before a prompt, longer ones do not; of relays every slice does") {
  RelayPlanningFixture r;
  const auto predicted_ms = [&](int32_t n_prompt) {
    const RequestId id = r.Submit(n_prompt, 1);
    r.Cancel(id);
    return absl::ToDoubleMilliseconds(r.End(id).timeline.predicted);
  };
  r.Submit(30, 1);
  r.Submit(30, 1);  // too short for relays: one on each worker
  const double alone = predicted_ms(8192);
  CHECK(alone == Approx(AloneMs(30) + AloneMs(8192) / 2).epsilon(0.02));
  r.Submit(8192, 1);  // a relay on both workers
  // While its promise is asked for, the worker computes a longer one, but no slice.
  CHECK(predicted_ms(20) == Approx(AloneMs(30) + AloneMs(20)).margin(0.01));
  CHECK(predicted_ms(39) == Approx(AloneMs(30) + AloneMs(39)).margin(0.01));
  // On one worker the prompt passes the queued slices; as a relay it would wait for them.
  const RequestId half = r.Submit(3000, 1);
  r.Cancel(half);
  const Timeline timeline = r.End(half).timeline;
  CHECK(timeline.slices == std::vector<int32_t>{3000});
  // Short ones may come meanwhile, as they came before.
  CHECK(absl::ToDoubleMilliseconds(timeline.predicted) ==
        Approx(AloneMs(30) + AloneMs(3000)).epsilon(1e-4));
}

TEST_CASE("what a relay costs in all counts for prompts to come where recent ones had to wait") {
  RelayPlanningFixture r;
  for (const Incarnation worker : {kTail, kHead}) r.ReportLoad(worker, Measured(1, 20e-3));
  REQUIRE(r.Slices(8192).size() == 2);
  std::vector<RequestId> burst;
  for (int i = 0; i < 60; ++i) burst.push_back(r.Submit(30, 1));
  for (const RequestId id : burst) r.Cancel(id);
  CHECK(r.Slices(8192).size() == 1);
  for (int i = 0; i < 40; ++i) r.Slices(30);
  CHECK(r.Slices(8192).size() == 2);
}

TEST_CASE("a relay that other prompts slow down, but less than it gains, goes on being chosen") {
  RelayPlanningFixture r;
  const auto finish = [&](RequestId id, int32_t n_prompt, size_t n_sent) {
    for (; n_sent < r.sent.size(); ++n_sent) {
      const auto* request = std::get_if<PrefillRequest>(&r.sent[n_sent].second);
      if (request == nullptr || request->request_id != id) continue;
      std::vector<WorkerEvent> events;
      if (request->wants_first_token) events.push_back(Token(id, n_prompt, 7));
      events.push_back(baton::Ended(id, true));
      REQUIRE(r.Report(r.sent[n_sent].first, std::move(events)).ok());
    }
  };
  // Two prompts of the same length run at a time, so the later one takes longer than alone.
  for (int i = 0; i < 12; ++i) {
    r.sent.clear();
    const RequestId shorter = r.Submit(39, 1);
    r.now += absl::Milliseconds(1);
    const RequestId id = r.Submit(4200, 1);
    REQUIRE(r.Sent<PrefillRequest>().size() == 3);
    r.now += absl::Milliseconds(25);
    finish(shorter, 39, 0);
    r.now += absl::Milliseconds(15);
    finish(id, 4200, 0);
  }
  CHECK(r.Slices(4200).size() == 2);
}

TEST_CASE("who hands a relay's KV to the decode worker follows the links, unless it is said") {
  const auto push = [](double bytes_per_second, std::optional<RelayPush> said = {}) {
    RouterOptions options = Relays();
    options.relay.sharing = SharingOf({.push = said});
    RelayPlanningFixture r(options);
    WorkerLoad load = Measured();
    load.links = {{.peer = kDecode, .bytes_per_second = bytes_per_second}};
    r.ReportLoad(kTail, load);
    load.links.push_back({.peer = kTail, .bytes_per_second = bytes_per_second});
    r.ReportLoad(kHead, load);
    const RequestId id = r.Submit(8192, 2);
    const auto prefills = r.Sent<PrefillRequest>();
    REQUIRE(prefills.size() == 2);
    REQUIRE_FALSE(prefills[1].second.wants_first_token);
    r.Cancel(id);
    const RelayPush of_request = r.End(id).timeline.push;
    CHECK((PushOf(LastSlice(prefills[1].second)) != KvOutput{}) == (of_request == RelayPush::kAll));
    CHECK(r.router.View().relays_by_push[static_cast<size_t>(of_request)] == 1);
    return of_request;
  };
  CHECK(push(1e12) == RelayPush::kAll);
  CHECK(push(1e12, RelayPush::kTail) == RelayPush::kTail);
  // The chain takes 12 of the 20 ms of a layer; twice as much does not fit.
  CHECK(push(8e8) == RelayPush::kTail);
  CHECK(push(8e8, RelayPush::kAll) == RelayPush::kAll);
}

TEST_CASE("no slice is longer than its worker takes") {
  RelayPlanningFixture r;
  WorkerAnnounce third = Announce(13, Role::kPrefill);
  third.max_context = 1 << 20;
  third.pages_total = 1 << 20;
  third.max_slice_tokens = 4096;
  REQUIRE(r.Report(13, {third}).ok());
  r.Lose(kHead);
  CHECK(r.Slices(4096).size() == 2);
  CHECK(r.Sent<PrefillRequest>().back().second.slices.size() == 1);
  // With one round the first slice would have 5,056 tokens.
  const std::vector<int32_t> shares = r.Slices(8192);
  REQUIRE(shares.size() == 2);
  CHECK(shares[0] + shares[1] == 8192);
  const PrefillRequest head = r.Sent<PrefillRequest>().back().second;
  REQUIRE_FALSE(head.wants_first_token);
  REQUIRE(head.slices.size() == 2);
  const auto last = static_cast<int32_t>(head.tokens.size()) - InflowTokens(head);
  CHECK(head.slices[0].end <= 4096);
  CHECK(head.slices[0].end + last == shares[0]);
}

namespace {

RouterOptions WithTable(PartitionMode mode) {
  auto table = std::make_shared<PartitionTable>();
  table->model = "tuned";
  table->model_fingerprint = 7;
  table->numerics_id = "cpu-x86";
  table->of_ranks[2] = {{8192, {.75, .25}}};
  RouterOptions options = Relays();
  options.relay.sharing = SharingOf({.partition = mode, .table = std::move(table)});
  return options;
}

}  // namespace

TEST_CASE("slices by a tuned table, and even ones") {
  CHECK(RelayPlanningFixture(WithTable(PartitionMode::kTable)).Slices(8192) ==
        std::vector<int32_t>{6144, 2048});
  CHECK(RelayPlanningFixture(WithTable(PartitionMode::kEven)).Slices(8192) ==
        std::vector<int32_t>{4096, 4096});
}

TEST_CASE("a table of another model or numerics is refused when the first worker joins") {
  RouterHarness r(WithTable(PartitionMode::kTable));
  WorkerAnnounce announce = Announce(kTail, Role::kPrefill);
  announce.model_fingerprint = 8;
  const absl::Status model = r.Report(kTail, {announce});
  CHECK(model.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(model.message()),
             Contains("tuned for model tuned (0000000000000007, cpu-x86)") &&
                 Contains("has 0000000000000008") && Contains("lab.partition"));
  announce.model_fingerprint = 7;
  announce.numerics_id = "cuda-sm90";
  CHECK_THAT(std::string(r.Report(kTail, {announce}).message()), Contains("cuda-sm90"));
  r.Join(kTail, Role::kPrefill);
  CHECK(r.router.View().prefill_workers == 1);
}

// Prompts arrive faster than they can be computed, so relays would increase the total cost.
TEST_CASE("at saturation with short prompts total tokens per second are those without relays") {
  // Returns the milliseconds until 400 prompts of 256 tokens are done, with each rank busy for its
  // slice plus 0.5 ms, and the number of relays.
  const auto run = [](bool relays) {
    RouterOptions options = Relays();
    if (!relays) options.relay.min_tokens = 0;
    RelayPlanningFixture r(options);
    for (const Incarnation worker : {kTail, kHead}) r.ReportLoad(worker, Measured(1, 5e-4));
    std::map<Incarnation, double> busy_until;
    constexpr int kPrompts = 400, kAhead = 16;
    std::vector<std::pair<double, RequestId>> running;
    double now_ms = 0;
    std::map<RequestId, std::vector<std::pair<Incarnation, bool>>> ranks;
    const auto finish_first = [&] {
      const auto first = std::min_element(running.begin(), running.end());
      const auto [end_ms, id] = *first;
      running.erase(first);
      r.now += absl::Milliseconds(std::max(0.0, end_ms - now_ms));
      now_ms = std::max(now_ms, end_ms);
      for (const auto& [worker, is_head] : ranks[id]) {
        std::vector<WorkerEvent> events;
        if (!is_head) events.push_back(Token(id, 256, 7));
        events.push_back(Ended(id, true));
        REQUIRE(r.Report(worker, std::move(events)).ok());
      }
      REQUIRE(r.Report(kDecode, {}).ok());
    };
    for (int i = 0; i < kPrompts; ++i) {
      if (running.size() == kAhead) finish_first();
      r.sent.clear();
      const RequestId id = r.Submit(256, 1);
      double end_ms = 0;
      for (const auto& [worker, request] : r.Sent<PrefillRequest>()) {
        const double before = InflowTokens(request);
        const double tokens = static_cast<double>(request.tokens.size()) - before;
        const double ms = 0.5 + 1e-2 * (tokens + tokens * (before + tokens / 2) / 4096);
        busy_until[worker] = std::max(busy_until[worker], now_ms) + ms;
        end_ms = std::max(end_ms, busy_until[worker]);
        ranks[id].emplace_back(worker, !request.wants_first_token);
      }
      running.emplace_back(end_ms, id);
    }
    while (!running.empty()) finish_first();
    return std::pair(now_ms, r.router.View().relays);
  };
  const auto [without_ms, none] = run(false);
  const auto [with_ms, n_relays] = run(true);
  CHECK(none == 0);
  CHECK(with_ms < 1.02 * without_ms);
  CHECK(n_relays <= 4);  // while the queues fill
}

}  // namespace baton
