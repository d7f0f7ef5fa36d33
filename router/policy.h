// Who computes: the least predicted wait, in milliseconds. Pure functions of numbers; the same
// inputs in any order give the same choice.
//
//   prefill_ms = queued work that goes before + own prompt, by what the worker's steps cost it (a
//                fit), + own prompt for each longer one that it passes and so delays
//   decode_ms  = wait for pages and a row + one step, dearer the fuller the batch is
//   plan       = prefill_ms + decode_ms + what the link to the decode worker takes for the prompt's
//                KV beyond the time in which it is computed, smallest; ties (2 %, 1 ms) to the
//                least recently chosen
//   relay      = the longest queue of its ranks + the chain of their slices, instead of prefill_ms,
//                and what it delays others beyond what one worker would
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "planner/prefill_cost.h"
#include "planner/relay_plan.h"
#include "proto/messages.h"
#include "router/prefill_work.h"

namespace baton {

// KV of so many of a prompt's first tokens is taken to be in a worker's prefix cache.
struct CachedPrefix {
  Incarnation worker = 0;
  int32_t tokens = 0;
  uint64_t adds = 0;  // of its PrefixMemory by then
  bool operator==(const CachedPrefix&) const = default;
};

// What one attempt at a request asks of the workers.
struct AttemptSpec {
  int32_t n_prompt = 0;    // tokens to prefill
  int32_t max_tokens = 0;  // from position n_prompt on, the first included
  bool covered = false;    // its promise covers every token to come, so it is never preempted
  // Where an earlier attempt computed KV, of so many of the tokens to prefill; it may have been
  // kept there. 0 = nowhere.
  Incarnation kept_at = 0;
  int32_t kept_tokens = 0;
  std::vector<CachedPrefix> cached{};  // by other prompts with the same beginning
  bool may_relay = false;              // several workers may share the prefill
  bool prefill_only() const { return max_tokens == 1; }
  // What `worker` has to compute: one token at least, for its logits.
  int32_t PrefillTokensAt(Incarnation worker) const;
};

// Pages of the prompt's KV, and of all KV the attempt can write: the last token's is never written,
// nothing follows it.
int32_t PromptPages(const AttemptSpec& shape, int32_t page_tokens);
int32_t WholePages(const AttemptSpec& shape, int32_t page_tokens);
// Pages promised: the prompt's and one to grow into, so that no pool is set aside for tokens that
// may never come; all of them when covered.
int32_t PromisePages(const AttemptSpec& shape, int32_t page_tokens);
// Pages held once `made` tokens are there.
int32_t HeldPages(const AttemptSpec& shape, int32_t made, int32_t page_tokens);

// What became of an attempt's prediction.
struct FirstTokenOutcome {
  int32_t n_tokens = 0;
  int n_ranks = 1;
  absl::Duration predicted{}, actual{};  // from when the attempt was sent
  absl::Duration alone{};                // predicted of one worker
};

// A request's place on a decode worker.
struct DecodeReservation {
  int32_t pages = 0;
  int32_t tokens_left = 0;  // at most
};

struct DecodeRoom {
  int64_t pages_free = 0;
  int32_t rows = 0, max_batch = 0;
  double step_ms = 0;
};

// Milliseconds until `pages` and a row are free, if every holding runs to its end. 0 = there is
// room now; the wait for the last holding when even that would not do.
double CapacityWaitMs(const DecodeRoom& room, std::vector<DecodeReservation> holdings,
                      int32_t pages);

double DecodeMs(const DecodeRoom& room, double room_wait_ms);

// One worker as seen for one attempt.
struct Candidate {
  Incarnation worker = 0;
  Role role = Role::kBoth;
  bool fits_prefill = false, fits_decode = false;  // could ever hold it
  double prefill_ms = 0, decode_ms = 0;
  double prompt_ms = 0;    // the part of prefill_ms that is the prompt's own
  double uncached_ms = 0;  // the same if nothing of it were there: of a relay's ranks all count so
  // The part that goes before the prompt: those that are not longer; and what goes before a slice
  // of it: other slices too (prefill_scheduler.h). That a slice passes prompts that its prompt
  // would not is no gain: these are later. What comes later, and is shorter, nobody knows.
  double ahead_ms = 0, slice_ahead_ms = 0;
  int passed = 0;           // longer ones, which it delays
  double room_wait_ms = 0;  // the part of decode_ms until its promise
  PrefillCost cost{};       // of the worker
  ChainLink link{};         // that it sends KV over to others than those in `links`
  std::vector<LinkRate> links{};
  int32_t max_slice_tokens = std::numeric_limits<int32_t>::max();
  uint64_t cpu_group = 0;  // these two: as announced
  double cpu_share = 0;
  uint64_t last_chosen = 0;  // a counter; 0 = never
};

// How the ranks of a relay share a prompt.
struct RelayRules {
  int32_t min_tokens = 0;  // of a prompt that is shared; 0: none is
  int max_ranks = 2;
  int min_ranks = 1;                // more than one: whatever is predicted
  std::optional<RelayPush> push{};  // kAll or kTail; nothing: what is sooner
  PartitionMode mode = PartitionMode::kClosed;
  std::shared_ptr<const PartitionTable> table{};  // of kTable
};

struct Plan {
  Incarnation prefill = 0;  // computes the first token; of a relay the tail
  Incarnation decode = 0;   // 0 = prefill only; equal to prefill = KV stays where it is
  double predicted_ms = 0;
  double first_token_ms = 0;  // predicted, from now on
  double alone_ms = 0;        // the same, were `prefill` no relay's
  // A rank of a relay before its tail: computes its slice, in whole pages, and hands all KV up to
  // its end to the next rank. A worker that goes on with a lost one's slices is two ranks, one next
  // to the other; between them nothing is handed over.
  struct Head {
    Incarnation worker = 0;
    int32_t tokens = 0;  // of its slice; in rounds of its last one
    bool operator==(const Head&) const = default;
  };
  std::vector<Head> heads{};          // the first slice's first; empty: no relay
  RelayPush push = RelayPush::kNone;  // of a relay
  // Of a relay in rounds: tokens of all slices of the rounds before the last, in the order of the
  // prompt.
  std::vector<int32_t> earlier{};
  bool operator==(const Plan&) const = default;

