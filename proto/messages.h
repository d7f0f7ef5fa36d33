// Messages between router and workers, as plain values. control.proto is their form on the wire;
// control_fields.h says how each field travels, and what is allowed in it. Cores and simulation use
// these structs and never see protobuf. The numbers of enums and the order of the alternatives of
// RouterMessage and WorkerEvent are those of control.proto.
//
// A worker dials each router of its cluster and announces itself; then both sides talk over one
// bidirectional stream: RouterMessage down, WorkerReport up. A step's tokens of all requests of the
// router travel in one report.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/cached_pages.h"
#include "common/ids.h"
#include "common/link_rate.h"
#include "common/prefill_cost.h"
#include "common/sampling_params.h"
#include "common/step_cost.h"
#include "common/ticket.h"

namespace baton {

enum class Role { kPrefill = 1, kDecode, kBoth };  // a preference: every worker can do both

// Address of the worker that receives KV.
struct TransferPeer {
  Incarnation incarnation = 0;
  std::string address{};  // host:port of its UCX listener
  bool operator==(const TransferPeer&) const = default;
};

// --- router to worker -------------------------------------------------------------------------

// An output of a slice: pages of the prompt's KV for a worker that has promised pages for them.
struct KvOutput {
  Ticket ticket{};  // the pages fill its range of the promise
  TransferPeer peer{};
  // First of these ticket.n_pages pages, counted from the prompt's beginning.
  int32_t first_page = 0;  // the ticket's own first_page counts from the promise's beginning
  bool operator==(const KvOutput&) const = default;
};

// Tokens of a prompt that one worker computes in one go: where the KV before them comes from, and
// where KV up to their end goes. A prompt alone is one slice with one output; a relay is a list of
// slices, and chains, rings and pushes are nothing but other inflows and outputs.
struct SliceSpec {
  int32_t begin = 0, end = 0;  // tokens, whole pages; the prompt may end within a page
  // The promise that brings KV of the tokens between this worker's slice before (or the prompt's
  // beginning) and `begin`, into pages that this worker names. Zero: it lacks none.
  TicketId inflow{};
  // To other workers, or to this one itself, whose decode batch then takes the pages over. Each
  // covers the slice's pages, and perhaps some before it. One is promised before the prompt takes
  // pages: that to the decode worker if this worker computes the first token, else the first one to
  // another rank.
  std::vector<KvOutput> outputs{};
  bool operator==(const SliceSpec&) const = default;
};

// Computes the slices' KV in their order, and a first token after the last one if that is wanted.
struct PrefillRequest {
  RequestId request_id = 0;
  Epoch epoch = 0;
  // The prompt up to the last slice's end, and after a failover the tokens generated so far.
  std::vector<int32_t> tokens{};
  int32_t n_generated = 0;  // the last n_generated of `tokens` were generated so far
  SamplingParams sampling{};
  std::vector<int32_t> stop_tokens{};  // not drawn before sampling.min_tokens are generated
  bool want_digests = false;
  // Asks for the log-probabilities of the prompt's tokens, each with so many of the most probable
  // ones (-1: no). Every token is computed then, so no KV is reused; no rank of a relay is asked.
  int32_t prompt_logprobs = -1;
  uint64_t cache_salt = 0;  // KV is reused only among requests with the same salt
  int32_t max_total_tokens =
      0;  // total of the request: prompt and future tokens; chooses longrope's range
  // This worker's share of the prompt, in order; at least one. The last slice of one who computes
  // the first token goes to the decode worker, or nowhere if no token follows.
  std::vector<SliceSpec> slices{};
  bool wants_first_token = true;
  // For a rank that does not wait for pages in the order of attempts: if its pages are not free
  // when its turn comes, it fails (PartFault::kPages).
  bool pages_at_once = false;
  // Stamped by the worker's end of the wire, and not told: when the message came, on the worker's
  // clock (worker/request_stamps.h); UnixEpoch: unknown.
  absl::Time received{};
};

// Announces a sequence: its KV arrives by handoff and its first token in the handoff's COMMIT; or
// (is_local) both come from the PrefillRequest that follows to the same worker.
struct DecodeRequest {
  RequestId request_id = 0;
  Epoch epoch = 0;
  TicketId ticket_id{};  // the id of the promise
  // The tokens that the prefill runs: the prompt, and after a failover those generated so far.
  std::vector<int32_t> tokens{};
  int32_t n_generated = 0;  // the last n_generated of `tokens` were generated so far
  int32_t max_tokens = 0;   // tokens to generate after `tokens`
  uint64_t cache_salt = 0;  // KV is reused only among requests with the same salt
  bool is_local = false;
  SamplingParams sampling{};
  std::vector<int32_t> stop_tokens{};  // a row that samples one of these tokens ends
  bool want_digests = false;
};

struct CancelRequest {
  RequestId request_id = 0;
  Epoch epoch = 0;  // cancels attempts up to this one
};

struct TellPages {};  // a CachedPages of the worker is missing: it is to restart

using RouterMessage = std::variant<PrefillRequest, DecodeRequest, CancelRequest, TellPages>;

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
  int32_t max_context = 0;           // tokens
  int32_t max_batch = 0;             // decode rows
  int32_t max_slice_tokens = 0;      // longest slice of a relay; 0: as many tokens as fit
  double link_bytes_per_second = 0;  // rate limit of its KV link; 0: not limited
  bool reuses_kv = false;            // reuses KV of prompts with the same beginning
  // Id of the CPU set or cgroup quota that bounds the worker's computing (equal ids share it; 0:
  // unknown), and the fraction of it that the worker's threads use (1 = all).
  uint64_t cpu_group = 0;
  double cpu_share = 0;
  PrefillCost prefill_cost{};      // before its first step; not known, but for layers and KV bytes
  int32_t short_range_tokens = 0;  // longer sequences have RoPE's long range; 0: there is one range
  // A step with rows takes prompt tokens, too, until it is so many times as long as without, and
  // in any case so many.
  double itl_stretch = 1;
  int32_t min_mixed_tokens = 1;
  // The worker's monotonic clock when this was sent; the limits of tickets for it are told in it.
  int64_t clock_us = 0;
};

