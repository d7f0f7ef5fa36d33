// The source's state machine alone, event by event: windows, resends, deadlines, resumes, and pages
// that are released only when no operation reads them any more.
#include "tests/kvtransfer/handoff_rigs.h"

#include <catch2/catch.hpp>

namespace baton {
namespace {

TEST_CASE("source: nothing is announced before the promise") {
  SourceRig rig(3, false);
  CHECK(FindMessage<wire::Open>(rig.Effects()) != nullptr);
  CHECK(rig.source.NextChunk() == nullptr);
  rig.source.Handle(wire::NoRoom{rig.source.handoff(), 9}, 0);
  CHECK(FindEvent<HandoffNoRoom>(rig.setup)->expected_wait_us == 9);
  CHECK(rig.source.NextChunk() == nullptr);
  rig.source.Handle(wire::Promise{rig.source.handoff(), 100, 250}, 0);
  CHECK(FindEvent<HandoffPromised>(rig.setup) != nullptr);
  CHECK(rig.source.NextChunk() != nullptr);
}

TEST_CASE("source: a wait that a sink tells is no longer than anybody waits") {
  SourceRig rig(3, false);
  rig.source.Handle(wire::NoRoom{rig.source.handoff(), ~uint64_t{0}}, 0);
  CHECK(FindEvent<HandoffNoRoom>(rig.setup)->expected_wait_us ==
        rig.setup.options.room_timeout_ms * 1000);
}

TEST_CASE("source: the window counts what is announced and not acknowledged") {
  SourceRig rig(5);
  const uint32_t first = rig.Announce();
  rig.Announce();
  CHECK(rig.source.NextChunk() == nullptr);  // 200 of 250 bytes used, the next chunk has 100
  rig.source.Released(first, 0);
  CHECK(rig.source.NextChunk() == nullptr);  // the link's event is no acknowledgement
  rig.Ack(first);
  CHECK(rig.source.NextChunk() != nullptr);
  rig.Ack(first);  // a second ACK gives no more room
  rig.Announce();
  CHECK(rig.source.NextChunk() == nullptr);
}

TEST_CASE("source: a damaged chunk goes again with the same number when the link is done with it") {
  SourceRig rig(2);
  const uint32_t seq = rig.Announce();
  rig.Nack(seq);
  rig.Nack(seq);
  CHECK(rig.source.NextChunk()->seq != seq);  // the link still reads it
  rig.source.Released(seq, 0);
  CHECK(rig.Announce() == seq);
  CHECK(rig.source.NextChunk()->seq != seq);
  for (int tries = 2; tries < kMaxTries; ++tries) {
    rig.source.Released(seq, 0);
    rig.Nack(seq);
    CHECK(rig.Announce() == seq);
  }
  rig.Nack(seq);
  CHECK(FindMessage<wire::Cancel>(rig.Effects())->code ==
        static_cast<uint32_t>(absl::StatusCode::kDataLoss));
}

TEST_CASE("source: it ends only when the link reads nothing of it any more") {
  for (const int how : {0, 1, 2, 3}) {
    SourceRig rig(2);
    const uint32_t a = rig.Announce(), b = rig.Announce();
    if (how == 0) rig.source.End(absl::CancelledError("owner"), 1);
    if (how == 1) rig.source.Handle(wire::Cancel{rig.source.handoff(), 1, "peer"}, 1);
    if (how == 2) rig.source.Handle(wire::Cancelled{rig.source.handoff(), 1, "peer"}, 1);
    if (how == 3) {
      rig.source.Commit({}, 1);
      rig.source.Handle(wire::Committed{rig.source.handoff()}, 1);
    }
    CHECK(rig.source.NextChunk() == nullptr);
    CHECK(FindEvent<HandoffEnded>(rig.setup) == nullptr);
    rig.source.Released(b, 2);
    CHECK_FALSE(rig.source.ended());
    rig.source.Released(a, 5);
    CHECK(rig.source.ended());
    const auto* ended = FindEvent<HandoffEnded>(rig.setup);
    REQUIRE(ended != nullptr);
    CHECK(ended->status.ok() == (how == 3));
    CHECK(ended->transfer_us == 5);
    CHECK((FindMessage<wire::Cancel>(rig.Effects()) != nullptr) == (how == 0));
    CHECK((FindMessage<wire::Cancelled>(rig.Effects()) != nullptr) == (how == 1));
  }
}

TEST_CASE("source: DONE and COMMIT follow the last announcement, and COMMIT repeats") {
  SourceRig rig(2);
  rig.source.Commit({.first_token = 5, .n_tokens = 6}, 0);
  rig.Announce();
  CHECK(FindMessage<wire::Commit>(rig.Effects()) == nullptr);
  rig.Announce();
  REQUIRE(FindMessage<wire::Commit>(rig.Effects()) != nullptr);
  CHECK(FindMessage<wire::Commit>(rig.Effects())->first_token == 5);
  CHECK(FindMessage<wire::Done>(rig.Effects())->n_chunks == 2);
  CHECK(FindMessage<wire::Done>(rig.Effects())->digest ==
        wire::ChunkDigest(0, 7) + wire::ChunkDigest(1, 8));
  rig.Effects() = {};
  rig.source.Tick(kCommitResendUs - 1);
  CHECK(FindMessage<wire::Commit>(rig.Effects()) == nullptr);
  rig.source.Tick(kCommitResendUs);
  CHECK(FindMessage<wire::Commit>(rig.Effects()) != nullptr);
}

TEST_CASE("source: an unexpected COMMITTED is no end") {
  SourceRig rig(1);
  rig.source.Handle(wire::Committed{rig.source.handoff()}, 0);
  CHECK_FALSE(rig.source.ended());
  CHECK(rig.source.NextChunk() != nullptr);
}

TEST_CASE("source: every state that waits for the peer has its deadline") {
  SourceRig opening(1, false);
  opening.source.Tick(3'999'999);
  CHECK_FALSE(opening.source.ended());
  opening.source.Tick(4'000'000);
  CHECK(FindEvent<HandoffEnded>(opening.setup)->status.code() ==
        absl::StatusCode::kDeadlineExceeded);

  SourceRig sending(1);
  sending.source.Tick(60'000'000);  // nothing announced: prefill still computes
  CHECK(sending.source.NextChunk() != nullptr);
  const uint32_t seq = sending.Announce(60'000'000);
  sending.source.Tick(69'999'999);
  CHECK(FindMessage<wire::Cancel>(sending.Effects()) == nullptr);
  sending.source.Tick(70'000'000);
  CHECK(FindMessage<wire::Cancel>(sending.Effects()) != nullptr);
  sending.source.Tick(70'999'999);
  CHECK_FALSE(sending.Effects().close_connection);
  sending.source.Tick(71'000'000);
  CHECK(sending.Effects().close_connection);  // the link still reads the chunk
  sending.source.Released(seq, 71'000'001);
  CHECK(sending.source.ended());
}

TEST_CASE("source: after a break it asks to resume, and sends again what was not acknowledged") {
  SourceRig rig(5);
  const uint32_t a = rig.Announce(), b = rig.Announce();
  rig.source.Released(a, 0);
  rig.Ack(a);
  const uint32_t c = rig.Announce();
  rig.Effects() = {};
  rig.setup.events.clear();
  rig.source.ConnectionLost(absl::UnavailableError("cut"), 10);
  CHECK(rig.source.NextChunk() == nullptr);
  CHECK(rig.Effects().messages.empty());
  REQUIRE(rig.source.StartConnect(10));  // at once
  CHECK_FALSE(rig.source.StartConnect(10));
  rig.source.Connected(20);
  CHECK(FindMessage<wire::Open>(rig.Effects())->resume_from == b);
  CHECK(rig.source.NextChunk() == nullptr);
  rig.Ack(b);  // it had arrived
  rig.source.Handle(wire::Promise{rig.source.handoff(), 100, 250}, 30);
  CHECK(FindEvent<HandoffPromised>(rig.setup) == nullptr);  // the owner has had this event
  CHECK(rig.setup.counters.handoffs_resumed == 1);
  CHECK(rig.setup.counters.kept_chunks == 2);
  CHECK(rig.source.NextChunk()->seq > c);  // the link still reads c for the old connection
  rig.source.Released(c, 31);
  CHECK(rig.Announce() == c);
  CHECK(rig.source.NextChunk()->seq > c);
}

TEST_CASE("source: tries to connect are bounded, with growing pauses, until there is progress") {
  SourceRig rig(2);
  std::vector<int64_t> tried_us;
  int64_t now_us = 0;
  const auto break_until_ended = [&] {
    tried_us.clear();
    rig.source.ConnectionLost(absl::UnavailableError("cut"), now_us);
    const int64_t start_us = now_us;
    for (; !rig.source.ended() && now_us < start_us + 10'000'000; now_us += 1'000) {
      if (!rig.source.StartConnect(now_us)) continue;
      tried_us.push_back(now_us - start_us);
      rig.source.ConnectionLost(absl::UnavailableError("no listener"), now_us);
    }
  };
  break_until_ended();
  CHECK(tried_us == std::vector<int64_t>{0, 1'000, 26'000, 76'000, 176'000, 376'000, 776'000});
  CHECK(FindEvent<HandoffEnded>(rig.setup)->status.message() == "no listener");
}

TEST_CASE("source: a peer whose chunks are too short for a cell is refused") {
  SourceRig rig(1, false);
  rig.source.Handle(wire::Promise{rig.source.handoff(), 99, 1'000}, 0);
  CHECK(FindEvent<HandoffEnded>(rig.setup)->status.code() == absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace baton
