// Cost model of steps that carry decode rows (docs/PLANNER.md, steps). The worker fits it to its
// steps and reports it; plans predict with it, and the worker bounds mixed steps by it. Plain
// values in seconds; pure functions, any thread.
#pragma once

namespace baton {

struct StepCost {
  double base = 0;    // of any step: the weights are read once
  double row = 0;     // per row
  double key = 0;     // per key that a row reads: a token of its KV
  double beside = 1;  // seconds of prompt tokens beside rows, per second in steps of their own
  bool operator==(const StepCost&) const = default;

  bool is_known() const { return base + row > 0; }
  // Seconds of a step of `rows` rows that read `keys` keys in all.
  double Seconds(double rows, double keys) const { return base + row * rows + key * keys; }
};

}  // namespace baton
