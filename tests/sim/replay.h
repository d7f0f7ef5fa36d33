// A serving trace on a modelled cluster: its prompts, outputs and arrivals go through the
// production router and workers on virtual time, and nothing goes wrong. What a choice of the
// router does to the time to first token is seen without the noise of a machine: the same inputs
// give the same figures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/load/load_client.h"
#include "bench/load/load_trace.h"
#include "router/relay_defaults.h"
#include "router/router.h"

namespace baton::sim {

// Times of a worker are those of the 125M shape in int8 on one thread, unless said otherwise. What
// prefill costs them they know at once, as from a cost file.
struct ReplayCluster {
  int prefill_workers = 2, decode_workers = 1;
  int64_t step_us = 1000, token_us = 1000;  // of prefill
  double pair_us = 0.1;                     // of a token and a key it sees
  int64_t decode_step_us = 10'000, decode_token_us = 500;
  RouterOptions router{.relay = {.max_ranks = kShippedRelayMaxRanks}};
};

struct ReplayResult {
  std::vector<double> ttfts;  // seconds, in order of arrival
  uint64_t relays = 0;
  std::string violation;  // empty: every stream was right
  Distribution distribution() const { return Distribution(ttfts); }
};

// requests: in order of arrival.
ReplayResult Replay(const std::vector<LoadRequest>& requests, const ReplayCluster& cluster);

}  // namespace baton::sim
