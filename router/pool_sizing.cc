#include "router/pool_sizing.h"

#include <algorithm>
#include <cmath>

namespace baton {

void RecentRate::Add(double amount, absl::Time now) {
  if (began_ == absl::InfiniteFuture()) began_ = at_ = now;
  sum_ = sum_ * std::exp(-absl::FDivDuration(now - at_, window_)) + amount;
  at_ = now;
}

double RecentRate::PerSecond(absl::Time now) const {
  if (began_ == absl::InfiniteFuture()) return 0;
  const double left = sum_ * std::exp(-absl::FDivDuration(now - at_, window_));
  // In the beginning less than a window has been seen, but a second at least: one request is no
  // rate.
  const absl::Duration seen = std::max(now - began_, absl::Seconds(1));
  return left / (absl::ToDoubleSeconds(window_) * -std::expm1(-absl::FDivDuration(seen, window_)));
}

void PoolSizing::OnRequest(double tokens, double pairs, absl::Time now) {
  requests_.Add(1, now);
  prompts_.Add(tokens, now);
  pairs_.Add(pairs, now);
}

void PoolSizing::OnEnded(int32_t n_prompt, int32_t n_generated, absl::Time now) {
  ended_.Add(1, now);
  generated_.Add(n_generated, now);
  contexts_.Add(n_prompt + n_generated, now);
}

void PoolSizing::Update(const Worker& worker, absl::Time now) {
  if (worker.prefill.is_known()) prefill_ = Settled(PrefillWorkers(worker, now), prefill_);
  if (worker.step.is_known() && worker.max_batch > 0)
    decode_ = Settled(DecodeWorkers(worker, now), decode_);
}

// Seconds of work that come per second.
double PoolSizing::PrefillWorkers(const Worker& worker, absl::Time now) const {
  return worker.prefill.Work(prompts_.PerSecond(now), pairs_.PerSecond(now)) / options_.busy;
}

// Requests that come per second, each as long as those that ended: their tokens over the tokens
// that a worker makes per second with as many rows as the gap, its batch and its pages allow.
double PoolSizing::DecodeWorkers(const Worker& worker, absl::Time now) const {
  const double ended = ended_.PerSecond(now);
  if (ended <= 0) return 0;
  const double length = generated_.PerSecond(now) / ended;
  const double context = std::max(1.0, contexts_.PerSecond(now) / ended);
  const double gap = absl::ToDoubleSeconds(options_.gap);
  const double pages = std::ceil(context / std::max(1, worker.page_tokens));
  double rows = std::min<double>(worker.max_batch, std::floor(worker.pages_total / pages));
  rows = std::max(1.0, rows);
  while (rows > 1 && worker.step.Seconds(rows, rows * context) > gap) --rows;
  const double per_second = rows / worker.step.Seconds(rows, rows * context);
  return requests_.PerSecond(now) * length / per_second / options_.busy;
}

// More at once, fewer only when there is some room below.
int PoolSizing::Settled(double workers, int before) const {
  const int needed = std::max(1, static_cast<int>(std::ceil(workers)));
  const int with_room = static_cast<int>(std::ceil(workers * (1 + options_.spare)));
  return needed > before || with_room < before ? needed : before;
}

}  // namespace baton
