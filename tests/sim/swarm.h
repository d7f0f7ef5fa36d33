// The decisions of one seed before its run begins: the cluster, its sizes, the work, and the
// faults. Each class of faults is on in half of the runs ("swarm testing": leaving classes out
// finds more than having all of them always). The models of a quarter of the seeds have windows, in
// all layers or in some.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/messages.h"
#include "router/router.h"
#include "tests/sim/sim_random.h"

namespace baton::sim {

struct WorkerPlan {
  Role role = Role::kBoth;
  int pages = 0, max_batch = 1, max_step_tokens = 2, mixed_prefill_tokens = 1, chunk_tokens = 0;
  int64_t announce_bytes = 1;
  int64_t step_us = 1000, token_us = 10;  // virtual cost of a step, and of each token in it
  double pair_us = 0;                     // virtual cost of a token and a key that it reads
  bool knows_cost = false;                // workers know the cost of prefill before the first step
};

// A request given by the script instead of drawn.
struct ScriptedRequest {
  int64_t arrives_us = 0;  // only differences within the script count
  std::vector<int32_t> prompt;
  int max_tokens = 1;
};

struct Swarm {
  uint64_t seed = 0;
  std::vector<WorkerPlan> workers;
  int n_routers = 1;  // all of them know all workers
  int page_tokens = 4, n_layers = 2;
  std::vector<int> windows;  // tokens, one per layer, 0: none; empty: no layer has one
  int largest_window() const;
  // Steps that an engine has under way, computed later in virtual time; 0: it computes on return.
  int depth = 0;
  // Transfer.
  bool late_copies = false;  // KV is copied later in virtual time; else on return. With depth: true
  int64_t copy_us() const { return mean_delay_us / 4 + 1; }  // max time of half of a copy
  int max_slice_tokens = 0;                                  // 0: no limit
  int segment_keys = 0;     // keys per segment of a streamed slice; 0: no streaming
  bool cut_through = true;  // heads pass cells on as they arrive
  int64_t chunk_bytes = 0, window_bytes = 0;
  int slab_slots = 0;
  int64_t peer_timeout_ms = 4000, hello_timeout_ms = 2000;
  int64_t tick_us = 10'000;
  bool link_at_once = false;  // the link thread takes a command during the engine's step
  // Wires, microseconds.
  int64_t min_delay_us = 10, mean_delay_us = 100;
  int slow_percent = 0;   // percentage of messages that take sixteen times as long
  int64_t wake_us = 50;   // max time until a sleeping thread wakes
  int64_t front_us = 50;  // max time until the router's front thread wakes; it may be busy
  int64_t keepalive_us = 4'000'000;
  int far_worker = -1;  // its control stream is slower by up to far_us; -1: no worker
  int64_t far_us = 0;
  // Work.
  int n_requests = 20, max_prompt = 32, max_tokens = 12;
  int64_t arrival_gap_us = 1000;
  std::vector<ScriptedRequest> script;  // n_requests entries, in order of arrival; empty: drawn
  int cancel_percent = 0, deadline_percent = 0, stop_percent = 30, digest_percent = 10,
      grammar_percent = 12;
  int turn_percent = 0;  // requests that go on with an earlier one's prompt and answer
  // The index of one request of max length in a flood of short ones, and the max prompt tokens of
  // later requests that may be computed before it; -1: all are drawn alike.
  int long_request = -1;
  int64_t max_overtaking = 0;
  RouterOptions router;
  bool must_complete = true;  // attempts have no limit
  // Faults.
  bool calm = false;  // no faults; no part may fail
  bool kills = false, pauses = false, control_breaks = false, cuts = false, partitions = false,
       clogs = false, stops = false, router_restarts = false, slow_links = false;
  // Engines stand still. Workers then send signs of life, and if nothing else goes wrong the router
  // must notice in time.
  bool stands = false, stands_alone = false;
  double corrupt_payload = 0, duplicate_message = 0, cut_connection = 0, late_landing = 0;
  int64_t fault_gap_us = 200'000;
  int max_faults = 0;
  int lost_pages_percent = 0;  // messages about cached pages that do not come

  static Swarm Draw(uint64_t seed);
  // Returns two workers, and more short requests than they can serve around a long one.
  static Swarm Flood(uint64_t seed);
  std::string ToString() const;
  int largest_request_pages() const {
    return (max_prompt + max_tokens + page_tokens - 1) / page_tokens;
  }
};

}  // namespace baton::sim
