#include "planner/plan_record.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/check.h"

namespace baton {
namespace {

constexpr double kNewShare = 0.25;  // of the newest prompt in an average

}  // namespace

PlanRecord::Key PlanRecord::KeyOf(int tokens, int ranks) {
  return {std::bit_width(static_cast<unsigned>(tokens)), ranks};
}

void PlanRecord::Add(int tokens, int ranks, double predicted, double actual, double alone) {
  CHECK(tokens > 0 && ranks > 0 && predicted > 0 && alone > 0);
  const Key key = KeyOf(tokens, ranks);
  for (auto it = buckets_.lower_bound({key.first, 0});
       it != buckets_.end() && it->first.first == key.first; ++it)
    it->second.barred = std::max(0, it->second.barred - 1);
  Bucket& bucket = buckets_[key];
  bucket.error += kNewShare * (std::abs(actual / predicted - 1) - bucket.error);
  if (ranks == 1) return;
  const double of_alone = actual / alone;
  bucket.of_alone =
      bucket.of_alone == 0 ? of_alone : bucket.of_alone + kNewShare * (of_alone - bucket.of_alone);
  if (bucket.of_alone <= 1) return;
  bucket.barred = kBarredPrompts;
  bucket.of_alone = 0;
}

double PlanRecord::error(int tokens, int ranks) const {
  const auto bucket = buckets_.find(KeyOf(tokens, ranks));
  return bucket == buckets_.end() ? kFirstError : bucket->second.error;
}

bool PlanRecord::barred(int tokens, int ranks) const {
  const auto bucket = buckets_.find(KeyOf(tokens, ranks));
  return bucket != buckets_.end() && bucket->second.barred > 0;
}

void PlanRecord::Refitted() {
  for (auto& [key, bucket] : buckets_) bucket.barred = 0;
}

}  // namespace baton
