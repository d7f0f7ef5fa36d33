// Messages between router and workers, as plain values. control.proto is their form on the wire;
// control_codec and the codecs below it convert. Cores and simulation use these structs and never
// see protobuf.
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

// Address of the worker that receives KV.
struct TransferPeer {
  Incarnation incarnation = 0;
  std::string address{};  // host:port of its UCX listener
  bool operator==(const TransferPeer&) const = default;
};

// --- router to worker -------------------------------------------------------------------------

// Input of a relay rank that is not the first: KV of the tokens before its slice arrives by handoff
// (with rounds: KV of the tokens between its previous slice and this one).
struct Inflow {
  TicketId ticket_id{};  // with promise_pages 0: the pages are the prompt's own
  int32_t tokens = 0;    // tokens before the slice, whole pages; 0: the slice is the first
  bool operator==(const Inflow&) const = default;
};

// Extra output of a relay's head: sends its slice to the decode worker too, as a part of the tail's
// handoff.
struct Push {
  Ticket ticket{};  // is_part(); kv_pages: pages of the slice; 0: no push
  TransferPeer sink{};
  bool operator==(const Push&) const = default;
};

// One slice of this worker's share of a relay, except the last slice (which is in PrefillRequest):
// a rank has several slices in rounds, or after taking over a lost rank's. Its KV, and any other KV
// that the rank of the next slice lacks up to the slice's end, go to that rank; nowhere if that
// rank is this worker.
struct RelayRound {
  int32_t tokens = 0;  // tokens up to the slice's end, whole pages
  Inflow inflow{};
  Ticket ticket{};      // for the last kv_pages up to the slice's end, 0: none; promise_pages is 0
  TransferPeer sink{};  // the next rank; for the tail, the first rank
  Push push{};          // push of the slice
  bool operator==(const RelayRound&) const = default;
};

// Computes KV of the tokens and a first token; hands the KV to `sink`, or keeps it if sink is this
// worker itself (colocated) or if max_tokens is 1 (no token follows; sink.incarnation is 0). In a
// relay of two ranks, the head gets the first slice's tokens and hands their KV to the tail; the
// tail gets all tokens, computes those of its slice and hands all KV to the decode worker, or only
// its own slice if its ticket says that the rest comes in parts.
struct PrefillRequest {
  RequestId request_id = 0;
  Epoch epoch = 0;
  Ticket ticket{};
  TransferPeer sink{};
  std::vector<int32_t> tokens{};  // prompt, and after a failover the tokens generated so far
  SamplingParams sampling{};
  bool want_digests = false;
  uint64_t cache_salt = 0;  // KV is reused only among requests with the same salt
  int32_t max_total_tokens =
      0;  // total of the request: prompt and future tokens; chooses longrope's range
  Inflow inflow{};
  bool is_head = false;  // relay's head: computes KV only, no first token; `sink` is the next rank
  Push push{};
  // For a head that does not wait for pages in the order of attempts: if its pages are not free
  // when its turn comes, it fails (PartFault::kPages).
  bool pages_at_once = false;
  // Slices of this rank before its last slice; the fields above describe the last one.
  std::vector<RelayRound> earlier{};
};

// Announces a sequence: its KV arrives by handoff and its first token in the handoff's COMMIT; or
// both come from the PrefillRequest that follows, if that goes to the same worker.
struct DecodeRequest {
  RequestId request_id = 0;
  Epoch epoch = 0;
  TicketId ticket_id{};
  int32_t n_prompt = 0;    // tokens the prefill runs
  int32_t max_tokens = 0;  // tokens to generate from position n_prompt on, the first token included
  SamplingParams sampling{};
  std::vector<int32_t> stop_tokens{};  // a row that samples one of these tokens ends
  bool want_digests = false;
};

struct CancelRequest {
  RequestId request_id = 0;
  Epoch epoch = 0;  // cancels attempts up to this one
};

struct DrainWorker {};  // finish running requests, accept no new ones

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
  int32_t kv_token_bytes = 0;        // bytes of K and V of one token in one layer, on average
  int32_t max_slice_tokens = 0;      // longest slice of a relay; 0: as many tokens as fit
  double link_bytes_per_second = 0;  // rate limit of its KV link; 0: not limited
  bool reuses_kv = false;            // reuses KV of prompts with the same beginning
  // Id of the CPU set or cgroup quota that bounds the worker's computing (equal ids share it; 0:
  // unknown), and the fraction of it that the worker's threads use (1 = all).
  uint64_t cpu_group = 0;
  double cpu_share = 0;
};

