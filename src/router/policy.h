// Who computes: the least predicted wait, in milliseconds. Pure functions of numbers; the same
// inputs in any order give the same choice.
//
//   prefill_ms = (tokens queued before + own prompt) / measured tokens per second
//   decode_ms  = wait for pages and a row + one step, dearer the fuller the batch is
//   plan       = prefill_ms + decode_ms, smallest; ties (2 %, 1 ms) to the least recently chosen
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/ids.h"
#include "proto/messages.h"

namespace baton {

// What one attempt at a request asks of the workers.
struct AttemptShape {
  int32_t n_prompt = 0;    // tokens to prefill
  int32_t max_tokens = 0;  // from position n_prompt on, the first included
  bool covered = false;    // its promise covers every token to come, so it is never preempted
  // Where an earlier attempt computed KV, of so many of the tokens to prefill; it may have been
  // kept there. 0 = nowhere.
  Incarnation kept_at = 0;
  int32_t kept_tokens = 0;
  bool prefill_only() const { return max_tokens == 1; }
  // What `worker` has to compute: one token at least, for its logits.
  int32_t PrefillTokensAt(Incarnation worker) const {
    return worker == kept_at ? std::max(1, n_prompt - kept_tokens) : n_prompt;
  }
};

// Pages of the prompt's KV, and of all KV the attempt can write: the last token's is never written,
// nothing follows it.
int32_t PromptPages(const AttemptShape& shape, int32_t page_tokens);
int32_t WholePages(const AttemptShape& shape, int32_t page_tokens);
// Pages promised: the prompt's and one to grow into, so that no pool is set aside for tokens that
// may never come; all of them when covered.
int32_t PromisePages(const AttemptShape& shape, int32_t page_tokens);
// Pages held once `made` tokens are there.
int32_t HeldPages(const AttemptShape& shape, int32_t made, int32_t page_tokens);

// A request's place on a decode worker.
struct Holding {
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
double RoomWaitMs(const DecodeRoom& room, std::vector<Holding> holdings, int32_t pages);

double PrefillMs(int64_t queued_tokens, int32_t n_prompt, double tokens_per_s);
double DecodeMs(const DecodeRoom& room, double room_wait_ms);

// One worker as seen for one attempt.
struct Candidate {
  Incarnation worker = 0;
  Role role = Role::kBoth;
  bool fits_prefill = false, fits_decode = false;  // could ever hold it
  double prefill_ms = 0, decode_ms = 0;
  uint64_t last_chosen = 0;  // a counter; 0 = never
};

struct Plan {
  Incarnation prefill = 0;
  Incarnation decode = 0;  // 0 = prefill only; equal to prefill = KV stays where it is
  double predicted_ms = 0;
  bool operator==(const Plan&) const = default;
};

// A prefill worker hands over to the best decode worker; a worker of both roles keeps its KV and
// decodes itself. Roles are preferences: when nobody of a role is there, the others do both.
// Nothing: no worker could ever hold it.
std::optional<Plan> ChoosePlan(std::span<const Candidate> candidates, const AttemptShape& shape);

}  // namespace baton