// Sent every second; sooner, but at most every 20 ms, where a count or `draining` has changed. New
// costs and links alone wait for the next one.
struct WorkerLoad {
  // Work still to be computed for admitted prompts: tokens, and pairs of a query and a visible key.
  int32_t prefill_queued_tokens = 0;
  double prefill_queued_pairs = 0;
  int32_t decode_rows = 0;
  int32_t decode_waiting = 0;  // sequences promised or waiting for room
  int32_t pages_free = 0;
  PrefillCost prefill_cost{};  // fitted to recent steps; not known before the first prompt
  // Seconds of a step of prompts alone, while more is queued than it takes; 0: not known.
  double prompt_step_seconds = 0;
  int32_t fitted_tokens = 0;      // prompt tokens, of the steps with enough tokens to fit a cost
  StepCost step_cost{};           // fitted to recent steps with rows; not known before the first
  std::vector<LinkRate> links{};  // only links with a known rate
  bool draining = false;          // finishes its requests, refuses new ones
  int64_t clock_us = 0;           // as in WorkerAnnounce

  static constexpr int32_t kKnownTokens = 256;  // one prompt that is worth a relay
  bool knows_prefill() const { return fitted_tokens >= kKnownTokens; }
};

struct TokenOut {
  RequestId request_id = 0;
  Epoch epoch = 0;
  int32_t position = 0;  // absolute: the first token of an n-token prompt has position n
  int32_t token = 0;
  float logprob = 0;
  uint64_t digest = 0;  // xxh64 of the step's logits row, when asked for
  // As SamplingParams asks: the most probable tokens, descending (equal ones by ascending id), then
  // logprob_tokens in their order.
  std::vector<TokenLogprob> logprobs{};
};

// Log-probabilities of tokens of a prompt, in order from that at position 1 on (nothing precedes
// the first token). Sent as chunks are computed, all of them before the first token.
struct PromptLogprobs {
  static constexpr int kMaxTokens = 64;  // of one message
  RequestId request_id = 0;
  Epoch epoch = 0;
  int32_t position = 0;  // of the first token told here
  std::vector<PromptLogprob> tokens{};
};

