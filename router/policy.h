// Chooses the workers with the minimal predicted wait, in milliseconds. Pure functions of numbers;
// the same inputs in any order give the same choice.
//
//   prefill_ms = queued work that runs before + own prompt, by the worker's fitted costs, + own
//                prompt once for each longer prompt that it overtakes and so delays
//   decode_ms  = wait for pages and a row + one step, dearer the fuller the batch is
//   plan       = the smallest of prefill_ms + decode_ms + the time in which the link to the decode
//                worker carries the prompt's KV after it is computed; ties (2 %, 1 ms) go to the
//                least recently chosen
//   relay      = the longest queue of its ranks + the chain of their slices, instead of prefill_ms,
//                and the delay of other prompts beyond that which one worker would cause
#pragma once

#include <limits>
#include <optional>

#include "planner/relay_plan.h"
#include "proto/messages.h"
#include "router/prefill_work.h"

namespace baton {

// A worker's prefix cache is expected to hold the KV of a prompt's first `tokens`.
struct CachedPrefix {
  Incarnation worker = 0;
  int32_t tokens = 0;
  uint64_t adds = 0;  // PrefixMemory::adds() of the worker at that time
  bool operator==(const CachedPrefix&) const = default;
};

// Demands of one attempt at a request on its workers.
struct AttemptSpec {
  int32_t n_prompt = 0;    // tokens to prefill
  int32_t max_tokens = 0;  // from position n_prompt on, the first included
  bool covered = false;    // the promise covers every token to come, so no preemption
  CachedPrefix kept{};     // KV of an earlier attempt, which may still be there; worker 0: none
  std::vector<CachedPrefix> cached{};  // KV of other prompts with the same beginning
  bool may_relay = false;              // several workers may share the prefill
  bool prefill_only() const { return max_tokens == 1; }
  // Tokens that `worker` must compute: at least one, for its logits.
  int32_t PrefillTokensAt(Incarnation worker) const;
  // Pages of the prompt's KV, and of all KV the attempt can write. The last token's KV is never
  // written, since nothing follows it.
  int32_t PromptPages(int32_t page_tokens) const;
  int32_t WholePages(int32_t page_tokens) const;
  // Pages promised: the prompt's and one to grow into, so that no pool is set aside for tokens that
  // may never come; all of them when covered.
  int32_t PromisePages(int32_t page_tokens) const;
  // Pages held once `made` tokens are there.
  int32_t HeldPages(int32_t made, int32_t page_tokens) const;
};

// A request's place on a decode worker.
struct DecodeReservation {
  int32_t pages = 0;
  int32_t tokens_left = 0;  // upper bound
};

struct DecodeRoom {
  int64_t pages_free = 0;
  int32_t rows = 0, max_batch = 0;
  double step_ms = 0;
};

// Milliseconds until `pages` and a row are free, if every reservation runs to its end. 0: there is
// room now. If even the end of all reservations does not free enough: the wait for the last one.
double CapacityWaitMs(const DecodeRoom& room, std::vector<DecodeReservation> holdings,
                      int32_t pages);

double DecodeMs(const DecodeRoom& room, double room_wait_ms);

// One worker as seen for one attempt.
struct Candidate {
  Incarnation worker = 0;
  Role role = Role::kBoth;
  bool fits_prefill = false, fits_decode = false;  // the worker could ever hold the request
  double prefill_ms = 0, decode_ms = 0;
  double prompt_ms = 0;    // the prompt's own part of prefill_ms
  double uncached_ms = 0;  // prompt_ms if nothing were cached, as for all ranks of a relay
  // Queueing delay before this prompt (prompts no longer than it run first), and before a slice of
  // it (which also waits for other slices). Later arrivals are not predicted. A slice gains nothing
  // by overtaking prompts that its whole prompt would not: these are delayed instead.
  double ahead_ms = 0, slice_ahead_ms = 0;
  int passed = 0;           // longer prompts, delayed by this one
  double room_wait_ms = 0;  // the part of decode_ms until the promise
  PrefillCost cost{};       // the worker's
  ChainLink link{};         // to every peer that is not in `links`
  std::vector<LinkRate> links{};
  int32_t max_slice_tokens = std::numeric_limits<int32_t>::max();
  uint64_t cpu_group = 0;    // as announced (messages.h)
  double cpu_share = 0;      // as announced
  uint64_t last_chosen = 0;  // number of the last choice that took the worker; 0: none
};

// The candidate that is this worker; null: none is.
const Candidate* CandidateOf(std::span<const Candidate> candidates, Incarnation worker);

struct Plan {
  Incarnation prefill = 0;  // computes the first token; in a relay: the tail
  Incarnation decode = 0;   // 0: prefill only; equal to prefill: KV stays where it is
  double predicted_ms = 0;
  double first_token_ms = 0;  // predicted, from now on
  // A rank of a relay before the tail: computes its slice, in whole pages, and hands all KV up to
  // the slice's end to the next rank. A worker that continues a lost rank's slices is two adjacent
  // ranks, with no handoff between them.
  struct Head {
    Incarnation worker = 0;
    int32_t tokens = 0;  // in the rank's slice; in rounds: in its last slice
    bool operator==(const Head&) const = default;
  };
  std::vector<Head> heads{};          // in the order of slices; empty: no relay
  RelayPush push = RelayPush::kNone;  // kNone without a relay
  // Tokens of all slices of the rounds before the last, in the order of the prompt; empty: the
  // relay has one round.
  std::vector<int32_t> earlier{};
  bool operator==(const Plan&) const = default;

