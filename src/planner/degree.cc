#include "planner/degree.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/check.h"
#include "planner/chain_estimate.h"
#include "planner/partition.h"

namespace baton {
namespace {

constexpr double kErrorShare = 0.25;  // of the newest prompt in error()

// The first `ranks` workers together; nothing where the prompt is too short for so many.
Degree Together(const PrefillCost& cost, const ChainLink& link,
                std::span<const OfferedWorker> workers, const DegreeRequest& request) {
  std::vector<double> speeds;
  double begin = 0;
  for (const OfferedWorker& worker : workers) {
    speeds.push_back(worker.speed);
    begin = std::max(begin, worker.seconds);
  }
  const std::vector<double> exact = ClosedForm(cost, link, request.tokens, request.prefix, speeds);
  Degree degree;
  degree.slices = RoundSlices(exact, request.tokens, request.page_tokens);
  if (degree.slices.size() < workers.size()) return {};
  const std::vector<double> slices(degree.slices.begin(), degree.slices.end());
  degree.seconds = begin + ChainSeconds(cost, link, slices, request.prefix, speeds);
  return degree;
}

}  // namespace

PlanRecord::Key PlanRecord::KeyOf(int tokens, int ranks) {
  return {std::bit_width(static_cast<unsigned>(tokens)), ranks};
}

void PlanRecord::Add(int tokens, int ranks, double predicted, double actual, double alone) {
  CHECK(tokens > 0 && predicted > 0);
  Bucket& bucket = buckets_[KeyOf(tokens, ranks)];
  bucket.error += kErrorShare * (std::abs(actual / predicted - 1) - bucket.error);
  bucket.barred = ranks > 1 && actual > alone;
}

double PlanRecord::error(int tokens, int ranks) const {
  const auto bucket = buckets_.find(KeyOf(tokens, ranks));
  return bucket == buckets_.end() ? kFirstError : bucket->second.error;
}

bool PlanRecord::barred(int tokens, int ranks) const {
  const auto bucket = buckets_.find(KeyOf(tokens, ranks));
  return bucket != buckets_.end() && bucket->second.barred;
}

void PlanRecord::Refitted() {
  for (auto& [key, bucket] : buckets_) bucket.barred = false;
}

Degree ChooseDegree(const PrefillCost& cost, const ChainLink& link, const PlanRecord& record,
                    std::span<const OfferedWorker> offered, const DegreeRequest& request) {
  CHECK(!offered.empty() && request.tokens > 0);
  const double nominal = cost.Alone(request.tokens, request.prefix);
  Degree best;
  for (size_t i = 0; i < offered.size(); ++i) {
    const double seconds = offered[i].seconds + nominal / offered[i].speed;
    if (i > 0 && seconds >= best.seconds) continue;
    best = {.first = static_cast<int>(i), .slices = {request.tokens}, .seconds = seconds};
  }
  const double alone = best.seconds;
  double least = alone;
  for (size_t ranks = 2; ranks <= offered.size(); ++ranks) {
    const int n = static_cast<int>(ranks);
    if (record.barred(request.tokens, n)) continue;
    const std::span<const OfferedWorker> workers = offered.first(ranks);
    Degree relay = Together(cost, link, workers, request);
    if (relay.slices.empty()) break;
    double waits = 0, work = 0;  // all ranks are taken until the last is done
    for (const OfferedWorker& worker : workers) waits = std::max(waits, worker.seconds);
    for (const OfferedWorker& worker : workers) {
      work += (relay.seconds - std::min(waits, worker.seconds)) * worker.speed;
    }
    const double delay = std::max(0.0, work - nominal) * request.waiting;
    const double doubtful =
        relay.seconds + (relay.seconds - waits) * record.error(request.tokens, n) + delay;
    if (doubtful >= least) continue;
    least = doubtful;
    best = std::move(relay);
  }
  best.alone = alone;
  return best;
}

}  // namespace baton
