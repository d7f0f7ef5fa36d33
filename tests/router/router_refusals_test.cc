// Refusals by the router: impossible requests, workers that do not fit, and reports that a worker
// cannot send.
#include <catch2/catch.hpp>

#include "tests/support/router_harness.h"

namespace baton {

TEST_CASE("refused at once") {
  PairHarness r(RouterOptions{.max_waiting = 2});
  const auto code = [&](GenerateRequest request) {
    return r.router.Submit(std::move(request), r.now).status().code();
  };
  CHECK(code({.prompt = {}}) == absl::StatusCode::kInvalidArgument);
  CHECK(code({.prompt = {1}, .max_tokens = 0}) == absl::StatusCode::kInvalidArgument);
  CHECK(code({.prompt = {1}, .max_tokens = 2048}) == absl::StatusCode::kInvalidArgument);
  CHECK(code({.prompt = {1}, .sampling = {.temperature = -1}}) ==
        absl::StatusCode::kInvalidArgument);
  CHECK(code({.prompt = {1}, .sampling = {.top_p = 0}}) == absl::StatusCode::kInvalidArgument);
  const RequestId a = r.Submit(4, 4);
  r.Submit(4, 4);
  CHECK(code({.prompt = {1}}) == absl::StatusCode::kResourceExhausted);
  r.Cancel(a);
  CHECK(code({.prompt = {1}, .max_tokens = 2047}) == absl::StatusCode::kOk);
}

TEST_CASE("a worker that does not fit is refused by the name of the field") {
  const auto refusal = [](void (*change)(WorkerAnnounce*)) {
    PairHarness r;
    WorkerAnnounce announce = Announce(99, Role::kPrefill);
    change(&announce);
    const absl::Status status = r.Report(99, {announce});
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(r.router.View().prefill_workers == 1);
    return std::string(status.message());
  };
  using Catch::Contains;
  CHECK_THAT(refusal([](WorkerAnnounce* a) { a->model_fingerprint = 8; }),
             Contains("model_fingerprint") && Contains("w99") && Contains("w11"));
  CHECK_THAT(refusal([](WorkerAnnounce* a) { a->numerics_id = "cuda-sm90"; }),
             Contains("numerics_id") && Contains("cuda-sm90") && Contains("cpu-x86"));
  CHECK_THAT(refusal([](WorkerAnnounce* a) { a->layout_id = "M"; }), Contains("layout_id"));
  CHECK_THAT(refusal([](WorkerAnnounce* a) { a->page_tokens = 64; }), Contains("page_tokens"));
  // An empty cluster takes any worker.
  RouterHarness r;
  r.Join(1, Role::kBoth);
  r.Lose(1);
  WorkerAnnounce other = Announce(2, Role::kBoth);
  other.model_fingerprint = 99;
  CHECK(r.Report(2, {other}).ok());
}

TEST_CASE("what a worker cannot know closes its stream, and its requests go elsewhere") {
  PairHarness r;
  r.Join(kD2, Role::kDecode);
  const RequestId id = r.Submit(20, 4);
  const Incarnation decode = r.LastDecodeWorker();
  const Incarnation other = decode == kD1 ? kD2 : kD1;
  r.sent.clear();
  const auto error = [&](Incarnation worker, WorkerEvent event) {
    return r.Report(worker, {std::move(event)}).code();
  };
  SECTION("nothing before the announcement") {
    CHECK(error(77, WorkerLoad{}) == absl::StatusCode::kFailedPrecondition);
    CHECK(r.sent.empty());
  }
  SECTION("announced twice") {
    CHECK(error(decode, Announce(decode, Role::kDecode)) == absl::StatusCode::kFailedPrecondition);
    CHECK(r.LastDecodeWorker() == other);
  }
  SECTION("another's incarnation") {
    CHECK(error(77, Announce(78, Role::kDecode)) == absl::StatusCode::kInvalidArgument);
  }
  SECTION("a future attempt") {
    CHECK(error(decode, Token(id, 21, 8, 2)) == absl::StatusCode::kInvalidArgument);
    CHECK(r.LastDecodeWorker() == other);
  }
  SECTION("a position outside") {
    CHECK(error(decode, Token(id, 24, 8)) == absl::StatusCode::kInvalidArgument);
    CHECK(r.LastDecodeWorker() == other);
  }
  SECTION("another's request") {
    CHECK(error(other, Token(id, 21, 8)) == absl::StatusCode::kInvalidArgument);
    CHECK(r.sent.empty());
  }
  SECTION("another's part") {
    CHECK(error(decode, Ended(id, true)) == absl::StatusCode::kInvalidArgument);
    CHECK(r.LastDecodeWorker() == other);
  }
  r.Lose(decode);  // the stream closes afterwards: no further effect
  r.Cancel(id);
  CheckIdle(r);
}

TEST_CASE("figures and pages that a worker cannot have close its stream, and the others serve on") {
  PairHarness r;
  WorkerAnnounce announce = Announce(kD2, Role::kDecode);
  announce.reuses_kv = true;
  announce.pages_total = 2;
  REQUIRE(r.Report(kD2, {announce, CachedPages{.number = 1, .restart = true}}).ok());
  using Catch::Contains;
  const auto [event, reason] = GENERATE(values<std::pair<WorkerEvent, std::string>>({
      {WorkerLoad{.pages_free = 3}, "load.pages_free is 3, but the worker announced 2 pages"},
      {WorkerLoad{.decode_rows = 9}, "load.decode_rows is 9"},
      {CachedPages{.number = 1}, "cached_pages.number is 1 after 1"},
      {CachedPages{.number = 2, .lost = {{1, 1}}}, "cached_pages.lost"},
      {CachedPages{.number = 2, .entered = {{1, 1}, {1, 1}}}, "was there already"},
      {CachedPages{.number = 2, .entered = {{1, 1}, {2, 2}, {3, 3}}}, "has 2"},
  }));
  const absl::Status status = r.Report(kD2, {event});
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), Contains(reason));
  CHECK(r.router.prefixes().PagesOf(kD2).empty());
  CHECK(r.router.View().decode_workers == 1);
  const RequestId id = r.Submit(20, 2);
  CHECK(r.LastDecodeWorker() == kD1);
  REQUIRE(r.Report(kP1, {Token(id, 20, 7), Ended(id, true)}).ok());
  REQUIRE(r.Report(kD1, {Token(id, 21, 8), Ended(id, false)}).ok());
  CHECK(r.End(id).status.ok());
  CheckIdle(r);
}

