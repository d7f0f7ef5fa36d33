// Cuts a prompt into slices for the ranks of a relay: slice i, contiguous, for rank i, by the
// closed form of docs/PLANNER.md, slices. Results do not depend on slice boundaries, only speed
// does. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/prefill_cost.h"
#include "planner/chain_link.h"

namespace baton {

// Slices of equal time per layer: rank i works speeds[i] times as fast as `cost` says (1 =
// nominal), on `tokens` new tokens behind `prefix` cached ones. Returns (ranks) real-valued slices
// with the sum `tokens`; the cost of links is ignored.
std::vector<double> EqualWork(const PrefillCost& cost, double tokens, double prefix,
                              std::span<const double> speeds);

// EqualWork, corrected for slow links: the last link carries the KV of all slices but the last in
// every layer, so if it would take longer than the work, the last slice grows until both take the
// same time. handed_on: tokens of the prefix that only the first rank has cached, which links carry
// too.
std::vector<double> ClosedForm(const PrefillCost& cost, const ChainLink& link, double tokens,
                               double prefix, std::span<const double> speeds, double handed_on = 0);

// Rounds slices to whole pages, except the last, which ends the prompt and has at least one page;
// to whole key tiles or segments of attention if slices are long enough, so that few of them
// straddle two ranks. Returns (ranks) tokens, or fewer if a slice would be less than a page: plan
// again with that number of ranks.
std::vector<int> RoundSlices(std::span<const double> slices, int tokens, int page_tokens);

// Tokens of KV that the link behind rank i carries per layer, each once: (ranks - 1).
std::vector<int64_t> LinkTokens(std::span<const int> slices);

// An entry of a tuned table: the best ratios found for prompts of `tokens` tokens.
struct PartitionEntry {
  double tokens = 0;
  std::vector<double> ratios;  // (ranks), sum 1
};

// KVR-P of the paper (docs/PAPER.md, schemes): ratios interpolated between the two nearest entries,
// linear in tokens; the nearest entry's ratios outside the table. Entries ascend in tokens and have
// the same number of ranks.
std::vector<double> InterpolateRatios(std::span<const PartitionEntry> table, double tokens);

}  // namespace baton