  bool is_relay() const { return !heads.empty(); }
  bool IsHead(Incarnation worker) const;  // false for the tail
  // Workers of heads that are not the tail too, in the order of their slices, each once.
  std::vector<Incarnation> HeadWorkers() const;
  std::vector<Incarnation> PrefillWorkers() const;  // the same, and the tail
  std::vector<Incarnation> Workers() const;         // each once; no order
  size_t n_ranks() const { return heads.size() + 1; }
  size_t n_rounds() const { return earlier.size() / n_ranks() + 1; }
  // Rank i computes slice i, and in rounds n_ranks() + i, ...
  Incarnation WorkerOf(size_t slice) const;
  // True if the slice's worker computes the next slice too.
  bool StaysThere(size_t slice) const { return WorkerOf(slice) == WorkerOf(slice + 1); }
  // Tokens up to the end of each slice.
  std::vector<int32_t> SliceEnds(const AttemptSpec& shape) const;
  // (slices - 1) tokens that cross each hop: those before the slice's end that the next slice's
  // worker lacks.
  std::vector<int32_t> HopTokens(const AttemptSpec& shape) const;
  int32_t LongestSliceAt(Incarnation worker, const AttemptSpec& shape) const;
  // Work of `worker`, be it a head, the tail or the only one.
  PrefillWork PrefillWorkAt(Incarnation worker, const AttemptSpec& shape) const;
  // True if `worker` is a head that must not wait for pages. Pages are taken in order: decode
  // worker and tail, the smaller incarnation first, then heads from the last to the first; a head
  // whose incarnation is smaller than one before it stands outside that order (docs/RELAY.md has
  // the proof).
  bool TakesPagesAtOnce(Incarnation worker) const;
};

// Predicted milliseconds to the first token. Compute starts with the decode worker's promise in
// hand.
double FirstTokenMs(std::span<const Candidate> candidates, Incarnation decode, double queue_ms,
                    double compute_ms);

// Returns `relay` with another of `candidates` in place of the rank or decode worker `lost`: the
// candidate without a part in the relay that could begin soonest; among equals, one that keeps the
// order in which pages are taken. If there is no such candidate, the rank before the lost one
// computes the lost rank's slices too, since it has the KV before them; the second rank takes over
// from the first. Empty: none of them can.
std::optional<Plan> ReplaceWorker(const Plan& relay, Incarnation lost,
                                  std::span<const Candidate> candidates, const AttemptSpec& shape);

// Chooses a prefill worker, which hands over to the best decode worker; a worker of both roles
// keeps its KV and decodes itself. Roles are preferences: without a worker of one role the others
// do both. Empty: no worker could ever hold the request.
std::optional<Plan> ChoosePlan(std::span<const Candidate> candidates, const AttemptSpec& shape);

// Returns `plan` with its prefill shared among the candidates that could begin soonest, where that
// is predicted to pay; else `plan`. waiting: average number of prompts in a prefill worker's queue.
// Ranks stand in descending order of incarnation, the first head's the greatest, and the decode
// worker's is smaller than all or the tail's: an attempt takes pages in ascending order (the
// promise, the tail's, ..., the head's), so workers never wait for each other in a circle.
Plan ShareWithHeads(const Plan& plan, std::span<const Candidate> candidates,
                    const AttemptSpec& shape, int32_t page_tokens, double waiting,
                    const RelayRules& rules, const PlanRecord& record);

}  // namespace baton
