#include "router/pool_sizing.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace baton {
namespace {

constexpr absl::Duration kUpdatePeriod = absl::Seconds(1);
constexpr int kMaxWorkers = 1'000'000;  // what costs without sense may ask for at most
// Rate of requests or ends per second below which the last one is hundreds of windows ago, and
// means of them mean nothing.
constexpr double kForgotten = 1e-200;

// The most rows whose step takes at most `gap` seconds.
double RowsWithin(double gap, const StepCost& step, double context) {
  const double room = gap - step.base, row = step.row + step.key * context;
  if (row <= 0) return room >= 0 ? std::numeric_limits<double>::infinity() : 0;
  return std::floor(room / row);
}

// Also of figures that no int holds.
int WholeWorkers(double workers) {
  if (workers >= kMaxWorkers) return kMaxWorkers;
  return workers > 1 ? static_cast<int>(std::ceil(workers)) : 1;
}

}  // namespace

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
  has_ended_ = true;
  ended_.Add(1, now);
  generated_.Add(n_generated, now);
  contexts_.Add(n_prompt + n_generated, now);
}

void PoolSizing::Update(const Worker& worker, absl::Time now) {
  if (now < next_update_) return;
  if (watched_since_ == absl::InfiniteFuture()) watched_since_ = now;
  next_update_ = now + kUpdatePeriod;
  // A router that has just begun knows neither the load nor how long answers are: what it says now
  // would take workers away that are busy.
  if (!has_ended_ || now - watched_since_ < options_.window) return;
  if (worker.prefill.is_known()) prefill_ = Settled(PrefillWorkers(worker, now), prefill_);
  if (!worker.step.is_known() || worker.max_batch <= 0) return;
  const std::optional<double> decode = DecodeWorkers(worker, now);
  if (decode) decode_ = Settled(*decode, decode_);
}

// Seconds of work that come per second.
double PoolSizing::PrefillWorkers(const Worker& worker, absl::Time now) const {
  return worker.prefill.Work(prompts_.PerSecond(now), pairs_.PerSecond(now)) / options_.busy;
}

// Requests that come per second, each as long as those that ended: their tokens over the tokens
// that a worker makes per second with as many rows as the gap, its batch and its pages allow.
std::optional<double> PoolSizing::DecodeWorkers(const Worker& worker, absl::Time now) const {
  const double came = requests_.PerSecond(now), ended = ended_.PerSecond(now);
  if (came < kForgotten) return 0;
  if (ended < kForgotten) return std::nullopt;
  const double length = generated_.PerSecond(now) / ended;
  const double context = std::max(1.0, contexts_.PerSecond(now) / ended);
  const double gap = absl::ToDoubleSeconds(options_.gap);
  const double pages = std::ceil(context / std::max(1, worker.page_tokens));
  const double rows = std::max(
      1.0, std::min({static_cast<double>(worker.max_batch), std::floor(worker.pages_total / pages),
                     RowsWithin(gap, worker.step, context)}));
  const double per_second = rows / worker.step.Seconds(rows, rows * context);
  return came * length / per_second / options_.busy;
}

// More at once, fewer only when there is some room below.
int PoolSizing::Settled(double workers, int before) const {
  const int needed = WholeWorkers(workers);
  const int with_room = WholeWorkers(workers * (1 + options_.spare));
  return needed > before || with_room < before ? needed : before;
}

}  // namespace baton
