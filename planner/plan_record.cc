#include "planner/plan_record.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/check.h"

namespace baton {
namespace {

constexpr double kNewShare = 0.25;  // weight of the newest prompt in an average

}  // namespace

PlanRecord::Key PlanRecord::KeyOf(int tokens, int ranks) {
  return {std::bit_width(static_cast<unsigned>(tokens)), ranks};
}

void PlanRecord::Add(int tokens, int ranks, const Outcome& outcome) {
  const auto [predicted, actual, alone, was_shared] = outcome;
  BATON_CHECK(tokens > 0 && ranks > 0 && predicted > 0 && alone > 0);
  const Key key = KeyOf(tokens, ranks);
  for (auto it = buckets_.lower_bound({key.first, 0});
       it != buckets_.end() && it->first.first == key.first; ++it)
    it->second.barred = std::max(0, it->second.barred - 1);
  Bucket& bucket = buckets_[key];
  if (!was_shared) {
    bucket.error += kNewShare * (std::abs(actual / predicted - 1) - bucket.error);
    bucket.slowness += kNewShare * (actual / predicted - bucket.slowness);
  }
  const double of_alone = actual / alone;
  bucket.of_alone =
      bucket.of_alone == 0 ? of_alone : bucket.of_alone + kNewShare * (of_alone - bucket.of_alone);
  if (ranks == 1) return;
  const auto single = buckets_.find({key.first, 1});
  const double single_of_alone = single == buckets_.end() ? 0 : single->second.of_alone;
  if (bucket.of_alone <= std::max(1.0, single_of_alone)) return;
  bucket.barred = kBarredPrompts;
  bucket.of_alone = 0;
}

double PlanRecord::error(int tokens, int ranks) const {
  const auto bucket = buckets_.find(KeyOf(tokens, ranks));
  return bucket == buckets_.end() ? kFirstError : bucket->second.error;
}

double PlanRecord::slowness(int tokens, int ranks) const {
  const auto bucket = buckets_.find(KeyOf(tokens, ranks));
  return bucket == buckets_.end() ? 1 : std::max(1.0, bucket->second.slowness);
}

bool PlanRecord::barred(int tokens, int ranks) const {
  const auto bucket = buckets_.find(KeyOf(tokens, ranks));
  return bucket != buckets_.end() && bucket->second.barred > 0;
}

void PlanRecord::Refitted() {
  for (auto& [key, bucket] : buckets_) bucket.barred = 0;
}

}  // namespace baton
