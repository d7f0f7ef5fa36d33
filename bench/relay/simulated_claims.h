// Checks the paper's claims and Baton's about the relay on simulated workers (docs/PAPER.md,
// claims): statements with a value and the line it has to meet. Claims about numbers, memory and
// bits need real workers and are not here. Pure functions, any thread.
#pragma once

#include <span>
#include <vector>

#include "bench/relay/simulated_schemes.h"

namespace baton {

// Returns R1 to R6, R8, R9, R11, R12 on the paper's machine; takes some seconds.
std::vector<RelayClaim> PaperClaims();
// Returns R10: the extra time of schemes while other traffic runs between two neighbours. Mean over
// 8k, 12k, 16k and `seeds` seeds.
std::vector<RelayClaim> NoiseClaims(int ranks, int seeds);
// Returns the distance of the closed form from the search, over results that have both: the share
// of cells within 3 %, the mean and the worst.
std::vector<RelayClaim> ClosedFormClaims(std::span<const RelayResult> results);

// The regret of the planner, after it has learned from the same prompts: its choice against the
// best number of workers and partition found by simulating all of them.
struct Regret {
  int cells = 0;
  double mean = 0, worst = 0;      // chosen / best - 1
  double worst_against_alone = 0;  // chosen / one worker - 1
  std::string worst_cell;
};
Regret PlannerRegret(const NamedCluster& cluster, std::span<const double> links,
                     std::span<const double> tokens, int max_ranks);

}  // namespace baton
