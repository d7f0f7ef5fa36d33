// What router and workers say to each other, as plain values. control.proto is the same on the
// wire; control_codec and the codecs below it convert. Cores and simulation use these structs and
// never see protobuf.
//
// A worker dials its router and announces itself; then both sides talk over one bidirectional
// stream: RouterMessage down, WorkerReport up. A step's tokens of all requests travel in one
// report.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "common/ids.h"
#include "common/sampling_params.h"
#include "common/ticket.h"

namespace baton {

enum class Role { kPrefill, kDecode, kBoth };  // a preference: every worker can do both

// Where KV for a worker is sent.
struct TransferPeer {
  Incarnation incarnation = 0;
  std::string address{};  // host:port of its UCX listener
  bool operator==(const TransferPeer&) const = default;
};

// --- router to worker -------------------------------------------------------------------------

// A rank of a relay that is not its head: the KV of the tokens before its slice comes by handoff,
// in rounds that of the tokens between its slice before and this one.
struct Inflow {
  TicketId ticket_id{};  // its promise_pages is 0: the pages are the prompt's own
  int32_t tokens = 0;  // before the slice, whole pages; 0 = this worker computes from the beginning
  bool operator==(const Inflow&) const = default;
};

// Of a relay's head: it hands its slice to the decode worker too, a part of the tail's handoff.
struct Push {
  Ticket ticket{};  // is_part(); kv_pages are those of the slice; 0: none
  TransferPeer sink{};
  bool operator==(const Push&) const = default;
};

// Of a relay in which a rank computes several slices of the prompt, in rounds or since it goes on
// with a lost rank's too: one that is not its last. Its KV, and what else the rank of the next
// slice lacks up to its end, go to that rank; if that is this one, nowhere.
struct RelayRound {
  int32_t tokens = 0;  // up to the slice's end, whole pages
  Inflow inflow{};
  Ticket ticket{};      // of the last kv_pages up to the slice's end, 0: none; promise_pages is 0
  TransferPeer sink{};  // the next rank; of the tail the first one
  Push push{};          // of the slice
  bool operator==(const RelayRound&) const = default;
};

// Turn the tokens into KV and a first token; hand the KV to `sink`, or keep it when sink is this
// worker itself (colocated) or when max_tokens is 1 (nothing follows; sink.incarnation is 0).
// In a relay of two ranks the head gets the first slice's tokens and is to hand their KV to the
// tail; the tail gets all tokens, computes those of its slice and hands all KV to the decode
// worker, or its own slice only if its ticket says that the others come in parts.
struct PrefillRequest {
  RequestId request_id = 0;
  Epoch epoch = 0;
  Ticket ticket{};
  TransferPeer sink{};
  std::vector<int32_t> tokens{};  // prompt, and after a failover the tokens generated so far
  SamplingParams sampling{};
  bool want_digests = false;
  uint64_t cache_salt = 0;  // KV is reused only among requests of one salt
  int32_t max_total_tokens =
      0;  // of the request: prompt and all that may come; chooses longrope's range
  Inflow inflow{};
  bool is_head = false;  // of a relay: KV alone, no first token; `sink` is the next rank
  Push push{};
  // Of a head that stands out of the order in which attempts wait for pages: when its turn comes
  // and its pages are not free, it fails (PartFault::kPages).
  bool pages_at_once = false;
  // This rank's slices before its last, which the fields above are about.
  std::vector<RelayRound> earlier{};
};

// A sequence is coming: its KV by handoff, its first token in the handoff's COMMIT; or, when the
// PrefillRequest that follows goes to this very worker, both by that prefill.
struct DecodeRequest {
  RequestId request_id = 0;
  Epoch epoch = 0;
  TicketId ticket_id{};
  int32_t n_prompt = 0;    // tokens the prefill runs
  int32_t max_tokens = 0;  // tokens wanted from position n_prompt on, the first one included
  SamplingParams sampling{};
  std::vector<int32_t> stop_tokens{};  // a row that samples one of these ends
  bool want_digests = false;
};

struct CancelRequest {
  RequestId request_id = 0;
  Epoch epoch = 0;  // cancels attempts up to this one
};

struct DrainWorker {};  // finish what runs, take nothing new

using RouterMessage = std::variant<PrefillRequest, DecodeRequest, CancelRequest, DrainWorker>;

// --- worker to router -------------------------------------------------------------------------

struct WorkerAnnounce {
  Incarnation incarnation = 0;
  std::string name{};  // "prefill0": for logs and metrics
  Role role = Role::kBoth;
  TransferPeer transfer{};
  uint64_t model_fingerprint = 0;
  std::string numerics_id{}, layout_id{};
  int32_t page_tokens = 0;
  int32_t pages_total = 0;
  int32_t max_context = 0;  // tokens
  int32_t max_batch = 0;    // decode rows
  int32_t n_layers = 0;
  int32_t kv_token_bytes = 0;        // K and V of one token in one layer, on average
  int32_t max_slice_tokens = 0;      // of a relay's rank; 0 = as many as fit
  double link_bytes_per_second = 0;  // that its KV link is held to; 0 = as fast as it is
  bool reuses_kv = false;            // of prompts with the same beginning
  // What bounds its computing, CPUs or the quota of a container: the same number for workers that
  // have the same, 0 for who does not tell; and how much of it its threads take, 1 = all.
  uint64_t cpu_group = 0;
  double cpu_share = 0;
};

// What prefill costs a worker, fitted to its recent steps: each token so many seconds in the linear
// layers, each pair of a query and a key it sees so many, all layers together; a prompt `floor`
// more.
struct PrefillFit {
  double token = 0, pair = 0, floor = 0;  // seconds
  double error = 0;                       // mean of |actual / predicted - 1| lately
  int32_t n_seen = 0;                     // steps; 0: nothing is known yet
  int32_t n_tokens = 0;  // of prompts, in steps of enough of them to say what one costs
  bool operator==(const PrefillFit&) const = default;
};

// The way from a worker to one that it hands KV over to, as measured by it.
struct LinkRate {
  Incarnation peer = 0;
  double bytes_per_second = 0;
  int64_t round_trip_us = 0;  // of a message and its answer; 0 = not known
  int64_t chain_bytes = 0;    // of KV for next ranks of relays that have arrived, ever
  bool operator==(const LinkRate&) const = default;
};

// Sent on change, at most every 20 ms, and every second while idle.
struct WorkerLoad {
  // Of admitted prompts, still to be computed: tokens, and the pairs of a query and a key they see.
  int32_t prefill_queued_tokens = 0;
  double prefill_queued_pairs = 0;
  int32_t decode_rows = 0;
  int32_t decode_waiting = 0;  // sequences promised or waiting for room
  int32_t pages_free = 0;
  PrefillFit prefill_fit{};
  std::vector<LinkRate> links{};  // those known
  float decode_step_ms = 0;       // measured, 0 = not yet
  bool draining = false;          // finishes what it has, refuses what comes
};

struct TokenOut {
  RequestId request_id = 0;
  Epoch epoch = 0;
  int32_t position = 0;  // absolute: the first token of an n-token prompt has position n
  int32_t token = 0;
  float logprob = 0;
  uint64_t digest = 0;  // xxh64 of the step's logits row, when asked for
};

// kPreempted, of a decode part: its pages went to older requests; no failure, aim it anew.
enum class EndReason { kStopToken, kLength, kCancelled, kFailed, kPreempted };

// The prompt is computed; its first token follows in the same report. Told apart from PartEnded,
// which waits for the handoff and may come after the request's end. Microseconds of the worker's
// clock.
struct PromptComputed {
  RequestId request_id = 0;
  Epoch epoch = 0;
  int64_t queue_us = 0;       // admitted to first step: the wait for a promise included
  int64_t compute_us = 0;     // first step to the end of the last one
  int32_t reused_tokens = 0;  // whose KV was there, of an earlier prompt
};

// Of a failed part: where the fault lies, for the choice of workers that are asked next.
enum class PartFault {
  kOwn,       // with this worker or this request
  kHandoff,   // with the other end of its handoff, or the way to it
  kInflow,    // the same of the handoff by which a rank gets its inflow
  kPush,      // the same of a head's push
  kRing,      // the same of a tail's handoff to the first rank, in rounds
  kPeer,      // not known: a handoff was given up by its other end
  kPages,     // nowhere: its pages were to be taken at once, and too few are free
  kDraining,  // nowhere: the worker takes nothing new
  // With the request: the message about it is not one of ours, and no other worker would read it.
  kUnreadable
};

// A worker's part in a request is over; nothing of it is held there any more.
struct PartEnded {
  RequestId request_id = 0;
  Epoch epoch = 0;
  bool was_prefill = false;
  EndReason reason = EndReason::kLength;
  PartFault fault = PartFault::kOwn;  // of kFailed
  std::string message{};              // of kFailed: what, where
  // Durations on the worker's own clock, microseconds. Prefill: transfer (OPEN sent to COMMITTED).
  // Decode: transfer (OPEN seen to complete), queue (complete to first step), compute (first step
  // to end).
  int64_t queue_us = 0, compute_us = 0, transfer_us = 0;
  // Prefill, of a later attempt: tokens it computed, but for slices that it went on with.
  int32_t recomputed_tokens = 0;
};

// The decode worker has no room for this ticket's pages yet; the request waits there in order. The
// prefill worker says so, which heard it as the answer to its OPEN.
struct NoRoomNotice {
  RequestId request_id = 0;
  Epoch epoch = 0;
  int64_t expected_wait_us = 0;
};

using WorkerEvent =
    std::variant<WorkerAnnounce, WorkerLoad, TokenOut, PromptComputed, PartEnded, NoRoomNotice>;

struct WorkerReport {
  std::vector<WorkerEvent> events{};  // in order
};

}  // namespace baton
