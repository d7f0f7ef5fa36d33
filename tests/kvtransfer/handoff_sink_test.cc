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
  rig.sink.Claim(rig.Header(0, 1, 3, 1, 60, 8), &rig.stock);
  CHECK(reason(rig.Page(3)) == Reason::kBadRange);  // half of the page is under way
  rig.Land(rig.Header(0, 1, 3, 1, 60, 8), HandoffSink::Landing::kLost);
  rig.sink.Claim(rig.Page(0), &rig.stock);
  CHECK(rig.sink.Check(rig.Page(0)).verdict == Verdict::kAlreadyComing);
  rig.sink.Claim(rig.Page(1), &rig.stock);
  CHECK(reason(rig.Page(2)) == Reason::kNotGranted);  // 200 of 250 bytes are under way
  rig.Land(rig.Page(0), HandoffSink::Landing::kVerified);
  CHECK(rig.sink.Check(rig.Page(0)).verdict == Verdict::kAlreadyHere);
  CHECK(rig.sink.Check(rig.Page(2)).verdict == Verdict::kAccept);
  CHECK(FindMessage<wire::Ack>(rig.effects)->chunk_seq == 0);
}

TEST_CASE("sink: ids are bound as KV arrives, damage leaves the cells missing") {
  SinkRig rig(2);
  CHECK(rig.stock.free_pages() == 5);
  CHECK(rig.stock.in_pool() == 8);
  rig.sink.Claim(rig.Header(0, 1, 1, 1, 60, 0), &rig.stock);
  CHECK(rig.stock.in_pool() == 7);
  rig.Land(rig.Header(0, 1, 1, 1, 60, 0), HandoffSink::Landing::kDamaged);
  CHECK(FindMessage<wire::Nack>(rig.effects)->reason == wire::NackReason::kCrc);
  CHECK(rig.sink.Check(rig.Header(0, 1, 1, 1, 60, 0)).verdict == HandoffSink::Verdict::kAccept);
  CHECK(rig.promise.bound_pages() == 1);
}

TEST_CASE("sink: complete needs every cell, DONE, COMMIT and the right digest, in any order") {
  const uint64_t digest = wire::ChunkDigest(0, 50) + wire::ChunkDigest(1, 51);
  for (const int order : {0, 1, 2}) {
    SinkRig rig(2);
    rig.sink.Claim(rig.Page(0), &rig.stock);
    rig.sink.Claim(rig.Page(1), &rig.stock);
    if (order == 0) rig.DoneAndCommit(digest);
    rig.Land(rig.Page(1), HandoffSink::Landing::kVerified);
    if (order == 1) rig.DoneAndCommit(digest);
    CHECK_FALSE(rig.sink.complete());
    rig.Land(rig.Page(0), HandoffSink::Landing::kVerified);
    if (order == 2) {
      rig.Commit();
      CHECK_FALSE(rig.sink.complete());
      rig.Done(digest);
    }
    REQUIRE(rig.sink.complete());
    CHECK(FindMessage<wire::Committed>(rig.effects) != nullptr);
    CHECK(FindEvent<HandoffArrived>(rig.effects)->pages.size() == 3);
    CHECK(rig.stock.owed() == 0);
    CHECK(rig.stock.in_pool() == 5);
  }
  SinkRig rig(1);
  rig.sink.Claim(rig.Page(0), &rig.stock);
  rig.Land(rig.Page(0), HandoffSink::Landing::kVerified);
  rig.DoneAndCommit(digest);  // digest of other chunks
  CHECK(FindEvent<HandoffAborted>(rig.effects)->status.code() == absl::StatusCode::kDataLoss);
  CHECK(rig.stock.free_pages() == 8);
}

