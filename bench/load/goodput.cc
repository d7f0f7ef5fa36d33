#include "bench/load/goodput.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace baton {

double IdleFigures::TtftMs(int prompt_tokens) const {
  BATON_CHECK(!ttft.empty());
  const auto above = std::find_if(ttft.begin(), ttft.end(), [&](const IdleTtft& point) {
    return point.prompt_tokens >= prompt_tokens;
  });
  if (above == ttft.begin()) return above->ttft_ms;
  if (above == ttft.end()) return ttft.back().ttft_ms;
  const IdleTtft& low = *(above - 1);
  const double share = static_cast<double>(prompt_tokens - low.prompt_tokens) /
                       static_cast<double>(above->prompt_tokens - low.prompt_tokens);
  return low.ttft_ms + share * (above->ttft_ms - low.ttft_ms);
}

GoodputJudge::GoodputJudge(const GoodputLimits& limits, IdleFigures idle)
    : limits_(limits), idle_(std::move(idle)) {
  BATON_CHECK(!limits_.NeedsIdle() || !idle_.ttft.empty());
}

double GoodputJudge::TtftLimitMs(int prompt_tokens) const {
  return limits_.ttft_x > 0 ? limits_.ttft_x * idle_.TtftMs(prompt_tokens) : limits_.ttft_ms;
}

double GoodputJudge::GapLimitMs() const {
  return limits_.gap_x > 0 ? limits_.gap_x * idle_.step_ms : limits_.gap_ms;
}

Verdict GoodputJudge::Judge(const Outcome& out) const {
  if (!out.ok && !out.cut) return Verdict::kBad;
  const double to_first_ms =
      out.chunk_times.empty() ? absl::ToDoubleMilliseconds(out.ended - out.sent) : out.ttft_ms();
  const bool in_time = out.lag_ms + to_first_ms <= TtftLimitMs(out.n_prompt);
  if (!in_time || OwnGapMs(out) > GapLimitMs()) return Verdict::kBad;
  return out.ok ? Verdict::kGood : Verdict::kUnjudged;
}

double OwnGapMs(const Outcome& out) { return Distribution(out.gaps_ms()).percentile(99); }

}  // namespace baton
