#include "router/output_record.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace baton {
namespace {

constexpr double kKeep = .995;  // weight of a request after one more: about 200 count
constexpr double kQuantile = .75;
constexpr double kOctave = 4;  // buckets
constexpr double kNone = 1e-3;

// Returns the end of a bucket, where the next one begins.
double EndOf(int bucket) { return std::exp2((bucket + 1) / kOctave); }

}  // namespace

void OutputRecord::Add(int32_t tokens) {
  BATON_CHECK(tokens > 0);
  for (double& weight : weights_) weight *= kKeep;
  const int bucket = static_cast<int>(kOctave * std::log2(tokens));
  weights_[static_cast<size_t>(std::min(bucket, kBuckets - 1))] += 1;
  n_ended_ = std::min(n_ended_ + 1, kFirst);
}

int32_t OutputRecord::Left(int32_t made, int32_t left) const {
  if (n_ended_ < kFirst || left <= 1) return left;
  int bucket = 0;
  while (bucket < kBuckets && EndOf(bucket) <= made + 1) ++bucket;
  double beyond = 0;  // weight of requests that brought more
  for (int i = bucket; i < kBuckets; ++i) beyond += weights_[static_cast<size_t>(i)];
  if (beyond < kNone) return std::clamp(made, 1, left);
  double so_far = 0;
  for (; bucket + 1 < kBuckets; ++bucket)
    if ((so_far += weights_[static_cast<size_t>(bucket)]) >= kQuantile * beyond) break;
  return static_cast<int32_t>(std::clamp<double>(EndOf(bucket) - made, 1, left));
}

}  // namespace baton
