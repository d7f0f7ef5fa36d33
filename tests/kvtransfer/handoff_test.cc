// The two handoff machines alone, event by event: windows, resends, deadlines, and that pages are
// let go of only when nothing reads or writes them any more.
#include "kvtransfer/handoff_sink.h"
#include "kvtransfer/handoff_source.h"
#include "kvtransfer/test_pool.h"

// Last: its CHECK replaces ours.
#include <catch2/catch.hpp>

namespace baton {
namespace {

constexpr HandoffLimits kLimits{.chunk_bytes = 100,
                                .window_bytes = 250,
                                .answer_timeout_us = 5'000'000,
                                .stall_timeout_us = 10'000'000};

template <typename M>
const M* FindMessage(const HandoffEffects& effects) {
  for (const wire::Message& message : effects.messages)
    if (const M* m = std::get_if<M>(&message)) return m;
  return nullptr;
}
template <typename E>
const E* FindEvent(const HandoffEffects& effects) {
  for (const TransferEvent& event : effects.events)
    if (const E* e = std::get_if<E>(&event)) return e;
  return nullptr;
}

// A source whose peer has promised, with `n_pages` pages of one plane of 100 bytes.
struct SourceRig {
  explicit SourceRig(int32_t n_pages, bool promised = true)
      : pool(8, {100}), source(MakeTicket(1, 2, n_pages, n_pages), &pool.view(), kLimits, 0) {
    source.Connected(0, &effects);
    SendCells cells{.ticket_id = source.ticket().id, .pages = {}};
    for (int32_t page = 0; page < n_pages; ++page) cells.pages.push_back(page);
    source.Add(std::move(cells));
    if (promised) source.Handle(wire::Promise{source.handoff(), 100, 250}, 0, &effects);
  }
  uint32_t Announce(int64_t now_us = 0) {
    const HandoffSource::Chunk* chunk = source.NextChunk();
    REQUIRE(chunk != nullptr);
    const uint32_t seq = chunk->seq;
    source.Announced(7 + seq, now_us, &effects);
    return seq;
  }
  void Ack(uint32_t seq, int64_t now_us = 0) {
    source.Handle(wire::Ack{source.handoff(), seq}, now_us, &effects);
  }
  void Nack(uint32_t seq) {
    source.Handle(wire::Nack{source.handoff(), seq, wire::NackReason::kCrc}, 0, &effects);
  }
  TestPool pool;
  HandoffSource source;
  HandoffEffects effects;
};

TEST_CASE("source: nothing is announced before the promise") {
  SourceRig rig(3, false);
  CHECK(FindMessage<wire::Open>(rig.effects) != nullptr);
  CHECK(rig.source.NextChunk() == nullptr);
  rig.source.Handle(wire::NoRoom{rig.source.handoff(), 9}, 0, &rig.effects);
  CHECK(FindEvent<HandoffNoRoom>(rig.effects)->expected_wait_us == 9);
  CHECK(rig.source.NextChunk() == nullptr);
  rig.source.Handle(wire::Promise{rig.source.handoff(), 100, 250}, 0, &rig.effects);
  CHECK(FindEvent<HandoffPromised>(rig.effects) != nullptr);
  CHECK(rig.source.NextChunk() != nullptr);
}

TEST_CASE("source: the window counts what is announced and not acknowledged") {
  SourceRig rig(5);
  const uint32_t first = rig.Announce();
  rig.Announce();
  CHECK(rig.source.NextChunk() == nullptr);  // 200 of 250 used, the next has 100
  rig.source.ChunkSent(first, &rig.effects, 0);
  CHECK(rig.source.NextChunk() == nullptr);  // the link's word is no acknowledgement
  rig.Ack(first);
  CHECK(rig.source.NextChunk() != nullptr);
  rig.Ack(first);  // again: no more room by it
  rig.Announce();
  CHECK(rig.source.NextChunk() == nullptr);
}

TEST_CASE("source: a damaged chunk goes again with the same number when the link is done with it") {
  SourceRig rig(2);
  const uint32_t seq = rig.Announce();
  rig.Nack(seq);
  rig.Nack(seq);
  CHECK(rig.source.NextChunk()->seq != seq);  // still being read
  rig.source.ChunkSent(seq, &rig.effects, 0);
  CHECK(rig.Announce() == seq);
  CHECK(rig.source.NextChunk()->seq != seq);
  for (int tries = 2; tries < kMaxTries; ++tries) {
    rig.source.ChunkSent(seq, &rig.effects, 0);
    rig.Nack(seq);
    CHECK(rig.Announce() == seq);
  }
  rig.Nack(seq);
  CHECK(FindMessage<wire::Cancel>(rig.effects)->code ==
        static_cast<uint32_t>(absl::StatusCode::kDataLoss));
}

TEST_CASE("source: it ends only when the link reads nothing of it any more") {
  for (const int how : {0, 1, 2, 3}) {
    SourceRig rig(2);
    const uint32_t a = rig.Announce(), b = rig.Announce();
    if (how == 0) rig.source.End(absl::CancelledError("owner"), true, 1, &rig.effects);
    if (how == 1) rig.source.Handle(wire::Cancel{rig.source.handoff(), 1, "peer"}, 1, &rig.effects);
    if (how == 2)
      rig.source.Handle(wire::Cancelled{rig.source.handoff(), 1, "peer"}, 1, &rig.effects);
    if (how == 3) {
      rig.source.Commit({}, 1, &rig.effects);
      rig.source.Handle(wire::Committed{rig.source.handoff()}, 1, &rig.effects);
    }
    CHECK(rig.source.NextChunk() == nullptr);
    CHECK(FindEvent<HandoffEnded>(rig.effects) == nullptr);
    rig.source.ChunkSent(b, &rig.effects, 2);
    CHECK_FALSE(rig.source.ended());
    rig.source.ChunkSent(a, &rig.effects, 5);
    CHECK(rig.source.ended());
    const auto* ended = FindEvent<HandoffEnded>(rig.effects);
    REQUIRE(ended != nullptr);
    CHECK(ended->status.ok() == (how == 3));
    CHECK(ended->transfer_us == 5);
    CHECK((FindMessage<wire::Cancel>(rig.effects) != nullptr) == (how == 0));
    CHECK((FindMessage<wire::Cancelled>(rig.effects) != nullptr) == (how == 1));
  }
}

TEST_CASE("source: DONE and COMMIT follow the last announcement, and COMMIT repeats") {
  SourceRig rig(2);
  rig.source.Commit({.first_token = 5, .n_tokens = 6}, 0, &rig.effects);
  rig.Announce();
  CHECK(FindMessage<wire::Commit>(rig.effects) == nullptr);
  rig.Announce();
  REQUIRE(FindMessage<wire::Commit>(rig.effects) != nullptr);
  CHECK(FindMessage<wire::Commit>(rig.effects)->first_token == 5);
  CHECK(FindMessage<wire::Done>(rig.effects)->n_chunks == 2);
  CHECK(FindMessage<wire::Done>(rig.effects)->digest ==
        wire::ChunkDigest(0, 7) + wire::ChunkDigest(1, 8));
  rig.effects = {};
  rig.source.Tick(kCommitResendUs - 1, &rig.effects);
  CHECK(FindMessage<wire::Commit>(rig.effects) == nullptr);
  rig.source.Tick(kCommitResendUs, &rig.effects);
  CHECK(FindMessage<wire::Commit>(rig.effects) != nullptr);
}

TEST_CASE("source: COMMITTED that nobody asked for is no end") {
  SourceRig rig(1);
  rig.source.Handle(wire::Committed{rig.source.handoff()}, 0, &rig.effects);
  CHECK_FALSE(rig.source.ended());
  CHECK(rig.source.NextChunk() != nullptr);
}

TEST_CASE("source: every state that waits for the peer has its deadline") {
  SourceRig opening(1, false);
  opening.source.Tick(4'999'999, &opening.effects);
  CHECK_FALSE(opening.source.ended());
  opening.source.Tick(5'000'000, &opening.effects);
  CHECK(FindEvent<HandoffEnded>(opening.effects)->status.code() ==
        absl::StatusCode::kDeadlineExceeded);

  SourceRig sending(1);
  sending.source.Tick(60'000'000, &sending.effects);  // nothing announced: prefill computes
  CHECK(sending.source.NextChunk() != nullptr);
  const uint32_t seq = sending.Announce(60'000'000);
  sending.source.Tick(69'999'999, &sending.effects);
  CHECK(FindMessage<wire::Cancel>(sending.effects) == nullptr);
  sending.source.Tick(70'000'000, &sending.effects);
  CHECK(FindMessage<wire::Cancel>(sending.effects) != nullptr);
  sending.source.Tick(70'999'999, &sending.effects);
  CHECK_FALSE(sending.effects.close_connection);
  sending.source.Tick(71'000'000, &sending.effects);
  CHECK(sending.effects.close_connection);  // the link still reads the chunk
  sending.source.ChunkSent(seq, &sending.effects, 71'000'001);
  CHECK(sending.source.ended());
}

TEST_CASE("source: a peer whose chunks are too short for a cell is refused") {
  SourceRig rig(1, false);
  rig.source.Handle(wire::Promise{rig.source.handoff(), 99, 1'000}, 0, &rig.effects);
  CHECK(FindEvent<HandoffEnded>(rig.effects)->status.code() ==
        absl::StatusCode::kFailedPrecondition);
}

// A sink with `n_pages` pages of two planes, promised from a stock of 8.
struct SinkRig {
  explicit SinkRig(int32_t n_pages)
      : pool(8, {60, 40}),
        sink(MakeTicket(1, 2, n_pages, n_pages + 1), 3, &pool.view(), kLimits, 0) {
    stock.Lend({0, 1, 2, 3, 4, 5, 6, 7});
    sink.Promise(&stock, &effects);
  }
  wire::ChunkHeader Header(uint32_t plane, uint32_t n_planes, uint32_t first_page, uint32_t n_pages,
                           uint32_t length, uint32_t seq) {
    return {.handoff = sink.handoff(),
            .plane = plane,
            .n_planes = n_planes,
            .first_page = first_page,
            .n_pages = n_pages,
            .length = length,
            .sender = 1,
            .receiver = 2,
            .chunk_seq = seq,
            .payload_crc = 50 + seq};
  }
  wire::ChunkHeader Page(uint32_t page) { return Header(0, 2, page, 1, 100, page); }
  void Land(const wire::ChunkHeader& header, HandoffSink::Landing landing) {
    sink.Landed(header, landing, 0, &stock, &effects);
  }
  void DoneAndCommit(uint64_t digest) {
    sink.Handle(wire::Done{sink.handoff(), 2, digest}, 0, &stock, &effects);
    sink.Handle(wire::Commit{sink.handoff(), 4, 5}, 0, &stock, &effects);
  }
  TestPool pool;
  HandoffSink sink;
  PageStock stock;
  HandoffEffects effects;
};

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
  CHECK(reason(rig.Page(3)) == Reason::kBadRange);  // half of it is coming
  rig.Land(rig.Header(0, 1, 3, 1, 60, 8), HandoffSink::Landing::kLost);
  rig.sink.Claim(rig.Page(0), &rig.stock);
  CHECK(rig.sink.Check(rig.Page(0)).verdict == Verdict::kAlreadyComing);
  rig.sink.Claim(rig.Page(1), &rig.stock);
  CHECK(reason(rig.Page(2)) == Reason::kNotGranted);  // 200 of 250 bytes are coming
  rig.Land(rig.Page(0), HandoffSink::Landing::kVerified);
  CHECK(rig.sink.Check(rig.Page(0)).verdict == Verdict::kAlreadyHere);
  CHECK(rig.sink.Check(rig.Page(2)).verdict == Verdict::kAccept);
  CHECK(FindMessage<wire::Ack>(rig.effects)->chunk_seq == 0);
}

TEST_CASE("sink: ids are bound as KV arrives, damage leaves the cells missing") {
  SinkRig rig(2);
  CHECK(rig.stock.free_pages() == 5);
  CHECK(rig.stock.in_stock() == 8);
  rig.sink.Claim(rig.Header(0, 1, 1, 1, 60, 0), &rig.stock);
  CHECK(rig.stock.in_stock() == 7);
  rig.Land(rig.Header(0, 1, 1, 1, 60, 0), HandoffSink::Landing::kDamaged);
  CHECK(FindMessage<wire::Nack>(rig.effects)->reason == wire::NackReason::kCrc);
  CHECK(rig.sink.Check(rig.Header(0, 1, 1, 1, 60, 0)).verdict == HandoffSink::Verdict::kAccept);
  CHECK(rig.sink.bound_pages() == 1);
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
      rig.sink.Handle(wire::Commit{rig.sink.handoff(), 4, 5}, 0, &rig.stock, &rig.effects);
      CHECK_FALSE(rig.sink.complete());
      rig.sink.Handle(wire::Done{rig.sink.handoff(), 2, digest}, 0, &rig.stock, &rig.effects);
    }
    REQUIRE(rig.sink.complete());
    CHECK(FindMessage<wire::Committed>(rig.effects) != nullptr);
    CHECK(FindEvent<HandoffArrived>(rig.effects)->pages.size() == 3);
    CHECK(rig.stock.owed() == 0);
    CHECK(rig.stock.in_stock() == 5);
  }
  SinkRig rig(1);
  rig.sink.Claim(rig.Page(0), &rig.stock);
  rig.Land(rig.Page(0), HandoffSink::Landing::kVerified);
  rig.DoneAndCommit(digest);  // of other chunks
  CHECK(FindEvent<HandoffAborted>(rig.effects)->status.code() == absl::StatusCode::kDataLoss);
  CHECK(rig.stock.free_pages() == 8);
}

TEST_CASE("sink: pages of an aborted handoff come back when nothing can write them any more") {
  SinkRig rig(3);
  rig.sink.Claim(rig.Page(0), &rig.stock);
  rig.sink.Claim(rig.Page(1), &rig.stock);
  rig.Land(rig.Page(1), HandoffSink::Landing::kVerified);
  rig.sink.Abort(absl::CancelledError("owner"), HandoffSink::Tell::kCancel, 10, &rig.stock,
                 &rig.effects);
  CHECK(FindMessage<wire::Cancel>(rig.effects) != nullptr);
  CHECK(rig.stock.free_pages() == 6);  // what was promised and not bound, at once
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
