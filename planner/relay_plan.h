// How many workers prefill a prompt: the number with the earliest first token by what is predicted,
// queues included (docs/PLANNER.md, plan). One worker alone is always a candidate, and a relay is
// chosen only when it wins by more than predictions of its kind were wrong by. Where slices would
// be longer than a worker takes, the ranks share the prompt in several rounds. Plain objects, one
// thread.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "planner/partition_table.h"
#include "planner/plan_record.h"
#include "planner/prefill_cost.h"
#include "planner/push_choice.h"

namespace baton {

struct OfferedWorker {
  double speed = 1;                // 1 = what the cost says
  double seconds = 0;              // until it could begin with the whole prompt
  double slice_seconds = 0;        // and with a slice of it
  int passed = 0;                  // prompts that are later for it
  uint64_t place = 0;              // ranks stand in ascending order of it
  ChainLink link{};                // that it sends over
  std::vector<ChainLink> links{};  // to each of the workers offered; empty: `link` to all
  ChainLink sink{};                // to the decode worker
  int max_slice_tokens = std::numeric_limits<int>::max();  // of its slice
  // That the whole prompt takes on it alone, from when it could begin; 0: what the cost says.
  double alone_seconds = 0;
  // Workers of one group, not 0, compute on the same CPUs or within the same quota of CPU time, of
  // which each takes such a share: if they take more than all together, each is slower.
  uint64_t cpu_group = 0;
  double cpu_share = 0;
  // Tokens of the prompt, in whole pages, whose KV it has: as the first rank it hands them on, and
  // computes only what follows of its slice.
  int cached = 0;
};

struct RelayPlan {
  std::vector<int> ranks;            // which of the workers offered; the first slice's first
  std::vector<int> slices;           // (rounds x ranks) tokens, in the order of the prompt
  double seconds = 0;                // from now to the first token
  double begin = 0;                  // of which: until all ranks can begin
  double alone = 0;                  // the same of the best worker alone
  RelayPush push = RelayPush::kAll;  // of several ranks, where KV is handed over
};

// Slices by the closed form, by a tuned table, or even ones (both for reproduction).
enum class PartitionMode { kClosed, kTable, kEven };

struct RelayPlanRequest {
  int tokens = 0;  // new ones
  int prefix = 0;  // cached on every rank
  int page_tokens = 64;
  int max_ranks = 1;
  int min_ranks = 1;  // more than one: a relay wherever one is possible, whatever is predicted
  int must = -1;      // this worker is one of the ranks, and the one alone; -1: any
  // Prompts waiting per worker: what a relay costs in all, beyond one worker's work, delays them.
  double waiting = 0;
  std::optional<RelayPush> push{};  // nothing: what is sooner
  PartitionMode mode = PartitionMode::kClosed;
  const PartitionTable* table = nullptr;  // of kTable: no relay of ranks it has nothing for
};

// offered is not empty. Ranks are those that could begin a slice soonest, of equals the earlier.
RelayPlan PlanRelay(const PrefillCost& cost, const PlanRecord& record,
                    std::span<const OfferedWorker> offered, const RelayPlanRequest& request);

}  // namespace baton
