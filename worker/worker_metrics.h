// What a worker says about itself, as plain numbers: the server makes /metrics of it. A copy taken
// after the last step; counters count from the start of the process.
#pragma once

#include <cstdint>
#include <vector>

#include "kvtransfer/protocol/transfer_events.h"

namespace baton {

struct WorkerMetrics {
  bool connected = false;  // to its router
  bool draining = false;
  // Gauges.
  int prefill_prompts = 0, prefill_running = 0;
  int64_t prefill_queued_tokens = 0;
  int decode_rows = 0, decode_waiting = 0;
  int pages_total = 0, pages_free = 0;      // free: of the pool, and lent to nobody's handoff yet
  int pages_prefill = 0, pages_decode = 0;  // held by prompts and by arrived requests
  int pages_cached = 0;                     // of the free ones: with KV that may be reused
  // Holders beyond the first of pages with several: held = prefill + decode + lent - shared.
  int pages_shared = 0;
  int pages_lent = 0, pages_promised = 0;  // to the transfer room; of these, to handoffs
  int handoffs_waiting = 0;                // tickets of other workers that wait for room here
  // Counters.
  uint64_t steps = 0, mixed_steps = 0;
  uint64_t prefill_tokens = 0, decode_tokens = 0;
  uint64_t reused_tokens = 0;  // of prompts, whose KV was there
  uint64_t pages_trimmed = 0;  // that fell out of a window and were given back, whole or in part
  uint64_t parts_ended = 0, parts_cancelled = 0, parts_failed = 0;
  uint64_t preemptions = 0;    // rows whose pages others needed more: their requests start anew
  double step_seconds = 0;     // inside steps
  double prefill_seconds = 0;  // of which: steps that carried prefill tokens
  double decode_seconds = 0;   // of which: steps that carried rows
  double last_step_seconds = 0;
  // Slices of relays: beside steps, not inside.
  uint64_t slice_blocks = 0;
  double slice_seconds = 0;       // computing
  double slice_wait_seconds = 0;  // for inflows, until they went on
  float decode_step_ms = 0;       // recent average, 0 = not yet
  TransferCounters transfer;
  std::vector<LinkReport> links;  // to workers handed over to
};

}  // namespace baton
