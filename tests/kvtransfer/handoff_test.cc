// The two handoff machines alone, event by event: windows, resends, deadlines, and that pages are
// let go of only when nothing reads or writes them any more.
#include "kvtransfer/handoff_sink.h"

#include <algorithm>
#include <memory>
#include <set>

#include "kvtransfer/handoff_source.h"
#include "kvtransfer/test_pool.h"

// Last: its CHECK replaces ours.
#include <catch2/catch.hpp>

namespace baton {
namespace {

constexpr HandoffLimits kLimits{.chunk_bytes = 100,
                                .window_bytes = 250,
                                .answer_timeout_us = 5'000'000,
                                .room_timeout_us = 60'000'000,
                                .stall_timeout_us = 10'000'000,
                                .idle_timeout_us = 300'000'000,
                                .reconnect_timeout_us = 4'000'000};

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
    source.ConnectStarted();
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

TEST_CASE("source: after a break it asks to resume, and sends again what was not acknowledged") {
  SourceRig rig(5);
  const uint32_t a = rig.Announce(), b = rig.Announce();
  rig.source.ChunkSent(a, &rig.effects, 0);
  rig.Ack(a);
  const uint32_t c = rig.Announce();
  rig.effects = {};
  rig.source.ConnectionLost(absl::UnavailableError("cut"), 10, &rig.effects);
  CHECK(rig.source.NextChunk() == nullptr);
  CHECK(rig.effects.messages.empty());
  REQUIRE(rig.source.wants_connection(10));  // at once
  rig.source.ConnectStarted();
  CHECK_FALSE(rig.source.wants_connection(10));
  rig.source.Connected(20, &rig.effects);
  CHECK(FindMessage<wire::Open>(rig.effects)->resume_from == b);
  CHECK(rig.source.NextChunk() == nullptr);
  rig.Ack(b);  // it had arrived
  rig.source.Handle(wire::Promise{rig.source.handoff(), 100, 250}, 30, &rig.effects);
  CHECK(FindEvent<HandoffPromised>(rig.effects) == nullptr);  // the owner knows
  CHECK(rig.effects.resumed);
  CHECK(rig.effects.kept_chunks == 2);
  CHECK(rig.source.NextChunk()->seq > c);  // the link still reads c for the old connection
  rig.source.ChunkSent(c, &rig.effects, 31);
  CHECK(rig.Announce() == c);
  CHECK(rig.source.NextChunk()->seq > c);
}

TEST_CASE("source: tries to connect are bounded, with growing pauses, until there is progress") {
  SourceRig rig(2);
  std::vector<int64_t> tried_us;
  int64_t now_us = 0;
  const auto break_until_ended = [&] {
    tried_us.clear();
    rig.source.ConnectionLost(absl::UnavailableError("cut"), now_us, &rig.effects);
    const int64_t start_us = now_us;
    for (; !rig.source.ended() && now_us < start_us + 10'000'000; now_us += 1'000) {
      if (!rig.source.wants_connection(now_us)) continue;
      tried_us.push_back(now_us - start_us);
      rig.source.ConnectStarted();
      rig.source.ConnectionLost(absl::UnavailableError("nobody"), now_us, &rig.effects);
    }
  };
  break_until_ended();
  CHECK(tried_us == std::vector<int64_t>{0, 1'000, 26'000, 76'000, 176'000, 376'000, 776'000});
  CHECK(FindEvent<HandoffEnded>(rig.effects)->status.message() == "nobody");
}

TEST_CASE("source: a peer whose chunks are too short for a cell is refused") {
  SourceRig rig(1, false);
  rig.source.Handle(wire::Promise{rig.source.handoff(), 99, 1'000}, 0, &rig.effects);
  CHECK(FindEvent<HandoffEnded>(rig.effects)->status.code() ==
        absl::StatusCode::kFailedPrecondition);
}

// A sink with `n_pages` pages of two planes, promised from a stock of 8.
struct SinkRig {
  explicit SinkRig(int32_t n_pages, bool promised = true)
      : pool(8, {60, 40}),
        sink(MakeTicket(1, 2, n_pages, n_pages + 1), 1, 3, &pool.view(), kLimits, 0) {
    stock.Lend({0, 1, 2, 3, 4, 5, 6, 7});
    if (promised) sink.Promise(0, &stock, &effects);
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
  CHECK(rig.stock.free_pages() == 4);  // all the while its pages stayed
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
  HandoffSink sink(MakeTicket(1, 2, 1, 1), 1, 3, &pool.view(), kLimits, 0);
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

// ---- the tables ----

std::unique_ptr<SourceRig> SourceIn(HandoffSource::State state) {
  using State = HandoffSource::State;
  auto rig = std::make_unique<SourceRig>(2, state == State::kSending || state == State::kEnding);
  if (state == State::kConnecting)
    rig->source.ConnectionLost(absl::UnavailableError("cut"), 0, &rig->effects);
  if (state == State::kWaiting)
    rig->source.Handle(wire::NoRoom{rig->source.handoff(), 9}, 0, &rig->effects);
  if (state == State::kEnding) {
    rig->Announce();
    rig->source.End(absl::CancelledError("owner"), true, 0, &rig->effects);
  }
  return rig;
}

std::unique_ptr<SinkRig> SinkIn(HandoffSink::State state) {
  using State = HandoffSink::State;
  auto rig = std::make_unique<SinkRig>(2, state != State::kWaiting);
  if (state == State::kSuspended) rig->sink.ConnectionLost(0);
  if (state == State::kAborting) {
    rig->sink.Claim(rig->Page(0), &rig->stock);
    rig->sink.Abort(absl::CancelledError("owner"), HandoffSink::Tell::kCancel, 0, &rig->stock,
                    &rig->effects);
  }
  return rig;
}

void RequireSound(const MachineTable& table) {
  std::set<int> reached = {0};
  for (size_t pass = 0; pass < table.states.size(); ++pass)
    for (const TransitionRow& row : table.transitions)
      if (reached.contains(row.from)) reached.insert(row.to);
  REQUIRE(reached.size() == table.states.size());
  REQUIRE_FALSE(table.owner.empty());
  for (size_t i = 0; i < table.states.size(); ++i) {
    INFO(table.machine << ": " << table.states[i].name);
    const auto leaves = [&](const TransitionRow& row) { return row.from == int(i); };
    const bool is_final = std::none_of(table.transitions.begin(), table.transitions.end(), leaves);
    REQUIRE(table.states[i].deadline.empty() == is_final);
    REQUIRE(table.states[i].on_deadline.empty() == is_final);
  }
}

TEST_CASE("every state but the last has a deadline and is left when nothing but time passes") {
  RequireSound(HandoffSourceTable());
  RequireSound(HandoffSinkTable());
  for (size_t i = 0; i < HandoffSourceTable().states.size(); ++i) {
    if (HandoffSourceTable().states[i].deadline.empty()) continue;
    INFO("source " << HandoffSourceTable().states[i].name);
    const auto state = static_cast<HandoffSource::State>(i);
    const auto rig = SourceIn(state);
    REQUIRE(rig->source.state() == state);
    int64_t now_us = 0;
    while (rig->source.state() == state && !rig->effects.close_connection &&
           now_us < 2 * kLimits.idle_timeout_us)
      rig->source.Tick(now_us += 10'000, &rig->effects);
    CHECK(now_us <= kLimits.idle_timeout_us);
    if (rig->effects.close_connection) rig->source.ChunkSent(0, &rig->effects, now_us);
    REQUIRE(rig->source.ended());
    CHECK_FALSE(FindEvent<HandoffEnded>(rig->effects)->status.ok());
  }
  for (size_t i = 0; i < HandoffSinkTable().states.size(); ++i) {
    if (HandoffSinkTable().states[i].deadline.empty()) continue;
    INFO("sink " << HandoffSinkTable().states[i].name);
    const auto state = static_cast<HandoffSink::State>(i);
    const auto rig = SinkIn(state);
    REQUIRE(rig->sink.state() == state);
    int64_t now_us = 0;
    absl::Status overdue;
    for (; overdue.ok() && !rig->effects.close_connection && now_us < 2 * kLimits.idle_timeout_us;
         overdue = rig->sink.Overdue(now_us += 10'000))
      rig->sink.Tick(now_us, &rig->effects);
    CHECK(now_us <= kLimits.idle_timeout_us + 10'000);
    if (!overdue.ok())
      rig->sink.Abort(overdue, HandoffSink::Tell::kCancel, now_us, &rig->stock, &rig->effects);
    if (rig->effects.close_connection) rig->Land(rig->Page(0), HandoffSink::Landing::kLost);
    REQUIRE(rig->sink.ended());
    CHECK_FALSE(FindEvent<HandoffAborted>(rig->effects)->status.ok());
    CHECK(rig->stock.free_pages() == 8);
  }
}

}  // namespace
}  // namespace baton
