// One handoff at the sending end, which has the KV: has chunks read and announced within the
// window, those that the engine writes first before others, then lowest plane and page first; sends
// damaged chunks again; continues over a new connection with the missing chunks when the old one
// broke; and holds its pages until the sink has committed and no operation reads them any more.
// Sans-IO: events and the time in, effects and TransferEvents out; the owner (Sources, link thread)
// asks for the next chunk when it has room to read one, announces it when it is read, and connects
// when StartConnect says so.
//
// States, deadlines and transitions: HandoffSourceTable; docs/HANDOFF.md. Times are microseconds of
// the owner's monotonic clock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "common/state_machine.h"
#include "kvtransfer/protocol/cells.h"
#include "kvtransfer/protocol/handoff_effects.h"
#include "kvtransfer/protocol/transfer_setup.h"

namespace baton {

const MachineTable& HandoffSourceTable();

class HandoffSource {
 public:
  enum class State { kConnecting, kOpening, kWaiting, kSending, kEnding, kEnded };
  struct Chunk {
    uint32_t seq = 0;
    ChunkCutter::Cut cut;
    int64_t bytes = 0;
    int n_damaged = 0;        // how often the sink found the chunk damaged
    bool being_read = false;  // by the copier or the link, from Begun to Released
    bool announced = false;   // at least once
    bool acked = false;
  };

  // `setup` must outlive the source.
  HandoffSource(const Ticket& ticket, TransferSetup* setup, int64_t now_us);

  // --- the connection
  bool StartConnect(int64_t now_us);  // true: it is time to connect
  void Connected(int64_t now_us);     // the peer accepted our HELLO
  void ConnectionLost(absl::Status status, int64_t now_us);

  // --- events
  // Adds cells to send; CHECKs that they lie in the ticket's pages. Their pages stay unchanged
  // until the handoff has ended.
  void Add(SendCells cells);
  // Called once, after the last Add; CHECKs that every cell of the handoff was given.
  void Commit(const CommitRecord& record, int64_t now_us);
  // Handles messages of a sink over the current connection; others are ignored.
  void Handle(const wire::Message& message, int64_t now_us);
  // Nothing reads the chunk's cells any more; one call per Begun.
  void Released(uint32_t seq, int64_t now_us);
  // Ends the handoff, with HandoffEnded as soon as nothing reads its pages. CANCEL goes out if the
  // peer knows of the handoff.
  void End(absl::Status status, int64_t now_us);
  // Called now and then: ends a handoff whose state is past its deadline (DeadlineExceeded,
  // ResourceExhausted, Unavailable), and repeats COMMIT.
  void Tick(int64_t now_us);
  // Effects since the last call, in order.
  HandoffEffects TakeEffects() { return std::exchange(effects_, {}); }

  // --- decisions
  // The chunk to read now, nullptr if there is none or the window is full. Stays the same until
  // Begun is called for it.
  const Chunk* NextChunk();
  // The owner reads the cells of NextChunk's chunk from now on.
  void Begun();
  // The owner announces a chunk that is read. False, and it must not: there is no connection, the
  // handoff ends, or the sink has the chunk. Then the chunk is released; if it is still missing, it
  // is a NextChunk again.
  bool Announced(uint32_t seq, uint32_t payload_crc, int64_t now_us);

  const Ticket& ticket() const { return ticket_; }
  wire::Handoff handoff() const { return {ticket_.id, ticket_.epoch}; }
  State state() const { return state_; }
  bool ended() const { return state_ == State::kEnded; }  // HandoffEnded is emitted
  // Bytes that the peer has acknowledged; bytes announced and not yet acknowledged (after a
  // connection was lost also those that are announced anew).
  int64_t arrived_bytes() const { return arrived_bytes_; }
  int64_t bytes_under_way() const {
    return state_ == State::kSending ? unacked_bytes_ - unannounced_bytes_ : 0;
  }

 private:
  bool ending() const { return state_ == State::kEnding || state_ == State::kEnded; }
  void OnPromise(const wire::Promise& promise, int64_t now_us);
  void OnAck(uint32_t seq, int64_t now_us);
  void OnNack(const wire::Nack& nack, int64_t now_us);
  void SendCommit(int64_t now_us);
  void EndSilently(absl::Status status, int64_t now_us);  // End without CANCEL
  void FinishIfQuiet(int64_t now_us);
  void Queue(ChunkCutter cutter);
  void SkipWhatIsThere(const wire::Promise& promise);
  // True if every given cell is announced.
  bool all_announced() const { return !next_ && to_cut_.empty() && unannounced_bytes_ == 0; }

  const Ticket ticket_;
  TransferSetup* const setup_;
  int64_t chunk_bytes_, window_bytes_;  // the smaller ones of both ends
  MachineState<State> state_;
  int64_t opened_us_;
  int64_t since_us_;  // start of the current wait, or the last sign of progress by the peer in it

  int n_connects_ = 0;                    // since the last progress
  std::optional<int64_t> connect_at_us_;  // nullopt: a connection is being made
  absl::Status lost_;                     // why there is no connection
  bool promised_ = false;                 // promised once; from then on OPEN asks to resume
  // Cells that were in place before the promise are not sent: of named pages those before the first
  // missing one, else those of the first held pages.
  CellPlace first_missing_;
  int32_t held_pages_ = 0;

  // By fence and first cell not cut: no chunk waits for the engine behind one that is written
  // later.
  std::multimap<std::pair<uint64_t, CellPlace>, ChunkCutter> to_cut_;
  std::optional<Chunk> next_;  // cut, not begun
  std::set<uint32_t> to_resend_;
  // Begun, and not both acknowledged and released. Once ending: those being read.
  std::map<uint32_t, Chunk> open_;
  int64_t unacked_bytes_ = 0;      // of chunks begun
  int64_t unannounced_bytes_ = 0;  // of those, never announced yet
  int64_t arrived_bytes_ = 0;
  int64_t cells_given_ = 0;
  uint32_t n_chunks_ = 0;
  uint64_t digest_ = 0;

  std::optional<CommitRecord> commit_;
  std::optional<int64_t> commit_sent_us_;
  absl::Status status_;
  bool answer_cancel_ = false;  // CANCELLED is due when quiet
  HandoffEffects effects_;
};

}  // namespace baton
