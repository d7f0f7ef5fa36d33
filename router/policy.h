// Chooses the workers of an attempt: those with the least score, in seconds, of all pairs of a
// worker that prefills and one that decodes, and of relays. Pure functions of numbers; the same
// inputs in any order give the same choice.
//
//   score = time to the first token: the later of the prompt's queue and the decode worker's room,
//           then the prompt
//         + time in which the link carries KV after the prompt is computed
//         + time of the further tokens: steps with this row in them, and prompts beside them
//         + time that others lose: prompts that are passed or, beside rows, rows that wait; and
//           rows whose steps have one row more
//
// One worker may do both ("local"). Ties (2 %, 1 ms) go to plans that roles ask for, then to the
// least recently chosen workers. docs/SCHEDULING.md, workers of a request, has the formula.
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
  int32_t n_prompt = 0;                // tokens to prefill
  int32_t max_tokens = 0;              // from position n_prompt on, the first included
  int32_t n_made = 0;                  // the last of n_prompt, which earlier attempts brought
  bool covered = false;                // the promise covers every token to come, so no preemption
  std::vector<CachedPrefix> kept{};    // KV of an earlier attempt, which may still be there
  std::vector<CachedPrefix> cached{};  // KV of other prompts with the same beginning
  std::vector<CachedPrefix> tails{};   // less than a page behind `cached`, which workers copy
  bool may_relay = false;              // several workers may share the prefill
  bool prefill_only() const { return max_tokens == 1; }
  // Tokens that `worker` must compute: at least one, for its logits.
  int32_t PrefillTokensAt(Incarnation worker) const;
  // Less what the worker may copy of a page.
  int32_t ComputedTokensAt(Incarnation worker) const;
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
  int32_t tokens_left = 0;  // expected
};

struct DecodeRoom {
  int64_t pages_free = 0;
  int32_t rows = 0, max_batch = 0;
  double step_seconds = 0;
  bool Has(int32_t pages) const { return pages_free >= pages && rows < max_batch; }
};

// Seconds until `pages` and a row are free, if every reservation runs as expected. 0: there is
// room now. If even the end of all reservations does not free enough: the wait for the last one.
double CapacityWaitSeconds(const DecodeRoom& room, std::vector<DecodeReservation> holdings,
                           int32_t pages);

// Tokens of prompts whose KV is on its way to a worker, or will be.
struct TokensTo {
  Incarnation worker = 0;
  int64_t tokens = 0;
};

// One worker as seen for one attempt.
struct Candidate {
  Incarnation worker = 0;
  Role role = Role::kBoth;
  bool fits_prefill = false, fits_decode = false;  // the worker could ever hold the request
  double prompt_seconds = 0;                       // the prompt alone; beside rows it takes longer
  double uncached_seconds = 0;  // the same if nothing were cached, as for all ranks of a relay
  // Queueing delay before this prompt (prompts no longer than it run first), and before a slice of
  // it (which also waits for other slices). Later arrivals are not predicted. A slice gains nothing
  // by overtaking prompts that its whole prompt would not: these are delayed instead.
  double ahead_seconds = 0, slice_ahead_seconds = 0;
  int passed = 0;                   // longer prompts, delayed by this one
  double prompt_delay_seconds = 0;  // that the prompt costs others here: prompts passed, rows
  double room_wait_seconds = 0;     // until the promise
  double step_seconds = 0;          // of a step with the attempt's row in it
  double decode_seconds = 0;        // of all tokens after the first
  double gap_seconds = 0;  // of a step as the row is to meet it, its others coming and going
  // Seconds that prompts computed here beside the row add to that, as queued now: less is left when
  // a row begins whose prompt another worker computes, and no more than max_beside_seconds count.
  double beside_seconds = 0, beside_done = 0;  // beside_done: per second until then
  double max_beside_seconds = std::numeric_limits<double>::infinity();
  double local_beside_seconds = 0;       // by those behind the attempt's own
  double row_delay_seconds = 0;          // that the row costs the rows here
  int rows = 0;                          // that it decodes, or will
  PrefillCost cost{};                    // the worker's
  ChainLink link{};                      // to every peer that is not in `links`
  std::span<const LinkRate> links{};     // ascending by peer
  std::span<const TokensTo> sending{};   // what the worker hands over to each
  std::vector<Incarnation> broken_to{};  // links to these are broken (broken_links.h); ascending
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
  Incarnation decode = 0;             // 0: prefill only; equal to prefill(): KV stays where it is
  double score = 0;                   // predicted, with what others lose
  double predicted_seconds = 0;       // until the second token, from now on
  double first_token_seconds = 0;     // predicted, from now on
  double queue_seconds = 0;           // of these before the prompt begins, one worker alone
  double passed_seconds = 0;          // what prompts that come later are expected to add to it
  double offset_seconds = 0;          // what such predictions lack yet (planner/plan_offset.h)
  double gap_seconds = 0;             // predicted, mean time between tokens; 0: unknown
  double gap_offset_seconds = 0;      // what such predictions lack
  RelayPush push = RelayPush::kNone;  // kNone without a relay
  bool operator==(const Plan&) const = default;