  bool is_relay() const { return !heads.empty(); }
  bool IsHead(Incarnation worker) const;  // and not the tail
  // Those of the heads that are not the tail's too, in the order of their slices; each once.
  std::vector<Incarnation> HeadWorkers() const;
  std::vector<Incarnation> Workers() const;  // each once; no order
  size_t n_ranks() const { return heads.size() + 1; }
  size_t n_rounds() const { return earlier.size() / n_ranks() + 1; }
  // Rank i computes slice i, and in rounds n_ranks() + i, ...
  Incarnation WorkerOf(size_t slice) const;
  // It computes the slice after this one too.
  bool StaysThere(size_t slice) const { return WorkerOf(slice) == WorkerOf(slice + 1); }
  // Tokens up to the end of each slice.
  std::vector<int32_t> SliceEnds(const AttemptSpec& shape) const;
  // Tokens up to the end of head n - 1's last slice, so before rank n's.
  int32_t TokensOfHeads(size_t n) const;
  // Of each slice but the last: what the worker of the next one lacks, of the tokens up to its end.
  std::vector<int32_t> HopTokens(const AttemptSpec& shape) const;
  int32_t LongestSliceAt(Incarnation worker, const AttemptSpec& shape) const;
  // What `worker`, head or tail or alone, has to compute.
  PrefillWork PrefillWorkAt(Incarnation worker, const AttemptSpec& shape) const;
  // Pages of the pools are taken in order: decode worker and tail, the lesser first, then heads
  // from the last to the first. This head's is less than one before it, so it must not wait for
  // pages (prefill_scheduler.h has why).
  bool TakesPagesAtOnce(size_t head) const;
};

// Compute starts with the decode worker's promise in hand.
double FirstTokenMs(std::span<const Candidate> candidates, Incarnation decode, double queue_ms,
                    double compute_ms);

// `relay` with another of `candidates` in place of its rank or decode worker `lost`: of those who
// have no part in it yet the one that could begin soonest, of equals one that keeps the order in
// which pages are taken. Where there is none, the rank before the lost one goes on with its slices
// besides its own, for it has what comes before them; the second one with the first one's. Nothing:
// none of them can.
std::optional<Plan> ReplaceWorker(const Plan& relay, Incarnation lost,
                                  std::span<const Candidate> candidates, const AttemptSpec& shape);

// A prefill worker hands over to the best decode worker; a worker of both roles keeps its KV and
// decodes itself. Roles are preferences: when nobody of a role is there, the others do both.
// Nothing: no worker could ever hold it.
std::optional<Plan> ChoosePlan(std::span<const Candidate> candidates, const AttemptSpec& shape);

// waiting: prompts in the queue of a prefill worker, on average.
// `plan`, its prefill shared with the candidates that could begin soonest where that is predicted
// to pay; else the same plan. Ranks stand in descending order of incarnation, the head's the
// greatest, and the decode worker is less than all or the tail itself: an attempt takes pages of
// its pools in ascending order (the promise, the tail's, ..., the head's), so workers that wait for
// each other never wait in a circle.
Plan ShareWithHeads(const Plan& plan, std::span<const Candidate> candidates,
                    const AttemptSpec& shape, int32_t page_tokens, double waiting,
                    const RelayRules& rules, const PlanRecord& record);

}  // namespace baton
