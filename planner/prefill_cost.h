// What one layer of prefill costs a worker, and what a link costs: the fitted constants that the
// partition and the choice of a degree work with (docs/PLANNER.md, cost). Plain values in seconds,
// tokens and bytes; pure functions, any thread.
#pragma once

#include <limits>

namespace baton {

// Which (query, key) pairs the attention kernel computes: those a query sees, or all of them with a
// mask (the paper's kernel, for reproduction).
enum class PairKernel { kCausal, kDenseMask };

// Pairs of `tokens` queries and the keys they see behind `before` keys.
double CausalPairs(double tokens, double before);

struct PrefillCost {
  int n_layers = 1;
  double token = 0;         // seconds per token and layer in the linear layers
  double pair = 0;          // seconds per (query, key) pair and layer, all heads
  double extra_tokens = 0;  // what a small batch loses in the linear layers, as tokens
  double min_linear = 0;    // seconds: launches, or the weights read once
  double head = 0;          // seconds per prompt after the last layer
  double kv_bytes = 0;      // of K and V of one token in one layer
  PairKernel kernel = PairKernel::kCausal;

  double Linear(double tokens) const;
  // Pairs of `tokens` queries behind `before` keys.
  double Pairs(double tokens, double before) const;
  // One layer of a slice of `tokens` behind `before` tokens.
  double Layer(double tokens, double before) const;
  // A whole prompt on one worker: `tokens` new ones behind a cached prefix.
  double Alone(double tokens, double prefix) const;
};

struct ChainLink {  // free, unless it is known better
  double bytes_per_second = std::numeric_limits<double>::infinity();  // of one direction
  double latency = 0;                                                 // seconds per message
};

}  // namespace baton
