// The state machines of the two ends of a handoff, each alone with a pool and its last effects.
#pragma once

#include <numeric>
#include <utility>
#include <vector>

#include "kvtransfer/protocol/handoff_sink.h"
#include "kvtransfer/protocol/handoff_source.h"
#include "tests/kvtransfer/test_pool.h"

#include <catch2/catch.hpp>

namespace baton {

inline constexpr HandoffLimits kLimits{.chunk_bytes = 100,
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

// A source whose peer has promised pages, with `n_pages` pages of one plane of 100 bytes.
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

// A sink that fills `n_pages` pages of two planes, alone or as one of two of its promise; the pages
// are taken from a stock of 8, or are the engine's from page 8 on.
struct SinkRig {
  enum class Kind { kOrdinary, kInflow, kPart };
  explicit SinkRig(int32_t n_pages, bool promised = true, Kind kind = Kind::kOrdinary)
      : pool(16, {60, 40}),
        promise(TicketOf(kind, n_pages), &pool.view(), kLimits, 0),
        sink(TicketOf(kind, n_pages), 1, 3, &promise, &pool.view(), kLimits, 0) {
    stock.Lend({0, 1, 2, 3, 4, 5, 6, 7});
    promise.Begin(sink.ticket(), 0);
    if (!promised) return;
    std::vector<int32_t> named(size_t(n_pages), 8);
    std::iota(named.begin(), named.end(), 8);
    if (kind == Kind::kInflow) {
      promise.Name(AwaitInflow{{}, 1, std::move(named)}, 0);
    } else {
      promise.Take(0, &stock);
    }
    sink.Promised(0, &effects);
  }
  static Ticket TicketOf(Kind kind, int32_t n_pages) {
    if (kind == Kind::kPart)
      return MakePart(MakeTicket(1, 2, n_pages + 1, n_pages + 1), 2, 0, n_pages);
    return MakeTicket(1, 2, n_pages, kind == Kind::kInflow ? 0 : n_pages + 1);
  }
  // Tells the promise how the handoff stands, as Sinks does.
  void Follow() {
    if (sink.failed()) promise.Fail(sink.status(), &stock, &effects.events);
    if (!sink.ended() || promise.open().empty()) return;
    if (sink.complete())
      promise.Committed(sink.ticket(), sink.record(), 0, &stock, &effects.events);
    promise.Ended(sink.ticket(), &stock, &effects.events);
  }
  void Abort(absl::Status status, int64_t now_us) {
    sink.Abort(std::move(status), HandoffSink::PeerNotice::kCancel, now_us, &effects);
    Follow();
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
    sink.Landed(header, landing, 0, &effects);
    Follow();
  }
  void Done(uint64_t digest) {
    sink.Handle(wire::Done{sink.handoff(), 2, digest}, 0, &effects);
    Follow();
  }
  void Commit() {
    sink.Handle(wire::Commit{sink.handoff(), 4, 5}, 0, &effects);
    Follow();
  }
  void DoneAndCommit(uint64_t digest) {
    Done(digest);
    Commit();
  }
  TestPool pool;
  PagePromise promise;
  HandoffSink sink;
  ReceivePool stock;
  HandoffEffects effects;
};

}  // namespace baton