TEST_CASE("sink: after a break it answers only when no receive of the old connection is left") {
  SinkRig rig(3);
  for (const uint32_t page : {0u, 1u, 2u})
    if (page < 2) rig.sink.Claim(rig.Page(page), &rig.stock);
  rig.Land(rig.Page(0), HandoffSink::Landing::kVerified);
  rig.sink.ConnectionLost(10);
  rig.effects = {};
  rig.sink.Resume(9, 0, 0, 20, &rig.effects);
  CHECK(rig.effects.messages.empty());
  CHECK(rig.sink.state() == HandoffSink::State::kSuspended);
  CHECK(rig.sink.connection() == 9);
  SECTION("it arrived before the break") {
    rig.Land(rig.Page(1), HandoffSink::Landing::kVerified);
    REQUIRE(rig.effects.messages.size() == 3);  // ACK, ACK, PROMISE in this order
    CHECK(std::get<wire::Ack>(rig.effects.messages[0]).chunk_seq == 0);
    CHECK(std::get<wire::Ack>(rig.effects.messages[1]).chunk_seq == 1);
    CHECK(std::holds_alternative<wire::Promise>(rig.effects.messages[2]));
    CHECK(rig.sink.Check(rig.Page(1)).verdict == HandoffSink::Verdict::kAlreadyHere);
  }
  SECTION("it was lost or damaged") {
    rig.Land(rig.Page(1), GENERATE(HandoffSink::Landing::kLost, HandoffSink::Landing::kDamaged));
    REQUIRE(rig.effects.messages.size() == 2);
    CHECK(rig.sink.Check(rig.Page(1)).verdict == HandoffSink::Verdict::kAccept);
  }
  CHECK(rig.sink.state() == HandoffSink::State::kReceiving);
  CHECK(rig.stock.free_pages() == 4);  // the pages stayed all the time
}

TEST_CASE("sink: it acknowledges again only what its source does not know of") {
  SinkRig rig(3);
  for (const uint32_t page : {2u, 0u}) {
    rig.sink.Claim(rig.Page(page), &rig.stock);
    rig.Land(rig.Page(page), HandoffSink::Landing::kVerified);
  }
  rig.sink.ConnectionLost(10);
  rig.effects = {};
  rig.sink.Resume(9, 1, 0, 20, &rig.effects);
  REQUIRE(rig.effects.messages.size() == 2);
  CHECK(std::get<wire::Ack>(rig.effects.messages[0]).chunk_seq == 2);
}

TEST_CASE("sink: the last chunk of the old connection completes it without waiting for the next") {
  SinkRig rig(1);
  rig.DoneAndCommit(wire::ChunkDigest(0, 50));
  rig.sink.Claim(rig.Page(0), &rig.stock);
  rig.sink.ConnectionLost(10);
  rig.Land(rig.Page(0), HandoffSink::Landing::kVerified);
  CHECK(rig.sink.complete());
  CHECK(FindEvent<HandoffArrived>(rig.effects) != nullptr);
}

TEST_CASE("sink: one that waits for room keeps waiting over the next connection") {
  TestPool pool(8, {100});
  const Ticket ticket = MakeTicket(1, 2, 1, 1);
  PagePromise promise(ticket, &pool.view(), kLimits, 0);
  HandoffSink sink(ticket, 1, 3, &promise, &pool.view(), kLimits, 0);
  HandoffEffects effects;
  sink.ConnectionLost(1'000'000);
  sink.Resume(4, wire::kNewHandoff, 55, 2'000'000, &effects);
  CHECK(FindMessage<wire::NoRoom>(effects)->expected_wait_us == 55);
  CHECK(sink.Overdue(59'999'999).ok());  // since its first OPEN
  CHECK(sink.Overdue(60'000'000).code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("sink: pages of an aborted handoff come back when nothing can write them any more") {
  SinkRig rig(3);
  rig.sink.Claim(rig.Page(0), &rig.stock);
  rig.sink.Claim(rig.Page(1), &rig.stock);
  rig.Land(rig.Page(1), HandoffSink::Landing::kVerified);
  rig.Abort(absl::CancelledError("owner"), 10);
  CHECK(FindMessage<wire::Cancel>(rig.effects) != nullptr);
  CHECK(rig.stock.free_pages() == 6);  // promised pages without a receive, at once
  CHECK_FALSE(rig.sink.ended());
  CHECK(rig.sink.Check(rig.Page(2)).reason == wire::NackReason::kUnknownTicket);
  rig.sink.Tick(10 + kDrainTimeoutUs, &rig.effects);
  CHECK(rig.effects.close_connection);
  CHECK(FindEvent<HandoffAborted>(rig.effects) == nullptr);
  rig.Land(rig.Page(0), HandoffSink::Landing::kVerified);
  CHECK(rig.sink.ended());
  CHECK(FindEvent<HandoffAborted>(rig.effects) != nullptr);
  CHECK(rig.stock.free_pages() == 8);
}

}  // namespace
}  // namespace baton
