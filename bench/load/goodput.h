// Which requests of a load run are good: their first token came in time, and so did their tokens
// after it. A mean over tokens would hide a stall, so the 99th percentile of a request's own gaps
// is judged. Limits are milliseconds, or multiples of what the server takes when it is idle.
#pragma once

#include <vector>

#include "bench/load/load_client.h"

namespace baton {

// Time to first token of an idle server for a prompt that it has no KV of.
struct IdleTtft {
  int prompt_tokens = 0;
  double ttft_ms = 0;
};

struct IdleFigures {
  std::vector<IdleTtft> ttft;  // ascending in prompt_tokens, at least one
  double step_ms = 0;          // median gap between tokens of a lone request

  // Linear between the lengths that were measured; beyond them the figure of the nearest one.
  double TtftMs(int prompt_tokens) const;
};

struct GoodputLimits {
  double ttft_ms = 1000, gap_ms = 100;
  double ttft_x = 0, gap_x = 0;  // above 0: times the idle figure, in place of the milliseconds
  bool NeedsIdle() const { return ttft_x > 0 || gap_x > 0; }
};

enum class Verdict { kGood, kBad, kUnjudged };

class GoodputJudge {
 public:
  GoodputJudge(const GoodputLimits& limits, IdleFigures idle);

  // The time to first token counts from when the request was due, so a late client hides nothing.
  // A failed request is bad. One that the run's end has cut is bad if it has broken a limit by
  // then, and is left out otherwise.
  Verdict Judge(const Outcome& out) const;
  double TtftLimitMs(int prompt_tokens) const;
  double GapLimitMs() const;

  const GoodputLimits& limits() const { return limits_; }
  const IdleFigures& idle() const { return idle_; }  // empty: limits are milliseconds

 private:
  GoodputLimits limits_;
  IdleFigures idle_;
};

// Returns the 99th percentile of a request's own gaps; 0: it has no two tokens.
double OwnGapMs(const Outcome& out);

}  // namespace baton