// kPreempted (decode parts): the pages went to older requests; not a failure, dispatch it anew.
enum class EndReason { kStopToken = 1, kLength, kCancelled, kFailed, kPreempted };

// The prompt is computed; its first token follows in the same report. Separate from PartEnded,
// which waits for the handoff and may come after the request's end. Microseconds of the worker's
// clock.
struct PromptComputed {
  RequestId request_id = 0;
  Epoch epoch = 0;
  int64_t queue_us = 0;       // admitted to first step, including the wait for a promise
  int64_t compute_us = 0;     // first step to the end of the last step
  int32_t reused_tokens = 0;  // tokens whose KV came from an earlier prompt
  // The message came here to admitted: the engine was in a turn, or compiled the grammar; end of
  // the last step to this report on its way: tokens were drawn, and the turn went on.
  int64_t inbox_us = 0, draw_us = 0;
  absl::Time computed{};  // end of the last step; not told, as PrefillRequest::received
};

// Place of the fault of a failed part, for the choice of workers for the next attempt.
enum class PartFault {
  kOwn = 1,   // this worker or this request
  kHandoff,   // the other end, or the link, of the handoff that PartEnded::ticket_id names
  kPeer,      // unknown: the other end gave up a handoff
  kPages,     // no fault: pages_at_once was set, and too few pages are free
  kDraining,  // no fault: the worker accepts no new requests
  // The request: the message about it is malformed, and no other worker could read it.
  kUnreadable,
  // The request: its grammar cannot go on (a bound of its work, or no token is left that it and the
  // other parameters allow), and it could not on any other worker.
  kGrammar
};

// True if the fault is the request's: another attempt would fail as well.
inline bool IsOfRequest(PartFault fault) {
  return fault == PartFault::kUnreadable || fault == PartFault::kGrammar;
}

// A worker's part in a request is over; the worker holds nothing of it any more.
struct PartEnded {
  RequestId request_id = 0;
  Epoch epoch = 0;
  bool was_prefill = false;
  EndReason reason = EndReason::kLength;
  PartFault fault = PartFault::kOwn;  // kFailed only
  TicketId ticket_id{};               // kHandoff of a prefill part only
  std::string message{};              // kFailed only: what, where
  // Durations on the worker's own clock, microseconds. Prefill: transfer (OPEN sent to COMMITTED),
  // compute (blocks of a relay's slices; 0 without any). Decode: transfer (OPEN seen to complete),
  // queue (complete to first step), compute (first step to last token).
  int64_t queue_us = 0, compute_us = 0, transfer_us = 0;
  // Prefill: from the first token to COMMITTED, which is what computing does not hide of the
  // transfer; 0 without a handoff. Decode: the first step with its row.
  int64_t exposed_us = 0, first_step_us = 0;
  // Prefill, later attempts: tokens computed, except slices continued from an earlier attempt.
  int32_t recomputed_tokens = 0;
  // Prefill: as PromptComputed tells them, which is not sent without a first token.
  int32_t reused_tokens = 0;
};

// The decode worker has no room for this ticket's pages yet; the request waits there in order. Sent
// by the prefill worker, which received NO_ROOM as the answer to its OPEN.
struct NoRoomNotice {
  RequestId request_id = 0;
  Epoch epoch = 0;
  int64_t expected_wait_us = 0;
};

using WorkerEvent = std::variant<WorkerAnnounce, WorkerLoad, TokenOut, PromptComputed, PartEnded,
                                 NoRoomNotice, PromptLogprobs, CachedPages>;

// Tells what the engine thread of a worker does while the report is sent.
struct EngineTurn {
  uint64_t turns =
      0;  // begun since its start; a turn lasts from one look at its mailbox to the next
  int64_t age_us = 0;       // of the turn under way; 0: the engine waits for work
  int64_t expected_us = 0;  // what this turn's step should take, as steps before it did

  // An engine stands still whose turn lasts longer: so long at least, and three times what its step
  // should take.
  int64_t PatienceUs(int64_t min_us) const {
    constexpr int64_t kSlower = 3;
    return expected_us > min_us / kSlower ? kSlower * expected_us : min_us;
  }
};

struct WorkerReport {
  std::vector<WorkerEvent> events{};  // in order
  EngineTurn engine{};
};

}  // namespace baton
