// Input and output of a Transfer (kvtransfer/transfer.h): the pool that both ends address, options,
// facts, commands, events, counters. Plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/ids.h"
#include "common/link_rate.h"
#include "common/router_id.h"
#include "common/state_machine.h"
#include "common/status.h"
#include "common/ticket.h"
#include "kvtransfer/protocol/transport.h"

namespace baton {

// Bytes of one plane of a page.
struct PoolPlane {
  int64_t offset = 0, bytes = 0;  // inside a page
};

// The arena that both ends address by (page id, plane). The arena outlives the Transfer and is
// constant until then, except the frames of pages that no handoff works on.
struct PoolView {
  std::byte* base = nullptr;
  int64_t page_stride = 0;  // bytes from one page to the next
  int32_t n_pages = 0;      // page ids are below this
  std::vector<PoolPlane> planes;
  // (n_pages, planes) If not null, the planes of a page lie apart, each in its own frame: at this
  // multiple of frame_bytes from `base`.
  const int32_t* frames = nullptr;
  int64_t frame_bytes = 0;  // bytes of one frame
  int64_t arena_bytes = 0;  // 0: n_pages * page_stride
};

inline constexpr int64_t kMaxChunkBytes = 64 << 20;

struct TransferOptions {
  std::string listen_host = "127.0.0.1";      // an IPv4 address of this machine
  std::string ports = "0";                    // PortRange
  KvTransport transport = KvTransport::kTcp;  // how KV travels
  // Networks between whose machines KV has no MAC; this machine is trusted, too. Empty: nobody is.
  std::string trusted_cidrs = "127.0.0.0/8";
  // Networks: the kernel drops what others send to the KV ports. This machine is always allowed.
  std::string allowed_cidrs = "0.0.0.0/0";
  // Max payload of a DATA message, up to kMaxChunkBytes; raised to the bytes of the largest plane.
  int64_t chunk_bytes = 1 << 20;
  int64_t window_bytes = 8 << 20;  // announced and not yet acknowledged, per handoff
  // Bounce slots of one chunk each, per direction, for chunks whose bytes are not contiguous in the
  // pool; 0: for four windows. Their memory is used until the link is gone.
  int32_t slab_slots = 0;
  int64_t hello_timeout_ms = 2000;
  int64_t peer_timeout_ms = 4000;  // silence after which a peer is given up
  // A handoff that waits for room at the sink, and one promised whose source neither sends nor
  // commits although both ends are well: how long before it ends.
  int64_t room_timeout_ms = 600'000;
  int64_t idle_timeout_ms = 600'000;
  TransitionCounts* transitions = nullptr;  // counts transitions; tests only
};

// Facts about the worker.
struct TransferFacts {
  Incarnation incarnation = 0;  // never 0
  ClusterKey key{};
  // Two ends exchange KV only if these are equal; HELLO names the one that differs.
  uint64_t model_fingerprint = 0;
  std::string numerics_id{}, layout_id{};
};

// Record that the source's worker sends to the sink's worker at the end.
struct CommitRecord {
  int32_t first_token = 0;
  int32_t n_tokens = 0;  // tokens whose KV was sent; the first token has this position
};

// --- commands (any thread) --------------------------------------------------------------------
// `after`: a point of the engine's timeline, which rises; 0: reached. Until the engine is there it
// may still write the pages. The CellCopier waits for it; commands go on at once.

// As source: opens a handoff of this ticket to `peer` (host:port). A ticket id is open here at most
// once: again only after its HandoffEnded.
struct OpenHandoff {
  Ticket ticket;
  Incarnation peer = 0;
  std::string peer_address;
};
// Planes [plane, plane + n_planes) of the promise's pages [first_page, first_page + pages.size()),
// which lie in the ticket's range, are final at `after`; `pages` are their ids in this process and
// stay unchanged from then on until the handoff ends.
struct SendCells {
  TicketId ticket_id;
  int32_t plane = 0, n_planes = 1;
  int32_t first_page = 0;
  std::vector<int32_t> pages;
  uint64_t after = 0;
};
// All cells of the range were given to SendCells. The record of the promise's last range counts.
struct CommitHandoff {
  TicketId ticket_id;
  CommitRecord record;
};
// As sink: pages for promises (moved by value: the link thread owns them until they come out in
// HandoffArrived or PagesReturned), and the expected wait of a new handoff for room. The engine
// uses them no more from `after` on.
struct LendPages {
  std::vector<int32_t> pages;
  int64_t expected_wait_us = 0;
  uint64_t after = 0;
};
// As sink: lends the first pages of a promise, which have their KV from earlier sequences: they are
// not sent. Once the promise has its pages, this comes too late: the pages come back in
// PagesReturned.
struct LendHeld {
  TicketId ticket_id;  // of the promise
  Epoch epoch = 0;
  std::vector<int32_t> pages;
};
struct ReclaimPages {  // gives back at most n unpromised pages
  int32_t n = 0;
};
struct ReclaimHeld {
};  // gives back those of LendHeld whose promises have not got their other pages
// As sink: fails the promises to requests of this router, which is lost and with it the requests;
// without one all promises, and gives back what LendHeld lent.
struct CancelPromises {
  std::optional<RouterId> router{};
};
// Cancels at either side; idempotent; unknown tickets are remembered so that a late OPEN is
// refused. At the sink, the id is that of a ticket or of a promise; all handoffs of the promise are
// cancelled.
struct CancelHandoff {
  TicketId ticket_id;
  Epoch epoch = 0;
};
// As sink of a relay's inflow: names the pages of a promise whose tickets have promise_pages 0. KV
// lands in these pages of the engine, not in lent pages. OPEN is answered NO_ROOM until this
// command arrives. InflowArrived events report progress; the last event is exactly one
// InflowArrived with all planes or one InflowFailed, and nothing writes the pages afterwards. A
// promise and epoch is awaited at most once; only the latest epoch of a promise lives, opened or
// awaited. An OPEN that never comes has no deadline here: the engine bounds its prompt's wait and
// cancels. Cells already present from an earlier inflow are skipped; at least one cell is always
// sent. The promise tells the source which cells are present. The engine writes the missing ones no
// more from `after` on.
struct AwaitInflow {
  TicketId ticket_id;  // of the promise, here and in the events of sinks
  Epoch epoch = 0;
  std::vector<int32_t> pages;         // (kv_pages of the promise), with a cell that is missing
  int32_t n_planes = 0, n_pages = 0;  // cells already present, counted as in InflowArrived
  uint64_t after = 0;
};
using TransferCommand =
    std::variant<OpenHandoff, SendCells, CommitHandoff, LendPages, LendHeld, ReclaimPages,
                 ReclaimHeld, CancelPromises, CancelHandoff, AwaitInflow>;

// --- events (on the link thread) --------------------------------------------------------------
// As source: the sink promised the ticket's pages.
struct HandoffPromised {
  TicketId ticket_id;
};
// As source: the sink has no room yet; the wait is an estimate.
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
// As sink: all ranges of a promise are complete and committed.
struct HandoffArrived {  // an inflow makes neither this event nor HandoffAborted
  TicketId ticket_id;    // the id of the promise
  Epoch epoch = 0;
  RequestId request_id = 0;
  std::vector<int32_t> pages;  // (promise_pages) the first kv_pages hold the KV, verified
  CommitRecord record;
  int64_t transfer_us = 0;  // from OPEN seen to complete
};
struct HandoffAborted {  // after an OPEN was seen; the pages are back in the receive pool
  TicketId ticket_id;
  Epoch epoch = 0;
  RequestId request_id = 0;
  absl::Status status;
};
// As sink: lent pages that come back to the engine.
struct PagesReturned {
  std::vector<int32_t> pages;
};
struct ReceivePoolChanged {
  int32_t free_pages = 0;  // lent pages not promised
  int32_t waiting = 0;     // tickets waiting for room
  int32_t held_pages = 0;  // of LendHeld, whose promises have not got their other pages
  uint64_t promises = 0;   // promises made so far
  bool operator==(const ReceivePoolChanged&) const = default;
};
// Planes [0, n_planes) of all pages and plane n_planes of pages [0, n_pages) of an inflow are
// verified and in place. Emitted when either number has risen, at most once per landed chunk. With
// all planes (n_pages is 0) it is the last event for the engine; the handoff continues to its
// COMMIT.
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
// All links of known speed, in order of incarnation. Emitted when one was measured anew, at most
// every 20 ms.
struct LinksMeasured {
  std::vector<LinkRate> links;
};
using TransferEvent =
    std::variant<HandoffPromised, HandoffNoRoom, HandoffEnded, HandoffArrived, HandoffAborted,
                 PagesReturned, ReceivePoolChanged, InflowArrived, InflowFailed, LinksMeasured>;

// Reason why an incoming chunk was refused. No byte of a refused chunk is used: it is sent again,
// or its handoff fails.
enum class ChunkRefusal {
  kPayload,         // CRC32C over identity and bytes differs: damaged, swapped, short
  kHeader,          // CRC32C of the header differs, or another protocol
  kLength,          // length differs from the header's
  kPeer,            // not from the worker at the other end, or not for this worker
  kUnknownHandoff,  // ticket or epoch not open on this connection
  kNotGranted,      // beyond the window
  kBadRange,        // cells that the handoff does not have, or that are under way
  kTooBig,          // longer than the sink's chunk_bytes
  kDuplicate,       // already in place or under way
  kMac,             // not what the worker at the other end signed
};
inline constexpr size_t kChunkRefusals = 10;
std::string_view NameOf(ChunkRefusal refusal);  // "payload", "header", ...

// Reason why a connection of a peer, or a message of it, was not taken.
enum class PeerRefusal {
  kSilent,    // said nothing within hello_timeout
  kNoHello,   // said something else first
  kOtherKey,  // HELLO proves another cluster key
  kProof,     // HELLO proves nothing: forged, or recorded on another connection
  kDiffers,   // another model, numerics, layout, or meant for an earlier process
  kCrowded,   // closed for a newer one while it had said nothing, or too many peers
  kForged,    // a message that has not the MAC of this connection
  kRepeated,  // a message that came before on this connection
};
inline constexpr size_t kPeerRefusals = 8;
std::string_view NameOf(PeerRefusal refusal);  // "silent", "no_hello", ...

// Reason why a ticket was not taken.
enum class TicketRefusal {
  kOtherKey,     // signed with another cluster key
  kSignature,    // forged or damaged
  kOtherSink,    // for another worker, or for an earlier process
  kOtherSource,  // sent by another worker than it names
  kMalformed,    // its pages make no sense, or are more than there are
  kExpired,
};
inline constexpr size_t kTicketRefusals = 6;
std::string_view NameOf(TicketRefusal refusal);  // "other_key", "signature", ...

struct TransferCounters {  // for metrics; any thread
  uint64_t bytes_sent = 0, bytes_received = 0, chunks_sent = 0, chunks_received = 0;
  uint64_t signed_chunks = 0;  // of those sent, with a MAC
  uint64_t resent_chunks = 0;
  // Counts of sources. Cancelled: one of both sides needs the KV no more, as when a client has
  // left.
  uint64_t handoffs_committed = 0, handoffs_cancelled = 0, handoffs_failed = 0;
  uint64_t held_pages = 0;  // of promises, whose KV was here and was not sent
  std::array<uint64_t, kChunkRefusals> refused_chunks{};  // by ChunkRefusal
  std::array<uint64_t, kPeerRefusals> refused_peers{};
  std::array<uint64_t, kTicketRefusals> refused_tickets{};
  // Connections that ended while a handoff was open on them, handoffs that continued over another
  // connection, and chunks of these that were not sent again.
  uint64_t connections_lost = 0, handoffs_resumed = 0, kept_chunks = 0;

  void CountRefusal(ChunkRefusal why) { ++refused_chunks[static_cast<size_t>(why)]; }
  void CountRefusal(PeerRefusal why) { ++refused_peers[static_cast<size_t>(why)]; }
  void CountRefusal(TicketRefusal why) { ++refused_tickets[static_cast<size_t>(why)]; }
};

// Kinds of traffic of a link: KV for the next rank of a relay, or for a decode worker.
enum class Traffic { kChain, kDecode };
inline constexpr size_t kTraffics = 2;
std::string_view NameOf(Traffic traffic);  // "chain", "decode"

// The link to one peer that receives handoffs from this worker, for metrics.
struct LinkReport {
  LinkRate rate{};  // while there were bytes to carry; bytes_per_second 0: unknown
  std::string address;
  std::array<uint64_t, kTraffics> bytes{};  // of cells that arrived, each counted once; by Traffic
};

}  // namespace baton
