// Chooses the number of workers that prefill a prompt: the number with the earliest predicted first
// token, queues included (docs/PLANNER.md, plan). One worker alone is always a candidate, and a
// relay is chosen only if it wins by more than the past prediction error of its kind. If slices
// would be longer than a worker accepts, the ranks share the prompt in several rounds. Plain
// objects, one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "common/prefill_cost.h"
#include "planner/chain_link.h"
#include "planner/plan_record.h"
#include "planner/push_choice.h"
#include "planner/relay_rules.h"

namespace baton {

struct OfferedWorker {
  double speed = 1;                         // 1 = the speed that the cost describes
  double seconds = 0;                       // until it could begin the whole prompt
  double slice_seconds = 0;                 // until it could begin a slice
  int passed = 0;                           // prompts that would be delayed
  uint64_t place = 0;                       // ranks are sorted by place, ascending
  ChainLink link{};                         // outgoing link
  std::function<ChainLink(int)> link_to{};  // link to the offered worker; empty: `link` to all
  ChainLink sink{};                         // link to the decode worker
  int max_slice_tokens = std::numeric_limits<int>::max();  // maximum length of its slice
  // Time of the whole prompt on this worker alone, from its beginning; 0: computed from the cost.
  double alone_seconds = 0;
  // Workers of the same group (not 0) share CPUs or a quota of CPU time; cpu_share is the fraction
  // that each takes. If the shares add up to more than 1, each worker is slower.
  uint64_t cpu_group = 0;
  double cpu_share = 0;
  // Tokens of the prompt, in whole pages, whose KV the worker has cached. As the first rank it
  // hands them on, and computes only the rest of its slice.
  int cached = 0;
};

// Tokens of the prompt behind the slice before, up to `end`.
struct RelaySlice {
  int worker = 0;  // index of the offered worker
  int end = 0;
  bool operator==(const RelaySlice&) const = default;
};

struct RelayPlan {
  std::vector<RelaySlice> slices;    // in the order of the prompt, by the ranks in turn; one: alone
  double seconds = 0;                // from now to the first token
  double begin = 0;                  // part of `seconds` until all ranks can begin
  double alone = 0;                  // `seconds` of the best worker alone
  double saved = 0;                  // price of the best worker alone less this plan's
  RelayPush push = RelayPush::kAll;  // for several ranks, if KV is handed over
};

struct RelayPlanRequest {
  int tokens = 0;  // new ones
  int prefix = 0;  // cached on every rank
  int page_tokens = 64;
  RelayRules rules{};  // all but min_tokens
  int must = -1;       // this worker is one of the ranks, and the one alone; -1: any
  // Prompts waiting per worker: what a relay costs in all, beyond one worker's work, delays them.
  double waiting = 0;
};

// Chooses a plan. `offered` is not empty, and the request has tokens. Ranks are the workers that
// could begin a slice soonest; if equal, the faster, then the earlier in `offered`. Workers on CPUs
// that sooner workers already fill come last.
RelayPlan PlanRelay(const PrefillCost& cost, const PlanRecord& record,
                    std::span<const OfferedWorker> offered, const RelayPlanRequest& request);

}  // namespace baton
