// A serving trace on a modelled cluster: its prompts, outputs and arrivals go through the
// production router and workers on virtual time, without faults. Shows the effect of the router's
// choices on the time to first token without the noise of a machine: the same inputs give the same
// figures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/load/load_client.h"
#include "bench/load/load_trace.h"
#include "router/router.h"
#include "router/router_options.h"
#include "tests/sim/outcome.h"

namespace baton::sim {

// Default times are those of the 125M shape in int8 on one thread. Workers know the cost of prefill
// from the start, as from a cost file.
struct ReplayCluster {
  int prefill_workers = 2, decode_workers = 1;
  int64_t step_us = 1000, token_us = 1000;  // cost of prefill
  double pair_us = 0.1;                     // cost of a token and a key that it reads
  int64_t decode_step_us = 10'000, decode_token_us = 500;
  double decode_pair_us = 0;
  RouterOptions router{.relay = {.max_ranks = kShippedRelayMaxRanks}};
};

struct ReplayResult {
  std::vector<double> ttfts;  // seconds, in order of arrival
  uint64_t relays = 0;
  std::vector<Foretold> foretold{};     // in order of arrival
  std::vector<WantedWorkers> wanted{};  // at each arrival, in order
  std::string violation;                // empty: every stream was right
  Distribution distribution() const { return Distribution(ttfts); }
  // |actual / predicted - 1| of the time to the first token, and of the mean time between tokens.
  Distribution TtftErrors() const;
  Distribution GapErrors() const;
};

// Runs the requests, which are in order of arrival.
ReplayResult Replay(const std::vector<LoadRequest>& requests, const ReplayCluster& cluster);

}  // namespace baton::sim
