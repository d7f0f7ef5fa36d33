// A worker's numbers, copied after each turn of the engine thread: the server makes /metrics of
// them. Counters count from the start of the process. Plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "common/histogram_counts.h"
#include "common/metrics.h"
#include "kvtransfer/protocol/transfer_events.h"
#include "proto/messages.h"

namespace baton {

struct WorkerMetrics {
  int routers = 0;    // whose streams are up
  EngineTurn engine;  // what the engine does now
  // Gauges.
  WorkerLoad load;  // what routers are told; pages_free: in the pool, or lent and not promised
  int prefill_prompts = 0, prefill_running = 0;
  int pages_total = 0, pages_free = 0;      // free: in the pool
  int pages_prefill = 0, pages_decode = 0;  // held by prompts and by arrived requests
  int pages_cached = 0;                     // free pages with KV that may be reused
  // Holders of pages beyond each page's first: held = prefill + decode + lent - shared.
  int pages_shared = 0;
  int pages_lent = 0, pages_promised = 0;  // lent to the transfer room; promised: part of these
  int handoffs_waiting = 0;                // tickets of other workers that wait for room here
  // Counters.
  uint64_t steps = 0, mixed_steps = 0;
  uint64_t prefill_tokens = 0, decode_tokens = 0;
  uint64_t reused_tokens = 0;  // prompt tokens whose KV was cached
  uint64_t pages_trimmed = 0;  // given back, whole or in part, since they fell out of a window
  uint64_t parts_ended = 0, parts_cancelled = 0, parts_failed = 0;
  uint64_t routers_lost = 0, parts_orphaned = 0;  // orphaned: ended since their router was lost
  uint64_t preemptions = 0;    // rows that lost their pages to others: dispatched again
  double step_seconds = 0;     // inside steps, sampling and scoring among it
  double prefill_seconds = 0;  // part of step_seconds: steps that carried prefill tokens
  double decode_seconds = 0;   // part of step_seconds: steps that carried rows
  double last_step_seconds = 0;
  HistogramCounts step_tokens{.bounds = kStepTokenBounds};  // prompt tokens, and one per row
  HistogramCounts step_durations{.bounds = kStageBounds};   // seconds
  // Slices of relays: beside steps, not inside.
  uint64_t slice_blocks = 0;
  double slice_seconds = 0;       // computing
  double slice_wait_seconds = 0;  // slices waited for their inflow
  TransferCounters transfer;
  std::vector<LinkReport> links;  // one per worker that got KV from here
};

}  // namespace baton