TEST_CASE(
    "a request that a worker cannot read ends with its name, at once, and no worker is lost") {
  PairHarness r;
  r.Join(kP2, Role::kPrefill);
  r.Join(kD2, Role::kDecode);
  const bool of_prefill = GENERATE(true, false);
  const RequestId other = r.Submit(4, 4);
  GenerateRequest request;
  request.name = "their-name";
  request.prompt = {1, 2, 3};
  const RequestId id = r.Submit(request);
  const Incarnation worker = of_prefill ? r.LastPrefillWorker() : r.LastDecodeWorker();
  const Incarnation partner = of_prefill ? r.LastDecodeWorker() : r.LastPrefillWorker();
  r.sent.clear();
  PartEnded ended = Ended(id, of_prefill, EndReason::kFailed);
  ended.fault = PartFault::kUnreadable;
  ended.message = "decode.stop_tokens count: 4000";
  REQUIRE(r.Report(worker, {ended}).ok());
  CHECK(r.End(id).reason == EndReason::kFailed);
  using Catch::Contains;
  CHECK_THAT(std::string(r.End(id).status.message()),
             Contains("their-name") && Contains("decode.stop_tokens count: 4000"));
  // No other worker is tried; the partner is cancelled.
  CHECK(r.Sent<PrefillRequest>().empty());
  CHECK(r.Sent<DecodeRequest>().empty());
  REQUIRE(r.Sent<CancelRequest>().size() == 1);
  CHECK(r.Sent<CancelRequest>()[0].first == partner);
  REQUIRE(r.Report(partner, {Ended(id, !of_prefill, EndReason::kCancelled)}).ok());
  CHECK(r.closed.empty());
  CHECK_FALSE(r.Ended(other));
  CHECK(r.router.View().prefill_workers == 2);
  CHECK(r.router.View().decode_workers == 2);
  r.Cancel(other);
  CheckIdle(r);
}

TEST_CASE(
    "a request whose grammar cannot go on ends as the client's fault, and no other is tried") {
  PairHarness r;
  r.Join(kP2, Role::kPrefill);
  r.Join(kD2, Role::kDecode);
  const bool of_prefill = GENERATE(true, false);
  const RequestId id = r.Submit(4, 4);
  const Incarnation worker = of_prefill ? r.LastPrefillWorker() : r.LastDecodeWorker();
  const Incarnation partner = of_prefill ? r.LastDecodeWorker() : r.LastPrefillWorker();
  r.sent.clear();
  PartEnded ended = Ended(id, of_prefill, EndReason::kFailed);
  ended.fault = PartFault::kGrammar;
  ended.message = "the grammar needs too much work";
  if (of_prefill) {
    REQUIRE(r.Report(worker, {ended}).ok());
  } else {
    // The tokens before the end are told first: the prefill worker's is still on its way.
    REQUIRE(r.Report(worker, {Token(id, 5, 8), ended}).ok());
    CHECK_FALSE(r.Ended(id));
    REQUIRE(r.Report(partner, {Token(id, 4, 7)}).ok());
    CHECK(r.tokens[id] == std::vector<int32_t>{7, 8});
  }
  CHECK(r.End(id).status == absl::InvalidArgumentError("the grammar needs too much work"));
  CHECK(r.Sent<PrefillRequest>().empty());
  CHECK(r.Sent<DecodeRequest>().empty());
  REQUIRE(r.Sent<CancelRequest>().size() == 1);
  CHECK(r.Sent<CancelRequest>()[0].first == partner);
  REQUIRE(r.Report(partner, {Ended(id, !of_prefill, EndReason::kCancelled)}).ok());
  CheckIdle(r);
}

}  // namespace baton
