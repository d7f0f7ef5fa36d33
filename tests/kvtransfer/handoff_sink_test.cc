// The sink's state machine alone, event by event: checks, claims, completion, resumes, and pages
// that are released only when no receive writes them any more.
#include "tests/kvtransfer/handoff_rigs.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

TEST_CASE("sink: a chunk is checked before any receive is posted") {
  using Verdict = HandoffSink::Verdict;
  using Reason = wire::NackReason;
  SinkRig rig(4);
  const auto reason = [&](const wire::ChunkHeader& header) {
    const auto decision = rig.sink.Check(header);
    CHECK(decision.verdict == Verdict::kRefuse);
    return decision.reason;
  };
  CHECK(rig.sink.Check(rig.Page(0)).verdict == Verdict::kAccept);
  CHECK(reason(rig.Header(2, 1, 0, 1, 40, 0)) == Reason::kBadRange);
  CHECK(reason(rig.Header(0, 3, 0, 1, 100, 0)) == Reason::kBadRange);
  CHECK(reason(rig.Header(0xffffffff, 2, 0, 1, 100, 0)) == Reason::kBadRange);
  CHECK(reason(rig.Header(0, 2, 4, 1, 100, 0)) ==
        Reason::kBadRange);  // the promised page without KV
  CHECK(reason(rig.Header(0, 2, 0xffffffff, 2, 200, 0)) == Reason::kBadRange);
  CHECK(reason(rig.Header(0, 0, 0, 1, 0, 0)) == Reason::kBadRange);
  CHECK(reason(rig.Header(0, 1, 0, 0, 0, 0)) == Reason::kBadRange);
  CHECK(reason(rig.Header(0, 1, 0, 1, 59, 0)) == Reason::kBadRange);
  CHECK(reason(rig.Header(0, 2, 0, 2, 200, 0)) == Reason::kTooBig);
  rig.sink.Claim(rig.Header(0, 1, 3, 1, 60, 8));
  CHECK(reason(rig.Page(3)) == Reason::kBadRange);  // half of the page is under way
  rig.Land(rig.Header(0, 1, 3, 1, 60, 8), false);
  rig.sink.Claim(rig.Page(0));
  CHECK(rig.sink.Check(rig.Page(0)).verdict == Verdict::kAlreadyComing);
  rig.sink.Claim(rig.Page(1));
  CHECK(reason(rig.Page(2)) == Reason::kNotGranted);  // 200 of 250 bytes are under way
  rig.Land(rig.Page(0), true);
  CHECK(rig.sink.Check(rig.Page(0)).verdict == Verdict::kAlreadyHere);
  CHECK(rig.sink.Check(rig.Page(2)).verdict == Verdict::kAccept);
  CHECK(FindMessage<wire::Ack>(rig.Effects())->chunk_seq == 0);
}

TEST_CASE("sink: ids are bound as KV arrives, damage leaves the cells missing") {
  SinkRig rig(2);
  CHECK(rig.receive_pool.free_pages() == 5);
  CHECK(rig.receive_pool.in_pool() == 8);
  rig.sink.Claim(rig.Header(0, 1, 1, 1, 60, 0));
  CHECK(rig.receive_pool.in_pool() == 7);
  rig.Land(rig.Header(0, 1, 1, 1, 60, 0), false);
  CHECK(FindMessage<wire::Nack>(rig.Effects())->reason == wire::NackReason::kCrc);
  CHECK(rig.sink.Check(rig.Header(0, 1, 1, 1, 60, 0)).verdict == HandoffSink::Verdict::kAccept);
  CHECK(rig.promise.bound_pages() == 1);
}

TEST_CASE("sink: complete needs every cell, DONE, COMMIT and the right digest, in any order") {
  const uint64_t digest = wire::ChunkDigest(0, 50) + wire::ChunkDigest(1, 51);
  for (const int order : {0, 1, 2}) {
    SinkRig rig(2);
    rig.sink.Claim(rig.Page(0));
    rig.sink.Claim(rig.Page(1));
    if (order == 0) rig.DoneAndCommit(digest);
    rig.Land(rig.Page(1), true);
    if (order == 1) rig.DoneAndCommit(digest);
    CHECK_FALSE(rig.complete());
    rig.Land(rig.Page(0), true);
    if (order == 2) {
      rig.Commit();
      CHECK_FALSE(rig.complete());
      rig.Done(digest);
    }
    REQUIRE(rig.complete());
    CHECK(FindMessage<wire::Committed>(rig.Effects()) != nullptr);
    CHECK(FindEvent<HandoffArrived>(rig.setup)->pages.size() == 3);
    CHECK(rig.receive_pool.owed() == 0);
    CHECK(rig.receive_pool.in_pool() == 5);
  }
  SinkRig rig(1);
  rig.sink.Claim(rig.Page(0));
  rig.Land(rig.Page(0), true);
  rig.DoneAndCommit(digest);  // digest of other chunks
  CHECK(FindEvent<HandoffAborted>(rig.setup)->status.code() == absl::StatusCode::kDataLoss);
  CHECK(rig.receive_pool.free_pages() == 8);
}

