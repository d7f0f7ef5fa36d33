// The state machines of the two ends of a handoff, each alone with a pool and its last effects.
#pragma once

#include <numeric>
#include <utility>
#include <vector>

#include "kvtransfer/protocol/handoff_sink.h"
#include "kvtransfer/protocol/handoff_source.h"
#include "tests/kvtransfer/recording_link.h"

#include <catch2/catch.hpp>

namespace baton {

template <typename M>
const M* FindMessage(const HandoffEffects& effects) {
  for (const wire::Message& message : effects.messages)
    if (const M* m = std::get_if<M>(&message)) return m;
  return nullptr;
}
template <typename E>
const E* FindEvent(const TransferSetup& setup) {
  for (const TransferEvent& event : setup.events)
    if (const E* e = std::get_if<E>(&event)) return e;
  return nullptr;
}

inline HandoffEffects& Append(HandoffEffects more, HandoffEffects* all) {
  for (wire::Message& message : more.messages) all->messages.push_back(std::move(message));
  all->close_connection |= more.close_connection;
  return *all;
}

// A source whose peer has promised pages, with `n_pages` pages of one plane of 100 bytes.
struct SourceRig {
  explicit SourceRig(int32_t n_pages, bool promised = true)
      : source(MakeTicket(1, 2, n_pages, n_pages), &setup, 0) {
    REQUIRE(source.StartConnect(0));
    source.Connected(0);
    SendCells cells{.ticket_id = source.ticket().id, .pages = {}};
    for (int32_t page = 0; page < n_pages; ++page) cells.pages.push_back(page);
    source.Add(std::move(cells));
    if (promised) source.Handle(wire::Promise{source.handoff(), 100, 250}, 0);
  }
  uint32_t Announce(int64_t now_us = 0) {
    const HandoffSource::Chunk* chunk = source.NextChunk();
    REQUIRE(chunk != nullptr);
    const uint32_t seq = chunk->seq;
    source.Begun();
    REQUIRE(source.Announced(seq, 7 + seq, now_us));
    return seq;
  }
  void Ack(uint32_t seq, int64_t now_us = 0) {
    source.Handle(wire::Ack{source.handoff(), seq}, now_us);
  }
  void Nack(uint32_t seq) {
    source.Handle(wire::Nack{source.handoff(), seq, wire::NackReason::kCrc}, 0);
  }
  // All effects since the rig was made, or since they were cleared.
  HandoffEffects& Effects() { return Append(source.TakeEffects(), &effects); }

  TestPool pool{8, {100}};
  TransferSetup setup = MakeSetup(1, pool.view(), nullptr);
  HandoffSource source;
  HandoffEffects effects;
};

// A sink that fills `n_pages` pages of two planes, alone or as one of two of its promise; the pages
// are taken from a receive pool of 8, or are the engine's from page 8 on.
struct SinkRig {
  enum class Kind { kOrdinary, kInflow, kPart };
  explicit SinkRig(int32_t n_pages, bool promised = true, Kind kind = Kind::kOrdinary)
      : promise(TicketOf(kind, n_pages), &setup, &receive_pool, 0),
        sink(TicketOf(kind, n_pages), 1, 3, &promise, &setup, 0) {
    receive_pool.Lend({0, 1, 2, 3, 4, 5, 6, 7});
    promise.Begin(sink.ticket(), 0);
    if (!promised) return;
    std::vector<int32_t> named(size_t(n_pages), 8);
    std::iota(named.begin(), named.end(), 8);
    if (kind == Kind::kInflow) {
      REQUIRE(promise.Name(AwaitInflow{{}, 1, std::move(named)}, 0).ok());
    } else {
      promise.Take(0);
    }
    sink.Promised();
  }
  static Ticket TicketOf(Kind kind, int32_t n_pages) {
    if (kind == Kind::kPart)
      return MakePart(MakeTicket(1, 2, n_pages + 1, n_pages + 1), 2, 0, n_pages);
    return MakeTicket(1, 2, n_pages, kind == Kind::kInflow ? 0 : n_pages + 1);
  }
  // Tells the promise how the handoff stands, as Sinks does.
  void Follow() {
    if (sink.failed()) promise.Fail(sink.status());
  }
  void Abort(absl::Status status, int64_t now_us) {
    sink.Abort(std::move(status), now_us);
    Follow();
  }
  // Time passes, for the promise and then for the sink, as in Sinks.
  void Tick(int64_t now_us) {
    if (const absl::Status overdue = promise.Overdue(now_us); !overdue.ok()) Abort(overdue, now_us);
    sink.Tick(now_us);
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
  void Land(const wire::ChunkHeader& header, bool verified) {
    sink.Landed(header, verified, 0);
    Follow();
  }
  void Done(uint64_t digest) {
    sink.Handle(wire::Done{sink.handoff(), 2, digest}, 0);
    Follow();
  }
  void Commit() {
    sink.Handle(wire::Commit{sink.handoff(), 4, 5}, 0);
    Follow();
  }
  void DoneAndCommit(uint64_t digest) {
    Done(digest);
    Commit();
  }
  HandoffEffects& Effects() { return Append(sink.TakeEffects(), &effects); }
  bool complete() const { return sink.state() == HandoffSink::State::kComplete; }

  TestPool pool{16, {60, 40}};
  TransferSetup setup = MakeSetup(2, pool.view(), nullptr);
  ReceivePool receive_pool;
  PagePromise promise;
  HandoffSink sink;
  HandoffEffects effects;
};

}  // namespace baton
