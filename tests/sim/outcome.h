// The events and counts of a simulated run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/state_machine.h"
#include "tests/sim/clients.h"

namespace baton::sim {

struct FaultCounts {
  uint64_t kills = 0, pauses = 0, breaks = 0, cuts = 0, partitions = 0, clogs = 0;
  uint64_t stops = 0, router_kills = 0;  // stops: SIGTERM of a worker
  uint64_t stands = 0, given_up = 0;     // engines that stood still, streams that the router closed
  uint64_t stands_checked = 0;           // long enough, with nothing else wrong
  uint64_t releases = 0;                 // checked one by one in runs without faults
  uint64_t crc_errors = 0, resent_chunks = 0, refused_chunks = 0, handoffs = 0, failed_handoffs = 0;
  uint64_t relays = 0, relays_in_rounds = 0;  // dispatched
  // Workers of relays that were replaced: ranks, decode workers.
  uint64_t ranks_replaced = 0, sinks_replaced = 0, replaced_in_rounds = 0;
  uint64_t prefill_tokens = 0;               // computed by processes that live at the end
  uint64_t slow_links = 0, relays_left = 0;  // left: dispatched again because they were late
  // Computed blocks of slices, and the seconds that slices waited for their inflows.
  uint64_t slice_blocks = 0;
  double slice_wait_seconds = 0;
  uint64_t followed = 0;  // requests that waited for KV that another one computed
  // Pages given back, whole or in part, since they fell out of a window; pages that sinks had, and
  // that were not sent.
  uint64_t trimmed_pages = 0, held_pages = 0;
  uint64_t lost_pages = 0;  // messages about cached pages

  void Add(const FaultCounts& other);
};

// Workers that the router told an autoscaler to have (router/pool_sizing.h).
struct WantedWorkers {
  int prefill = 0, decode = 0;
};

// The result of one seed.
struct Outcome {
  uint64_t seed = 0, digest = 0, n_events = 0;
  uint64_t n_events_of_requests = 0;    // until the end of the last request
  int64_t healing_us = 0;               // from the end of all faults to the end of the last request
  std::vector<double> ttfts;            // seconds, in order of arrival, of this run only
  std::vector<Foretold> foretold{};     // in order of arrival
  std::vector<WantedWorkers> wanted{};  // at each arrival, in order
  std::string violation;                // empty: all promises held
  FaultCounts faults;
  ClientCounts clients;
  TransitionCounts transitions;

  void Add(const Outcome& other);  // adds events and counts
  std::string ToString() const;    // counts only
};

}  // namespace baton::sim