TEST_CASE("sink: after a break it answers only when no receive of the old connection is left") {
  SinkRig rig(3);
  for (const uint32_t page : {0u, 1u, 2u})
    if (page < 2) rig.sink.Claim(rig.Page(page));
  rig.Land(rig.Page(0), true);
  rig.sink.ConnectionLost(10);
  rig.Effects() = {};
  rig.sink.Resume(9, 0, 0, 20);
  CHECK(rig.Effects().messages.empty());
  CHECK(rig.sink.state() == HandoffSink::State::kSuspended);
  CHECK(rig.sink.connection() == 9);
  SECTION("it arrived before the break") {
    rig.Land(rig.Page(1), true);
    REQUIRE(rig.Effects().messages.size() == 3);  // ACK, ACK, PROMISE in this order
    CHECK(std::get<wire::Ack>(rig.Effects().messages[0]).chunk_seq == 0);
    CHECK(std::get<wire::Ack>(rig.Effects().messages[1]).chunk_seq == 1);
    CHECK(std::holds_alternative<wire::Promise>(rig.Effects().messages[2]));
    CHECK(rig.sink.Check(rig.Page(1)).verdict == HandoffSink::Verdict::kAlreadyHere);
  }
  SECTION("it was lost or damaged") {
    rig.Land(rig.Page(1), false);
    REQUIRE(rig.Effects().messages.size() == 2);
    CHECK(rig.sink.Check(rig.Page(1)).verdict == HandoffSink::Verdict::kAccept);
  }
  CHECK(rig.sink.state() == HandoffSink::State::kReceiving);
  CHECK(rig.receive_pool.free_pages() == 4);  // the pages stayed all the time
}

TEST_CASE("sink: it acknowledges again only what its source does not know of") {
  SinkRig rig(3);
  for (const uint32_t page : {2u, 0u}) {
    rig.sink.Claim(rig.Page(page));
    rig.Land(rig.Page(page), true);
  }
  rig.sink.ConnectionLost(10);
  rig.Effects() = {};
  rig.sink.Resume(9, 1, 0, 20);
  REQUIRE(rig.Effects().messages.size() == 2);
  CHECK(std::get<wire::Ack>(rig.Effects().messages[0]).chunk_seq == 2);
}

TEST_CASE("sink: the last chunk of the old connection completes it without waiting for the next") {
  SinkRig rig(1);
  rig.DoneAndCommit(wire::ChunkDigest(0, 50));
  rig.sink.Claim(rig.Page(0));
  rig.sink.ConnectionLost(10);
  rig.Land(rig.Page(0), true);
  CHECK(rig.complete());
  CHECK(FindEvent<HandoffArrived>(rig.setup) != nullptr);
}

TEST_CASE("sink: one that waits for room keeps waiting over the next connection") {
  SinkRig rig(1, /*promised=*/false);
  rig.sink.ConnectionLost(1'000'000);
  rig.sink.Resume(4, wire::kNewHandoff, 55, 2'000'000);
  CHECK(FindMessage<wire::NoRoom>(rig.Effects())->expected_wait_us == 55);
  rig.Tick(kRoomTimeoutUs - 1);  // since its first OPEN
  CHECK(rig.sink.status().ok());
  rig.Tick(kRoomTimeoutUs);
  CHECK(rig.sink.status().code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("sink: a source that does not return in time has lost its handoff") {
  SinkRig rig(1);
  rig.sink.ConnectionLost(1'000'000);
  rig.Tick(4'999'999);
  CHECK(rig.sink.status().ok());
  rig.Tick(5'000'000);
  CHECK(rig.sink.status().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("sink: pages of an aborted handoff come back when nothing can write them any more") {
  SinkRig rig(3);
  rig.sink.Claim(rig.Page(0));
  rig.sink.Claim(rig.Page(1));
  rig.Land(rig.Page(1), true);
  rig.Abort(absl::CancelledError("owner"), 10);
  CHECK(FindMessage<wire::Cancel>(rig.Effects()) != nullptr);
  CHECK(rig.receive_pool.free_pages() == 6);  // promised pages without a receive, at once
  CHECK_FALSE(rig.sink.ended());
  CHECK(rig.sink.Check(rig.Page(2)).reason == wire::NackReason::kUnknownTicket);
  rig.sink.Tick(10 + kDrainTimeoutUs);
  CHECK(rig.Effects().close_connection);
  CHECK(FindEvent<HandoffAborted>(rig.setup) == nullptr);
  rig.Land(rig.Page(0), true);
  CHECK(rig.sink.ended());
  CHECK(FindEvent<HandoffAborted>(rig.setup) != nullptr);
  CHECK(rig.receive_pool.free_pages() == 8);
}

}  // namespace
}  // namespace baton
