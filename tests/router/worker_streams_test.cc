// Streams of workers: messages that reach them, and reports of streams that are to end.
#include "router/worker_streams.h"

#include <catch2/catch.hpp>

#include "tests/support/router_harness.h"

namespace baton {
namespace {

constexpr Incarnation kPrefillWorker = 9, kDecodeWorker = 3;

struct Streams {
  Streams() {
    Join(kPrefillWorker, Role::kPrefill);
    Join(kDecodeWorker, Role::kDecode);
  }
  void Join(Incarnation worker, Role role) {
    REQUIRE(streams.OnReport(worker, {.events = {Announce(worker, role)}}, now).ok());
  }
  RequestId Submit() {
    GenerateRequest request{.prompt = std::vector<int32_t>(20, 7), .max_tokens = 3};
    const absl::StatusOr<RequestId> id = router.Submit(std::move(request), now);
    REQUIRE(id.ok());
    streams.Collect();
    return *id;
  }

  absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  Router router{RouterOptions{.local = false}, TestKey(), CountedId};  // both workers have parts
  WorkerStreams streams{&router};
};

}  // namespace

TEST_CASE("messages are sorted by worker, in order, and given out once") {
  Streams s;
  const RequestId id = s.Submit();
  s.router.Cancel(id, s.now);
  s.streams.Collect();
  const WorkerStreams::Messages messages = s.streams.TakeMessages();
  REQUIRE(messages.size() == 2);
  REQUIRE(messages.at(kPrefillWorker).size() == 2);
  CHECK(std::holds_alternative<PrefillRequest>(messages.at(kPrefillWorker)[0]));
  CHECK(std::holds_alternative<CancelRequest>(messages.at(kPrefillWorker)[1]));
  CHECK(std::holds_alternative<DecodeRequest>(messages.at(kDecodeWorker)[0]));
  CHECK(s.streams.messages().empty());
  REQUIRE(s.streams.emissions().size() == 1);
  CHECK(std::get<EmitEnd>(s.streams.emissions()[0]).reason == EndReason::kCancelled);
}

TEST_CASE("what was meant for a lost stream never reaches the worker's next one") {
  Streams s;
  s.Submit();
  REQUIRE(s.streams.messages().count(kDecodeWorker) == 1);
  s.streams.OnLost(kDecodeWorker, s.now);
  CHECK(s.streams.messages().count(kDecodeWorker) == 0);
  CHECK(s.streams.messages().count(kPrefillWorker) == 1);
  s.Join(kDecodeWorker, Role::kDecode);
  const RequestId next = s.Submit();
  const WorkerStreams::Messages messages = s.streams.TakeMessages();
  REQUIRE(messages.at(kDecodeWorker).size() == 1);
  CHECK(std::get<DecodeRequest>(messages.at(kDecodeWorker)[0]).request_id == next);
}

TEST_CASE("a stream whose report is refused is to end, and says nothing more until it has") {
  Streams s;
  const RequestId id = s.Submit();
  const TokenOut impossible{.request_id = id, .epoch = 5, .position = 20, .token = 1};
  const absl::Status refused = s.streams.OnReport(kPrefillWorker, {.events = {impossible}}, s.now);
  CHECK(refused.code() == absl::StatusCode::kInvalidArgument);
  CHECK(s.streams.IsClosed(kPrefillWorker));
  const WorkerStreams::Closes closes = s.streams.TakeCloses();
  REQUIRE(closes.size() == 1);
  CHECK(closes.at(kPrefillWorker) == refused);
  CHECK(s.streams.TakeCloses().empty());
  // The Router has forgotten the worker: it would refuse this.
  CHECK(s.streams.OnReport(kPrefillWorker, {.events = {WorkerLoad{}}}, s.now).ok());
  CHECK(s.streams.TakeCloses().empty());
  s.streams.OnLost(kPrefillWorker, s.now);
  CHECK(!s.streams.IsClosed(kPrefillWorker));
  s.Join(kPrefillWorker, Role::kPrefill);
  CHECK(s.router.View().prefill_workers == 1);
}

TEST_CASE("a silent worker's stream is to end with the Router's reason") {
  Streams s;
  s.now += absl::Seconds(2);
  REQUIRE(s.streams.OnReport(kDecodeWorker, {}, s.now).ok());
  for (const absl::Time end = s.now + absl::Seconds(2); s.now < end;) {
    s.now = std::max(s.now, s.router.NextDeadline());
    REQUIRE(s.streams.OnReport(kDecodeWorker, {}, s.now).ok());
    s.router.OnTime(s.now);
  }
  s.streams.Collect();
  CHECK(s.streams.IsClosed(kPrefillWorker));
  CHECK(!s.streams.IsClosed(kDecodeWorker));
  const WorkerStreams::Closes closes = s.streams.TakeCloses();
  CHECK(closes.at(kPrefillWorker).code() == absl::StatusCode::kUnavailable);
}

}  // namespace baton
