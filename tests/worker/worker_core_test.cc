// A relay's slice among steps, and what a worker tells, turn by turn.
#include "tests/worker/worker_fixture.h"

#include "proto/control_codec.h"
#include "tests/support/cached_pages.h"
#include "worker/announce.h"

namespace baton {
namespace {

TEST_CASE("a request has one range of longrope in prefill and decode") {
  const RopeDesc rope = LongropeFrom(23);
  for (const int max_tokens : {3, 4}) {  // the max of the short range, and one more
    WorkerFixture rig(rope);
    rig.Say(DecodeRequest{.request_id = 9,
                          .epoch = 1,
                          .ticket_id = kSequenceTicket,
                          .tokens = rig.prompt,
                          .max_tokens = max_tokens,
                          .sampling = {.temperature = 0}});
    PrefillRequest request;
    request.request_id = 9;
    request.epoch = 1;
    request.tokens = rig.prompt;
    request.sampling.temperature = 0;
    request.max_total_tokens = 20 + max_tokens;
    SetWhole(&request,
             {.id = kSequenceTicket,
              .promise = kSequenceTicket,
              .kv_pages = 5,
              .promise_pages = 6,
              .n_pages = 5},
             {.incarnation = kSelf});
    rig.Say(request);
    rig.Turns();
    std::vector<int32_t> tokens;
    for (const TokenOut& token : rig.tokens[9]) tokens.push_back(token.token);
    CHECK(tokens == Expected(rig.prompt, max_tokens, rope).tokens);
    CHECK(tokens !=
          Expected(rig.prompt, max_tokens, LongropeFrom(max_tokens == 3 ? 22 : 24)).tokens);
  }
}

TEST_CASE(
    "a worker tells what prefill costs it, by steps without decode rows and by slices, and what "
    "waits") {
  WorkerFixture rig;
  rig.Tail(false);
  CHECK_FALSE(rig.load.prefill_cost.is_known());
  CHECK(rig.load.prefill_queued_tokens == 8);
  CHECK(rig.load.prefill_queued_pairs == 8 * 12 + 8 * 8 / 2);
  rig.Flow(1, 3);
  rig.Turns();
  rig.now += absl::Seconds(2);  // the load is reported again
  rig.Turns();
  // The times of the slice's six blocks, without other work between them.
  const PrefillCost cost = rig.load.prefill_cost;
  CHECK(cost.n_layers * (cost.token * 8 + cost.pair * 128) == Approx(6 * 10e-6));
  CHECK(rig.load.prefill_queued_pairs == 0);
  rig.Sequence();
  rig.Turns();
  rig.now += absl::Seconds(2);
  rig.Turns();
  CHECK(rig.core->metrics().steps > 1);
  CHECK(rig.load.prefill_cost == cost);
}

TEST_CASE("a load tells how long a step of prompts takes, with the attention of all its tokens") {
  WorkerFixture rig;
  rig.backend.ran = [&](int tokens, int layers) {  // a prompt is a step: attention is quadratic
    rig.now += layers * tokens * (absl::Microseconds(100) + tokens * absl::Microseconds(10));
  };
  for (const int tokens : {58, 10, 59, 20, 57, 30, 56, 40})
    rig.Compute(static_cast<RequestId>(tokens), Tokens(tokens, tokens));
  rig.Ask(60, Tokens(60, 60));  // waits
  const WorkerLoad load = rig.core->metrics().load;
  const PrefillCost& cost = load.prefill_cost;
  REQUIRE(load.prefill_queued_tokens == 60);
  REQUIRE(cost.pair > 0);
  const double pairs = load.prefill_queued_pairs / 60;
  constexpr int kStep = 64;  // the max of the fixture
  CHECK(load.prompt_step_seconds == Approx(cost.Work(kStep, kStep * pairs)));
}

TEST_CASE("a load tells the speeds of links, which alone are no reason for one") {
  WorkerFixture rig;
  const auto links_after = [&rig](absl::Duration duration) {
    rig.now += duration;
    rig.Turns();
    return rig.load.links;
  };
  REQUIRE(links_after(absl::Seconds(1)).empty());
  rig.core->Handle(TransferEvent(LinksMeasured{{{3, 5e6, 70}, {4, 2e6, 0}}}));
  CHECK(links_after(absl::Milliseconds(500)).empty());
  CHECK(links_after(absl::Seconds(1)) == std::vector<LinkRate>{{3, 5e6, 70}, {4, 2e6, 0}});
  rig.core->Handle(
      TransferEvent(LinksMeasured{std::vector<LinkRate>(ControlLimits::kLinks + 1, {3, 1e6, 0})}));
  CHECK(links_after(absl::Seconds(1)).size() == ControlLimits::kLinks);
}

TEST_CASE("a worker tells what it has cached: all at first and when asked, else what changes") {
  WorkerFixture rig;
  rig.Turns();
  CHECK(rig.n_restarts == 1);
  CHECK(rig.known.empty());
  rig.Compute(20, rig.prompt);
  const std::vector<PageName> names = PageNames(ClusterKey{}, rig.prompt, kPageTokens);
  CHECK(rig.known == std::set<PageName>(names.begin(), names.end()));
  CHECK(rig.KnowsAll());
  const uint64_t n_told = rig.n_told;
  rig.Compute(21, rig.prompt);  // nothing new
  CHECK(rig.n_told == n_told);
  rig.Say(TellPages{});
  rig.Turns();
  CHECK(rig.n_restarts == 2);
  CHECK(rig.known.size() == names.size());
  // More prompts than the pool has room for: pages are lost.
  for (RequestId id = 30; id < 50; ++id) {
    rig.Compute(id, Tokens(20, static_cast<int>(id)));
    CHECK(rig.KnowsAll());
  }
  CHECK(rig.n_restarts == 2);
  CHECK(std::count_if(names.begin(), names.end(),
                      [&rig](const PageName& name) { return rig.known.contains(name); }) < 5);
  // A router that comes later knows nothing of it.
  rig.core->Handle(RouterEvent(RouterDisconnected{}));
  rig.Turns();
  rig.core->Handle(RouterEvent(RouterConnected{}));
  rig.known.clear();
  rig.n_told = 0;  // messages to it are numbered anew
  rig.Turns();
  CHECK(rig.n_restarts == 3);
  CHECK_FALSE(rig.known.empty());
  CHECK(rig.KnowsAll());
}

TEST_CASE("a worker's names of pages depend on RoPE's range, by the bound that it announces") {
  for (const int max_short_tokens : {19, 20}) {
    WorkerFixture rig(LongropeFrom(max_short_tokens));
    rig.Compute(20, rig.prompt);
    const WorkerAnnounce announce =
        AnnounceOf({.self = kSelf, .max_context = 100}, {}, rig.backend, *rig.pool);
    CHECK(announce.short_range_tokens == max_short_tokens);
    const std::vector<PageName> names =
        PageNames(ClusterKey{}, rig.prompt, kPageTokens, 0, 20 > announce.short_range_tokens);
    CHECK(rig.known == std::set<PageName>(names.begin(), names.end()));
  }
  WorkerFixture rig;
  CHECK(AnnounceOf({.self = kSelf, .max_context = 100}, {}, rig.backend, *rig.pool)
            .short_range_tokens == 0);
}

TEST_CASE("a draining worker keeps no KV of what it refuses, in whatever order the two come") {
  const bool kv_is_first = GENERATE(true, false);
  WorkerFixture rig;
  DecodeRequest request{.request_id = 8,
                        .epoch = 1,
                        .ticket_id = kInflowTicket,
                        .tokens = Tokens(12, 9),
                        .max_tokens = 3};
  rig.Say(request);  // for which pages are lent
  const std::vector<int32_t> pages = rig.TakeLent(3);
  rig.core->Drain();
  request.request_id = 9;
  request.ticket_id = kSequenceTicket;
  if (!kv_is_first) rig.Say(request);
  rig.core->Handle(TransferEvent(HandoffArrived{.ticket_id = kSequenceTicket,
                                                .epoch = 1,
                                                .request_id = 9,
                                                .pages = pages,
                                                .record = {.first_token = 1, .n_tokens = 12}}));
  if (kv_is_first) rig.Say(request);
  rig.Turns();
  REQUIRE(rig.TakeLent(0).empty());
  CHECK(rig.pool->held() == static_cast<int>(rig.lent.size()));
  REQUIRE(rig.ends.size() == 1);  // the refusal alone
  CHECK(rig.ends[0].fault == PartFault::kDraining);
  const auto n_cancelled = [&rig](const TicketId& ticket) {
    return std::ranges::count_if(rig.commands, [&](const TransferCommand& command) {
      const auto* cancel = std::get_if<CancelHandoff>(&command);
      return cancel != nullptr && cancel->ticket_id == ticket;
    });
  };
  CHECK(n_cancelled(kSequenceTicket) == 1);
  CHECK(n_cancelled(kInflowTicket) == 0);
  request.request_id = 8;  // a later attempt at what is expected: the earlier one is over
  request.epoch = 2;
  rig.Say(request);
  rig.Turns();
  CHECK(n_cancelled(kInflowTicket) == 1);
  CHECK(rig.core->metrics().load.decode_waiting == 0);
}

TEST_CASE("a slice goes on plane by plane") {
  WorkerFixture rig;
  rig.Tail();
  REQUIRE(rig.core->metrics().slice_blocks == 3);
  REQUIRE(rig.core->metrics().slice_wait_seconds == 0);
  rig.Flow(1, 2);
  REQUIRE(rig.core->Turn());
  REQUIRE(rig.core->Turn());
  REQUIRE_FALSE(rig.core->Turn());
  rig.Flow(2, 3);
  rig.Turns();
  REQUIRE(rig.backend.block_rows.back() == 1);  // of the last layer
  REQUIRE(rig.tokens[7].size() == 1);
  REQUIRE(rig.tokens[7][0].token == Expected(rig.prompt, 1).tokens[0]);
  const WorkerMetrics metrics = rig.core->metrics();
  REQUIRE(metrics.steps == 0);
  REQUIRE(metrics.prefill_tokens == 8);
  REQUIRE(metrics.slice_blocks == 6);
  REQUIRE(metrics.slice_seconds > 0);
  REQUIRE(metrics.slice_wait_seconds > 0);
}

TEST_CASE("rows do not wait for a slice, and it goes on beside them") {
  WorkerFixture rig;
  rig.Tail(false);
  rig.Sequence();
  const std::vector<int32_t> expected = Expected(rig.sequence_prompt, 4).tokens;
  rig.backend.block_rows.clear();
  for (size_t i = 0; i < 3; ++i) {
    REQUIRE(rig.core->Turn());
    REQUIRE(rig.tokens[8].size() == i + 1);  // a token in every turn
    REQUIRE(rig.tokens[8][i].token == expected[i + 1]);
    REQUIRE(rig.backend.block_rows.size() <= i + 1);
  }
  // With rows in the batch, a block costs at most as much as two prompt tokens in a step: six rows
  // of one of three layers.
  for (const int rows : rig.backend.block_rows) REQUIRE(rows <= 6);
  REQUIRE(rig.tokens[7].empty());
  rig.Flow(1, 3);
  rig.Turns();
  REQUIRE(rig.tokens[7].at(0).token == Expected(rig.prompt, 1).tokens[0]);
}

// A layer takes 1 ms, and .1 ms for each token of the step.
TEST_CASE("beside rows, prompts have as many tokens as the stretch of a step allows") {
  const double stretch = GENERATE(1, 2, 3);
  WorkerFixture rig({}, stretch);
  rig.backend.ran = [&](int tokens, int layers) {
    rig.now += layers * (absl::Milliseconds(1) + tokens * absl::Microseconds(100));
  };
  for (const int tokens : {60, 10, 59, 20, 58, 57, 30}) {  // so many that their cost is believed
    rig.Compute(static_cast<RequestId>(tokens), Tokens(tokens, tokens));
  }
  rig.Sequence(60);
  for (int i = 0; i < 6; ++i) rig.core->Turn();
  rig.Ask(9, Tokens(60, 9));
  std::vector<int> taken;
  while (rig.tokens[9].empty()) {
    const uint64_t before = rig.core->metrics().prefill_tokens;
    REQUIRE(rig.core->Turn());
    taken.push_back(static_cast<int>(rig.core->metrics().prefill_tokens - before));
  }
  // A step of the row alone takes 3.3 ms, a token more .3 ms; two in any case.
  const double expected = std::max(2.0, (stretch - 1) * 3.3 / .3);
  for (size_t i = 0; i + 1 < taken.size(); ++i) CHECK(taken[i] == Approx(expected).epsilon(.2));
  CHECK(rig.tokens[9].at(0).token == Expected(Tokens(60, 9), 1).tokens[0]);
  CHECK(rig.load.step_cost.is_known());
}

TEST_CASE("what prompts add to steps with rows tells their cost, with the base of such a step") {
  WorkerFixture rig({}, 3);
  rig.backend.ran = [&](int tokens, int layers) {
    rig.now += layers * (absl::Milliseconds(1) + tokens * absl::Microseconds(100));
  };
  rig.Sequence(60);
  for (int i = 0; i < 6; ++i) rig.core->Turn();
  for (const int tokens : {12, 4, 9, 6, 11, 5}) {
    const auto id = static_cast<RequestId>(tokens);
    rig.Ask(id, Tokens(tokens, tokens));
    while (rig.tokens[id].empty()) REQUIRE(rig.core->Turn());
  }
  REQUIRE(rig.core->metrics().load.decode_rows == 1);  // no step was a prompt's alone
  const PrefillCost cost = rig.core->metrics().load.prefill_cost;
  CHECK(cost.Work(8 + cost.extra_tokens, 0) == Approx(3e-3 + 8 * .3e-3).epsilon(.1));
}

TEST_CASE("scoring a prompt is part of its step, and the step's rows do not wait for it") {
  WorkerFixture rig;
  rig.Sequence();
  PrefillRequest scored;
  scored.request_id = 9;
  scored.epoch = 1;
  scored.tokens = rig.prompt;
  scored.sampling.temperature = 0;
  scored.prompt_logprobs = 0;
  SetWhole(&scored, {}, {});
  rig.Say(scored);
  size_t n_told = 0;
  rig.backend.before_scores = [&] {
    rig.now += absl::Seconds(1);
    n_told = rig.tokens[8].size();
  };
  const WorkerMetrics before = rig.core->metrics();
  for (size_t i = 1; i <= 3; ++i) {  // half of the two tokens beside rows, which may be one
    REQUIRE(rig.core->Turn());
    CHECK(n_told == i);
    const WorkerMetrics metrics = rig.core->metrics();
    CHECK(metrics.prefill_tokens == before.prefill_tokens + i);
    CHECK(metrics.step_seconds - before.step_seconds > static_cast<double>(i));
    CHECK(metrics.prefill_seconds - before.prefill_seconds > static_cast<double>(i));
  }
  rig.Turns();
  CHECK(rig.tokens[9].at(0).token == Expected(rig.prompt, 1).tokens[0]);
  rig.now += absl::Seconds(2);
  rig.Turns();
  CHECK(rig.load.prefill_cost.token < 1e-3);  // what prompts cost that are not scored
}

TEST_CASE("shorter prompts pass a slice, and a cancel reaches it, within one block") {
  WorkerFixture rig;
  rig.Tail(false);
  REQUIRE(rig.core->Turn());
  const size_t blocks = rig.backend.block_rows.size();
  PrefillRequest next;
  next.request_id = 9;
  next.epoch = 1;
  next.tokens = rig.sequence_prompt;
  next.sampling.temperature = 0;
  SetWhole(&next, {}, {});
  rig.Say(next);
  REQUIRE(rig.core->Turn());
  REQUIRE(rig.tokens[9].at(0).token == Expected(rig.sequence_prompt, 1).tokens[0]);
  REQUIRE(rig.backend.block_rows.size() == blocks + 1);
  rig.Say(CancelRequest{.request_id = 7, .epoch = 1});
  rig.Turns();
  REQUIRE(rig.backend.block_rows.size() == blocks + 1);
  rig.core->Handle(TransferEvent(InflowFailed{
      .ticket_id = kInflowTicket, .epoch = 1, .status = absl::CancelledError("cancelled")}));
  rig.core->Turn();
  REQUIRE(rig.ends.back().reason == EndReason::kCancelled);
}

TEST_CASE("a slice is dropped with its prompt, and the worker goes on") {
  WorkerFixture rig;
  rig.Tail();
  const bool cancelled = GENERATE(true, false);
  if (cancelled) rig.Say(CancelRequest{.request_id = 7, .epoch = 1});
  rig.core->Turn();
  REQUIRE(rig.ends.empty());  // the pages may still be written
  rig.core->Handle(TransferEvent(InflowFailed{
      .ticket_id = kInflowTicket, .epoch = 1, .status = absl::UnavailableError("head lost")}));
  PrefillRequest next;
  next.request_id = 9;
  next.epoch = 1;
  next.tokens = rig.prompt;
  next.sampling.temperature = 0;
  SetWhole(&next, {}, {});
  rig.Say(next);
  rig.Turns();
  REQUIRE(rig.ends.size() == 2);
  REQUIRE(rig.ends[0].reason == (cancelled ? EndReason::kCancelled : EndReason::kFailed));
  REQUIRE(rig.tokens[9].at(0).token == Expected(rig.prompt, 1).tokens[0]);
  // The slice of a broken attempt is kept for a while.
  REQUIRE((rig.pool->held() == 0) == cancelled);
  rig.now += 2 * PrefillOptions().kept_slice_time;
  rig.Turns();
  REQUIRE(rig.pool->held() == 0);
}

TEST_CASE("a worker that closes with a slice keeps nothing") {
  WorkerFixture rig;
  rig.Tail();
  rig.core->Close();
  rig.Turns();
  REQUIRE_FALSE(rig.core->IsQuiet());
  rig.core->Handle(TransferEvent(InflowFailed{
      .ticket_id = kInflowTicket, .epoch = 1, .status = absl::CancelledError("cancelled")}));
  REQUIRE(rig.core->IsQuiet());
}

}  // namespace
}  // namespace baton