  // The time to the first token as it is told.
  double told_seconds() const { return first_token_seconds + passed_seconds + offset_seconds; }
  bool is_relay() const { return slices.size() > 1; }
  Incarnation prefill() const { return slices.back().worker; }  // in a relay: the tail
  bool Computes(Incarnation worker) const;                      // true if a slice is the worker's
  bool IsHead(Incarnation worker) const { return worker != prefill() && Computes(worker); }
  // Workers of slices, each once, in the order of their last slices: heads, then the tail.
  std::vector<Incarnation> PrefillWorkers() const;
  std::vector<Incarnation> HeadWorkers() const;
  std::vector<Incarnation> Workers() const;  // each once; no order
  // The sinks to which `worker` hands KV over; a sink may be there more than once.
  std::vector<Incarnation> SinksOf(Incarnation worker) const;
  size_t n_rounds() const;  // how often the prompt comes to the tail
  int32_t BeginOf(size_t slice) const { return slice == 0 ? 0 : slices[slice - 1].end; }
  // (slices - 1) tokens that cross each hop: those before the slice's end that the next slice's
  // worker lacks.
  std::vector<int32_t> HopTokens() const;
  PrefillWork PrefillWorkAt(Incarnation worker, const AttemptSpec& spec) const;
  // Tokens whose KV `worker` hands over to the decode worker, which lacks it.
  int32_t TokensSent(Incarnation worker, const AttemptSpec& spec) const;
  // True if `worker` is a head that must not wait for pages. Pages are taken in order: decode
  // worker and tail, the smaller incarnation first, then heads from the last to the first; a head
  // whose incarnation is smaller than one before it stands outside that order (docs/RELAY.md has
  // the proof).
  bool TakesPagesAtOnce(Incarnation worker) const;
};

// Returns `relay` with another of `candidates` in place of the rank or decode worker `lost`: of the
// candidates without a part in the relay those with the fewest broken links, of these the one that
// could begin soonest; among equals, one that keeps the order in which pages are taken. If there is
// no such candidate, or more links would be broken, the rank before the lost one computes the lost
// rank's slices too, since it has the KV before them; the second rank takes over from the first.
// Empty: none of them can.
std::optional<Plan> ReplaceWorker(const Plan& relay, Incarnation lost,
                                  std::span<const Candidate> candidates);

// Which plans of one worker's prefill ChoosePlan considers.
enum class PlanKinds {
  kAll,
  // One of these if there is any: a worker with a role has the other role's part only where streams
  // hardly notice: a decode worker that has at least half of the prompt's KV, or decodes nothing.
  kSparing,
  kByRole,  // one of these if there is any: prompts go from their workers to those that decode
  kShared,  // those of which a relay may come: of prefill workers, with pages taken in order
};

// Chooses the plan with the least score: every pair of a worker that is no decode worker by role
// and one that is no prefill worker by role, and every worker for both; what a worker may not hold
// is left out. Of many workers only the few with the least parts of the score are paired. Empty: no
// worker could ever hold the request. counted: grows by the plans that were compared; may be null.
std::optional<Plan> ChoosePlan(std::span<const Candidate> candidates, const AttemptSpec& spec,
                               PlanKinds kinds = PlanKinds::kAll, int64_t* counted = nullptr);

// Returns `plan` with its prefill shared among the candidates that could begin soonest, where that
// is predicted to pay; else `plan`. waiting: average number of prompts in a prefill worker's queue.
// Ranks stand in descending order of incarnation, the first head's the greatest, and the decode
// worker's is smaller than all or the tail's: an attempt takes pages in ascending order (the
// promise, the tail's, ..., the head's), so workers never wait for each other in a circle.
Plan ShareWithHeads(const Plan& plan, std::span<const Candidate> candidates,
                    const AttemptSpec& spec, int32_t page_tokens, double waiting,
                    const RelayRules& rules, const PlanRecord& record);

}  // namespace baton
