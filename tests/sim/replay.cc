#include "tests/sim/replay.h"

#include <algorithm>
#include <utility>

#include "tests/sim/swarm.h"
#include "tests/sim/world.h"

namespace baton::sim {
namespace {

constexpr int kPageTokens = 64, kLayers = 4;
constexpr int kPages = 4096;      // per worker; enough, so that no request waits for pages
constexpr int kStepTokens = 512;  // the default of workers
constexpr int kMaxBatch = 64;

WorkerPlan Worker(Role role, int64_t step_us, int64_t token_us, double pair_us) {
  return {.role = role,
          .pages = kPages,
          .max_batch = kMaxBatch,
          .max_step_tokens = kStepTokens,
          .mixed_prefill_tokens = kStepTokens,
          .step_us = step_us,
          .token_us = token_us,
          .pair_us = pair_us,
          .knows_cost = role == Role::kPrefill};
}

}  // namespace

Distribution ReplayResult::TtftErrors() const {
  std::vector<double> errors;
  for (const Foretold& each : foretold)
    if (each.predicted > 0) errors.push_back(each.ttft_error());
  return Distribution(std::move(errors));
}

Distribution ReplayResult::GapErrors() const {
  std::vector<double> errors;
  for (const Foretold& each : foretold)
    if (each.predicted_gap > 0 && each.gap > 0) errors.push_back(each.gap_error());
  return Distribution(std::move(errors));
}

ReplayResult Replay(const std::vector<LoadRequest>& requests, const ReplayCluster& cluster) {
  Swarm swarm;
  swarm.seed = 1;
  swarm.calm = true;
  swarm.page_tokens = kPageTokens;
  swarm.n_layers = kLayers;
  swarm.segment_keys = kPageTokens * 8;
  const int64_t plane = int64_t{kPageTokens} * 8;  // of the hash engine
  swarm.chunk_bytes = plane * 64;
  swarm.window_bytes = plane * 4096;
  swarm.slab_slots = 16;
  for (int i = 0; i < cluster.prefill_workers; ++i)
    swarm.workers.push_back(
        Worker(Role::kPrefill, cluster.step_us, cluster.token_us, cluster.pair_us));
  for (int i = 0; i < cluster.decode_workers; ++i)
    swarm.workers.push_back(Worker(Role::kDecode, cluster.decode_step_us, cluster.decode_token_us,
                                   cluster.decode_pair_us));
  swarm.router = cluster.router;
  swarm.n_requests = static_cast<int>(requests.size());
  for (const LoadRequest& request : requests) {
    swarm.script.push_back({.arrives_us = static_cast<int64_t>(request.start_s * 1e6),
                            .prompt = request.prompt,
                            .max_tokens = request.max_tokens});
    swarm.max_prompt = std::max(swarm.max_prompt, static_cast<int>(request.prompt.size()));
    swarm.max_tokens = std::max(swarm.max_tokens, request.max_tokens);
  }
  Outcome outcome = RunSwarm(swarm);
  return {.ttfts = std::move(outcome.ttfts),
          .relays = outcome.faults.relays,
          .foretold = std::move(outcome.foretold),
          .wanted = std::move(outcome.wanted),
          .violation = std::move(outcome.violation)};
}

}  // namespace baton::sim
