// What a Transfer (kvtransfer/transfer.h) is given and tells: the pool both ends address, options,
// commands, events, counters. Plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/ids.h"
#include "common/state_machine.h"
#include "common/status.h"
#include "common/ticket.h"
#include "kvtransfer/links/link_pace.h"

namespace baton {

struct PoolPlane {
  int64_t offset = 0, bytes = 0;  // inside a page
};

// The arena both ends address by (page id, plane). Constant while the Transfer lives, but for the
// frames of pages that no handoff works on.
struct PoolView {
  std::byte* base = nullptr;
  int64_t page_stride = 0;
  int32_t n_pages = 0;  // ids are below
  std::vector<PoolPlane> planes;
  // Not null, (n_pages, planes): the planes of a page lie apart, each at a multiple of frame_bytes.
  const int32_t* frames = nullptr;
  int64_t frame_bytes = 0;
  int64_t arena_bytes = 0;  // 0: n_pages * page_stride
};

struct TransferOptions {
  std::string listen_host = "127.0.0.1";
  int listen_port = 0;  // 0 picks
  Incarnation incarnation = 0;
  ClusterKey key{};
  // Two ends exchange KV only if these are equal; HELLO names the one that differs.
  uint64_t model_fingerprint = 0;
  std::string numerics_id, layout_id;
  int64_t chunk_bytes = 1 << 20;   // most payload per DATA message
  int64_t window_bytes = 8 << 20;  // announced and not yet acknowledged, per handoff
  int32_t slab_slots = 0;  // bounce buffers of one chunk each, per direction; 0: for four windows
  int64_t hello_timeout_ms = 2000;
  int64_t peer_timeout_ms = 5000;  // silence after which a peer is given up
  // A handoff that waits for room at the sink, and one promised whose source neither sends nor
  // commits although both ends are well: how long before it ends.
  int64_t room_timeout_ms = 600'000;
  int64_t idle_timeout_ms = 600'000;
  LinkPace pace;  // of a slower link than this machine has, for experiments; not set: none
  // Test only: the sink receives but never acknowledges, and so never completes a handoff either.
  bool withhold_acks = false;
  TransitionCounts* transitions = nullptr;  // counts transitions; tests only
};

// What the source's worker tells the sink's worker at the end.
struct CommitRecord {
  int32_t first_token = 0;
  int32_t n_tokens = 0;  // tokens whose KV was sent; the first token has this position
};

// --- commands (any thread) --------------------------------------------------------------------
// As source. A ticket id is open here at most once: again only after its HandoffEnded.
struct OpenHandoff {
  Ticket ticket;
  Incarnation peer = 0;
  std::string peer_address;
};
// Planes [plane, plane + n_planes) of the ticket's pages [first_page, first_page + pages.size())
// are final; `pages` are their ids here and stay untouched until the handoff ends. A main handoff
// with parts sends only its pages from ticket.first_page on; a part's pages count from 0.
struct SendCells {
  TicketId ticket_id;
  int32_t plane = 0, n_planes = 1;
  int32_t first_page = 0;
  std::vector<int32_t> pages;
};
struct CommitHandoff {  // all cells were given to SendCells; a part's record is not looked at
  TicketId ticket_id;
  CommitRecord record;
};
// As sink: pages to promise from (moved by value: the link thread owns them until they come out in
// HandoffArrived or PagesReturned), and how long a newcomer would wait for room.
struct LendPages {
  std::vector<int32_t> pages;
  int64_t expected_wait_us = 0;
};
struct ReclaimPages {  // gives back at most n unpromised pages
  int32_t n = 0;
};
// Either side; idempotent; unknown tickets are remembered so that a late OPEN is refused. At the
// sink a main handoff takes its parts along, and a part the main one.
struct CancelHandoff {
  TicketId ticket_id;
  Epoch epoch = 0;
};
// As sink of a relay's inflow, a ticket with promise_pages 0: its KV lands in these pages of the
// engine's own, nothing of the stock. OPEN is answered NO_ROOM until this command is here. Answered
// by InflowArrived as it gets on; exactly one InflowArrived with all planes, or one
// InflowFailed, is the last word: from then on nothing writes the pages. A ticket and epoch is
// awaited at most once; of one ticket the latest epoch lives, opened or awaited. An OPEN that never
// comes has no deadline here: the engine bounds its prompt's wait and cancels.
// What an earlier inflow brought into these pages may be there already, all but one cell at most:
// the source is told with the promise and sends the rest.
struct AwaitInflow {
  TicketId ticket_id;
  Epoch epoch = 0;
  std::vector<int32_t> pages;         // (ticket.kv_pages)
  int32_t n_planes = 0, n_pages = 0;  // there, as InflowArrived counts them
};
using TransferCommand = std::variant<OpenHandoff, SendCells, CommitHandoff, LendPages, ReclaimPages,
                                     CancelHandoff, AwaitInflow>;

// --- events (on the link thread) --------------------------------------------------------------
// As source.
struct HandoffPromised {
  TicketId ticket_id;
};
struct HandoffNoRoom {
  TicketId ticket_id;
  int64_t expected_wait_us = 0;
};
// The handoff is over and no operation reads its pages any more: they may be reused.
struct HandoffEnded {
  TicketId ticket_id;
  absl::Status status;      // OK = committed; else cancelled, refused, peer lost
  int64_t transfer_us = 0;  // OPEN sent to end
};
// As sink.
struct HandoffArrived {  // never of an inflow, nor HandoffAborted
  TicketId ticket_id;
  Epoch epoch = 0;
  RequestId request_id = 0;
  std::vector<int32_t> pages;  // promise_pages of them; the first kv_pages hold the KV, verified
  CommitRecord record;
  int64_t transfer_us = 0;  // OPEN seen to complete
};
struct HandoffAborted {  // after an OPEN was seen; its pages are back in the lent stock
  TicketId ticket_id;
  Epoch epoch = 0;
  RequestId request_id = 0;
  absl::Status status;
};
struct PagesReturned {
  std::vector<int32_t> pages;
};
struct ReceivePoolChanged {  // lent pages not promised, and tickets waiting for room
  int32_t free_pages = 0;
  int32_t waiting = 0;
  uint64_t promises = 0;  // made so far
  bool operator==(const ReceivePoolChanged&) const = default;
};
// Of an inflow planes [0, n_planes) of all pages and plane n_planes of pages [0, n_pages) are
// verified and in place: told when either has risen, at most once per chunk that lands. With all
// planes (n_pages is 0) the engine hears no more of it; the handoff goes on to its COMMIT by
// itself.
struct InflowArrived {
  TicketId ticket_id;
  Epoch epoch = 0;
  int32_t n_planes = 0, n_pages = 0;
};
struct InflowFailed {  // cancelled, refused, source lost, dispatched anew, shutting down
  TicketId ticket_id;
  Epoch epoch = 0;
  absl::Status status;
};
using TransferEvent =
    std::variant<HandoffPromised, HandoffNoRoom, HandoffEnded, HandoffArrived, HandoffAborted,
                 PagesReturned, ReceivePoolChanged, InflowArrived, InflowFailed>;

// Why a chunk that came was not taken. Nothing of it is ever used: it is sent again, or its handoff
// fails.
enum class ChunkRefusal {
  kPayload,         // CRC32C over identity and bytes differs: damaged, swapped, short
  kHeader,          // the header's CRC32C differs, or it is of another protocol
  kLength,          // other than the header says
  kPeer,            // not from the worker at the other end, or not for this one
  kUnknownHandoff,  // another ticket or epoch than those open on this connection
  kNotGranted,      // beyond the window
  kBadRange,        // cells the handoff does not have, or that are under way
  kTooBig,
  kDuplicate,  // in place or on its way already
};
inline constexpr size_t kChunkRefusals = 9;
std::string_view NameOf(ChunkRefusal refusal);  // "payload", "header", ...

struct TransferCounters {  // for metrics; any thread
  uint64_t bytes_sent = 0, bytes_received = 0, chunks_sent = 0, chunks_received = 0;
  uint64_t resent_chunks = 0, handoffs_committed = 0, handoffs_failed = 0;
  std::array<uint64_t, kChunkRefusals> refused_chunks{};  // by ChunkRefusal
  // Connections that ended although a handoff was open on them, handoffs that went on over another
  // one, and the chunks of these that did not have to be sent again.
  uint64_t connections_lost = 0, handoffs_resumed = 0, kept_chunks = 0;

  uint64_t refused(ChunkRefusal why) const { return refused_chunks[static_cast<size_t>(why)]; }
  uint64_t refused() const {
    return std::accumulate(refused_chunks.begin(), refused_chunks.end(), uint64_t{0});
  }
};

// What a link carries: KV for the next rank of a relay, or for a decode worker.
enum class Traffic { kChain, kDecode };
inline constexpr size_t kTraffics = 2;
std::string_view NameOf(Traffic traffic);  // "chain", "decode"

// The way to one peer that this worker hands over to, as measured here.
struct LinkReport {
  Incarnation peer = 0;
  std::string address;
  double bytes_per_second = 0;  // while there was something to carry; 0: not known
  int64_t round_trip_us = 0;    // of a message and its answer on an idle link; 0: not known
  std::array<uint64_t, kTraffics> bytes{};  // of cells that arrived, each once; by Traffic
};

}  // namespace baton
