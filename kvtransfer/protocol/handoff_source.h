// One handoff at the sending end, which has the KV: announces chunks within the window, lowest
// plane and page first among the given cells; sends damaged chunks again; continues over a new
// connection with the missing chunks when the old one broke; and holds its pages until the sink has
// committed and no operation reads them any more. Sans-IO: events and the time in, effects out; the
// owner (TransferCore, link thread) asks for the next chunk when it has room to send one, and
// connects when wants_connection says so.
//
// States, deadlines and transitions: HandoffSourceTable; docs/HANDOFF.md. Times are microseconds of
// the owner's monotonic clock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "kvtransfer/protocol/cells.h"
#include "kvtransfer/protocol/handoff_effects.h"

namespace baton {

const MachineTable& HandoffSourceTable();

class HandoffSource {
 public:
  enum class State { kConnecting, kOpening, kWaiting, kSending, kEnding, kEnded };
  struct Chunk {
    uint32_t seq = 0;
    ChunkCutter::Cut cut;
    int64_t bytes = 0;
    uint32_t payload_crc = 0;  // set by the first announcement
    bool announced = false;    // true before an announcement: this is a resend
    int n_damaged = 0;         // how often the sink found the chunk damaged
    bool being_read = false;   // announced, and the link has not said ChunkSent
    bool acked = false;
  };

  // `pool` must outlive the source.
  HandoffSource(const Ticket& ticket, const PoolView* pool, const HandoffLimits& limits,
                int64_t now_us);

  // --- the connection
  bool wants_connection(int64_t now_us) const;  // true: call ConnectStarted
  void ConnectStarted();
  void Connected(int64_t now_us, HandoffEffects* out);  // the peer accepted our HELLO
  void ConnectionLost(absl::Status status, int64_t now_us, HandoffEffects* out);

  // --- events. Effects are appended to *out.
  // Adds cells to send; CHECKs that they lie in the ticket's pages. Their pages stay unchanged
  // until the handoff has ended.
  void Add(SendCells cells);
  // Called once, after the last Add; CHECKs that every cell of the handoff was given.
  void Commit(const CommitRecord& record, int64_t now_us, HandoffEffects* out);
  // Handles messages of a sink over the current connection; others are ignored.
  void Handle(const wire::Message& message, int64_t now_us, HandoffEffects* out);
  // The link reads the chunk no longer; one call per Announced.
  void ChunkSent(uint32_t seq, HandoffEffects* out, int64_t now_us);
  // Ends the handoff, with HandoffEnded as soon as the link reads none of its pages. tell_peer:
  // CANCEL goes out if the peer knows of the handoff.
  void End(absl::Status status, bool tell_peer, int64_t now_us, HandoffEffects* out);
  // Called now and then: ends a handoff whose state is past its deadline (DeadlineExceeded,
  // ResourceExhausted, Unavailable), and repeats COMMIT.
  void Tick(int64_t now_us, HandoffEffects* out);

  // --- decisions
  // The chunk to announce now, nullptr if there is none or the window is full. Stays the same until
  // Announced is called for it.
  const Chunk* NextChunk();
  // The owner has announced NextChunk's chunk.
  void Announced(uint32_t payload_crc, int64_t now_us, HandoffEffects* out);

  const Ticket& ticket() const { return ticket_; }
  wire::Handoff handoff() const { return {ticket_.id, ticket_.epoch}; }
  State state() const { return state_; }
  bool ended() const { return state_ == State::kEnded; }  // HandoffEnded is emitted
  // Bytes that the peer has acknowledged; bytes announced over the current connection and not yet
  // acknowledged.
  int64_t arrived_bytes() const { return arrived_bytes_; }
  int64_t bytes_under_way() const { return state_ == State::kSending ? unacked_bytes_ : 0; }

 private:
  bool ending() const { return state_ == State::kEnding || state_ == State::kEnded; }
  void OnPromise(const wire::Promise& promise, int64_t now_us, HandoffEffects* out);
  void OnAck(uint32_t seq, int64_t now_us);
  void OnNack(const wire::Nack& nack, int64_t now_us, HandoffEffects* out);
  void SendCommit(int64_t now_us, HandoffEffects* out);
  void ResendWhatIsMissing(HandoffEffects* out);
  void FinishIfQuiet(int64_t now_us, HandoffEffects* out);
  void Queue(SendCells cells);
  void SkipWhatIsThere(const wire::Promise& promise);
  // True if every given cell is announced.
  bool all_announced() const { return !next_ && to_cut_.empty(); }

  const Ticket ticket_;
  const PoolView* const pool_;
  HandoffLimits limits_;
  MachineState<State> state_;
  int64_t opened_us_;
  int64_t progress_us_;  // last sign of progress by the peer, or start of the current wait

  int n_connects_ = 0;  // since the last progress
  bool connect_under_way_ = false;
  int64_t next_connect_us_, disconnected_us_;
  absl::Status lost_;      // reason why the last connection ended
  bool promised_ = false;  // promised once; from then on OPEN asks to resume
  // Inflows: first cell to send; earlier cells were in place before the promise.
  ChunkCutter::Place first_missing_;

  std::multimap<ChunkCutter::Place, ChunkCutter> to_cut_;  // key: first cell not cut
  std::optional<Chunk> next_;                              // cut, not announced
  std::deque<uint32_t> to_resend_;
  std::map<uint32_t, Chunk> open_;  // announced, and not both acknowledged and sent by the link
  int64_t unacked_bytes_ = 0, arrived_bytes_ = 0;
  int64_t cells_given_ = 0;
  int n_reads_ = 0;  // operations of the link that read our pages or copies of them
  uint32_t n_chunks_ = 0;
  uint64_t digest_ = 0;

  std::optional<CommitRecord> commit_;
  std::optional<int64_t> commit_sent_us_;
  absl::Status status_;
  int64_t ending_us_ = 0;
  bool answer_cancel_ = false;  // CANCELLED is due when quiet
};

}  // namespace baton
