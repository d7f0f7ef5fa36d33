// Chooses the workers with the minimal predicted wait, in seconds. Pure functions of numbers; the
// same inputs in any order give the same choice.
//
//   prefill = queued work that runs before + own prompt, by the worker's fitted costs, + own prompt
//             once for each longer prompt that it overtakes and so delays
//   decode  = wait for pages and a row + one step, dearer the fuller the batch is
//   plan    = the smallest of prefill + decode + the time in which the link to the decode worker
//             carries the prompt's KV after it is computed; ties (2 %, 1 ms) go to the least
//             recently chosen
//   relay   = the longest queue of its ranks + the chain of their slices, instead of prefill, and
//             the delay of other prompts beyond that which one worker would cause
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
  double step_seconds = 0;
};

// Seconds until `pages` and a row are free, if every reservation runs to its end. 0: there is
// room now. If even the end of all reservations does not free enough: the wait for the last one.
double CapacityWaitSeconds(const DecodeRoom& room, std::vector<DecodeReservation> holdings,
                           int32_t pages);

double DecodeSeconds(const DecodeRoom& room, double room_wait_seconds);

// One worker as seen for one attempt.
struct Candidate {
  Incarnation worker = 0;
  Role role = Role::kBoth;
  bool fits_prefill = false, fits_decode = false;  // the worker could ever hold the request
  double prefill_seconds = 0, decode_seconds = 0;
  double prompt_seconds = 0;  // the prompt's own part of prefill_seconds
  double uncached_seconds =
      0;  // prompt_seconds if nothing were cached, as for all ranks of a relay
  // Queueing delay before this prompt (prompts no longer than it run first), and before a slice of
  // it (which also waits for other slices). Later arrivals are not predicted. A slice gains nothing
  // by overtaking prompts that its whole prompt would not: these are delayed instead.
  double ahead_seconds = 0, slice_ahead_seconds = 0;
  int passed = 0;                // longer prompts, delayed by this one
  double room_wait_seconds = 0;  // the part of decode_seconds until the promise
  PrefillCost cost{};            // the worker's
  ChainLink link{};              // to every peer that is not in `links`
  std::vector<LinkRate> links{};
  int32_t max_slice_tokens = std::numeric_limits<int32_t>::max();
  uint64_t cpu_group = 0;    // as announced (messages.h)
  double cpu_share = 0;      // as announced
  uint64_t last_chosen = 0;  // number of the last choice that took the worker; 0: none
};

// The candidate that is this worker; null: none is.
const Candidate* CandidateOf(std::span<const Candidate> candidates, Incarnation worker);

// Tokens of a prompt behind the slice before, up to `end`, that one worker computes; whole pages,
// but for the last slice.
struct PlannedSlice {
  Incarnation worker = 0;
  int32_t end = 0;
  bool operator==(const PlannedSlice&) const = default;
};

struct Plan {
  // The whole prompt, in order; one slice: no relay. A slice's worker hands all KV up to its end to
  // the next one's, unless that is itself. The last slice's worker computes the first token.
  std::vector<PlannedSlice> slices{};
  Incarnation decode = 0;  // 0: prefill only; equal to prefill(): KV stays where it is
  double predicted_seconds = 0;
  double first_token_seconds = 0;     // predicted, from now on
  RelayPush push = RelayPush::kNone;  // kNone without a relay
  bool operator==(const Plan&) const = default;

  bool is_relay() const { return slices.size() > 1; }
  Incarnation prefill() const { return slices.back().worker; }  // in a relay: the tail
  bool Computes(Incarnation worker) const;                      // true if a slice is the worker's
  bool IsHead(Incarnation worker) const { return worker != prefill() && Computes(worker); }
  // Workers of slices, each once, in the order of their last slices: heads, then the tail.
  std::vector<Incarnation> PrefillWorkers() const;
  std::vector<Incarnation> HeadWorkers() const;
  std::vector<Incarnation> Workers() const;  // each once; no order
  size_t n_rounds() const;                   // how often the prompt comes to the tail
  int32_t BeginOf(size_t slice) const { return slice == 0 ? 0 : slices[slice - 1].end; }
  // (slices - 1) tokens that cross each hop: those before the slice's end that the next slice's
  // worker lacks.
  std::vector<int32_t> HopTokens() const;
  PrefillWork PrefillWorkAt(Incarnation worker, const AttemptSpec& spec) const;
  // True if `worker` is a head that must not wait for pages. Pages are taken in order: decode
  // worker and tail, the smaller incarnation first, then heads from the last to the first; a head
  // whose incarnation is smaller than one before it stands outside that order (docs/RELAY.md has
  // the proof).
  bool TakesPagesAtOnce(Incarnation worker) const;
};

// Predicted seconds to the first token. Compute starts with the decode worker's promise in
// hand.
double FirstTokenSeconds(std::span<const Candidate> candidates, Incarnation decode,
                         double queue_seconds, double compute_seconds);

// Returns `relay` with another of `candidates` in place of the rank or decode worker `lost`: the
// candidate without a part in the relay that could begin soonest; among equals, one that keeps the
// order in which pages are taken. If there is no such candidate, the rank before the lost one
// computes the lost rank's slices too, since it has the KV before them; the second rank takes over
// from the first. Empty: none of them can.
std::optional<Plan> ReplaceWorker(const Plan& relay, Incarnation lost,
                                  std::span<const Candidate> candidates);

// Chooses a prefill worker, which hands over to the best decode worker; a worker of both roles
// keeps its KV and decodes itself. Roles are preferences: without a worker of one role the others
// do both. Empty: no worker could ever hold the request.
std::optional<Plan> ChoosePlan(std::span<const Candidate> candidates, const AttemptSpec& spec);

// Returns `plan` with its prefill shared among the candidates that could begin soonest, where that
// is predicted to pay; else `plan`. waiting: average number of prompts in a prefill worker's queue.
// Ranks stand in descending order of incarnation, the first head's the greatest, and the decode
// worker's is smaller than all or the tail's: an attempt takes pages in ascending order (the
// promise, the tail's, ..., the head's), so workers never wait for each other in a circle.
Plan ShareWithHeads(const Plan& plan, std::span<const Candidate> candidates,
                    const AttemptSpec& spec, int32_t page_tokens, double waiting,
                    const RelayRules& rules, const PlanRecord& record);

}  // namespace baton
