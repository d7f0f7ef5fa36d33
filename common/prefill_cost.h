// Cost model of prefill (docs/PLANNER.md, cost): the constants of a worker, most of them of one
// layer. The worker fits them to its steps and reports them; plans predict with them. Plain values
// in seconds, tokens and bytes; pure functions, any thread.
#pragma once

namespace baton {

// (query, key) pairs that the attention kernel computes: visible pairs only, or all pairs with a
// mask (the paper's kernel, for reproduction).
enum class PairKernel { kCausal, kDenseMask };

// Pairs of `tokens` queries and their visible keys, behind `before` earlier keys.
double CausalPairs(double tokens, double before);

struct PrefillCost {
  int n_layers = 1;
  double token = 0;         // seconds per token and layer in the linear layers; 0: not known
  double pair = 0;          // seconds per (query, key) pair and layer, all heads
  double extra_tokens = 0;  // loss of small batches in the linear layers, in tokens
  double min_linear = 0;    // seconds per layer: launches, or the weights read once
  double head = 0;          // seconds per prompt after the last layer
  double kv_bytes = 0;      // bytes of K and V of one token in one layer
  PairKernel kernel = PairKernel::kCausal;
  bool operator==(const PrefillCost&) const = default;

  bool is_known() const { return token > 0; }
  // Seconds of the linear layers of one layer.
  double Linear(double tokens) const;
  // Pairs of `tokens` queries that the kernel computes, behind `before` earlier keys.
  double Pairs(double tokens, double before) const;
  // Seconds of one layer of a slice of `tokens` behind `before` tokens.
  double Layer(double tokens, double before) const;
  // Seconds that so many tokens and pairs add to a step or slice that runs anyway, all layers.
  double Work(double tokens, double pairs) const;
  // Seconds of a whole prompt on one worker: `tokens` new tokens behind a cached prefix.
  double Alone(double tokens, double prefix) const;
};

}  // namespace baton