// Prefill cost of a worker, fitted to its recent steps, all layers together: seconds per token in
// the linear layers, seconds per pair of a query and a visible key, and `floor` seconds per prompt.
struct PrefillFit {
  double token = 0, pair = 0, floor = 0;  // seconds
  double error = 0;                       // recent mean of |actual / predicted - 1|
  int32_t n_seen = 0;                     // steps; 0: unknown cost
  int32_t n_tokens = 0;  // prompt tokens, counted in steps with enough tokens to fit a cost
  bool operator==(const PrefillFit&) const = default;
};

// The link from a worker to a receiver of its KV, as the worker measured it.
struct LinkRate {
  Incarnation peer = 0;
  double bytes_per_second = 0;
  int64_t round_trip_us = 0;  // of a message and its answer; 0: unknown
  int64_t chain_bytes = 0;    // total bytes of KV that arrived for next ranks of relays
  bool operator==(const LinkRate&) const = default;
};

// Sent on change, at most every 20 ms, and every second while idle.
struct WorkerLoad {
  // Work still to be computed for admitted prompts: tokens, and pairs of a query and a visible key.
  int32_t prefill_queued_tokens = 0;
  double prefill_queued_pairs = 0;
  int32_t decode_rows = 0;
  int32_t decode_waiting = 0;  // sequences promised or waiting for room
  int32_t pages_free = 0;
  PrefillFit prefill_fit{};
  std::vector<LinkRate> links{};  // only links with a known rate
  float decode_step_ms = 0;       // measured; 0: not yet
  bool draining = false;          // finishes its requests, refuses new ones
};

struct TokenOut {
  RequestId request_id = 0;
  Epoch epoch = 0;
  int32_t position = 0;  // absolute: the first token of an n-token prompt has position n
  int32_t token = 0;
  float logprob = 0;
  uint64_t digest = 0;  // xxh64 of the step's logits row, when asked for
};

// kPreempted (decode parts): the pages went to older requests; not a failure, dispatch it anew.
enum class EndReason { kStopToken, kLength, kCancelled, kFailed, kPreempted };

// The prompt is computed; its first token follows in the same report. Separate from PartEnded,
// which waits for the handoff and may come after the request's end. Microseconds of the worker's
// clock.
struct PromptComputed {
  RequestId request_id = 0;
  Epoch epoch = 0;
  int64_t queue_us = 0;       // admitted to first step, including the wait for a promise
  int64_t compute_us = 0;     // first step to the end of the last step
  int32_t reused_tokens = 0;  // tokens whose KV came from an earlier prompt
};

// Place of the fault of a failed part, for the choice of workers for the next attempt.
enum class PartFault {
  kOwn,       // this worker or this request
  kHandoff,   // the other end of its handoff, or the link to it
  kInflow,    // the other end or the link of the handoff that brings a rank's inflow
  kPush,      // the other end or the link of a head's push
  kRing,      // in rounds: the other end or the link of a tail's handoff to the first rank
  kPeer,      // unknown: the other end gave up a handoff
  kPages,     // no fault: pages_at_once was set, and too few pages are free
  kDraining,  // no fault: the worker accepts no new requests
  // The request: the message about it is malformed, and no other worker could read it.
  kUnreadable
};

// A worker's part in a request is over; the worker holds nothing of it any more.
struct PartEnded {
  RequestId request_id = 0;
  Epoch epoch = 0;
  bool was_prefill = false;
  EndReason reason = EndReason::kLength;
  PartFault fault = PartFault::kOwn;  // kFailed only
  std::string message{};              // kFailed only: what, where
  // Durations on the worker's own clock, microseconds. Prefill: transfer (OPEN sent to COMMITTED).
  // Decode: transfer (OPEN seen to complete), queue (complete to first step), compute (first step
  // to end).
  int64_t queue_us = 0, compute_us = 0, transfer_us = 0;
  // Prefill, later attempts: tokens computed, except slices continued from an earlier attempt.
  int32_t recomputed_tokens = 0;
};

// The decode worker has no room for this ticket's pages yet; the request waits there in order. Sent
// by the prefill worker, which received NO_ROOM as the answer to its OPEN.
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
