#include "planner/degree.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "common/check.h"
#include "planner/chain_estimate.h"
#include "planner/partition.h"

namespace baton {
namespace {

// The slowest of the links from each rank to the next.
ChainLink SlowestLink(std::span<const OfferedWorker> offered, std::span<const int> ranks) {
  ChainLink slowest;
  for (size_t i = 0; i + 1 < ranks.size(); ++i) {
    const OfferedWorker& from = offered[static_cast<size_t>(ranks[i])];
    const ChainLink& link =
        from.links.empty() ? from.link : from.links[static_cast<size_t>(ranks[i + 1])];
    slowest.bytes_per_second = std::min(slowest.bytes_per_second, link.bytes_per_second);
    slowest.latency = std::max(slowest.latency, link.latency);
  }
  return slowest;
}

// Real-valued; none where the table has none.
std::vector<double> Slices(const PrefillCost& cost, const ChainLink& link,
                           const DegreeRequest& request, std::span<const double> speeds) {
  switch (request.mode) {
    case PartitionMode::kTable:
      return request.table->Slices(request.tokens, static_cast<int>(speeds.size()));
    case PartitionMode::kEven:
      return std::vector<double>(speeds.size(),
                                 request.tokens / static_cast<double>(speeds.size()));
    case PartitionMode::kClosed:
      break;
  }
  return ClosedForm(cost, link, request.tokens, request.prefix, speeds);
}

// These workers together, in their order; no ranks where a slice would be too short or too long.
// Seconds from when all of them could begin.
Degree Together(const PrefillCost& cost, std::span<const OfferedWorker> offered,
                std::vector<int> ranks, const DegreeRequest& request) {
  std::vector<double> speeds;
  for (const int rank : ranks) speeds.push_back(offered[static_cast<size_t>(rank)].speed);
  const ChainLink link = SlowestLink(offered, ranks);
  const std::vector<double> exact = Slices(cost, link, request, speeds);
  if (exact.empty()) return {};
  Degree degree;
  degree.slices = RoundSlices(exact, request.tokens, request.page_tokens);
  if (degree.slices.size() < ranks.size()) return {};
  for (size_t i = 0; i < ranks.size(); ++i)
    if (degree.slices[i] > offered[static_cast<size_t>(ranks[i])].most_tokens) return {};
  const std::vector<double> slices(degree.slices.begin(), degree.slices.end());
  std::vector<ChainLink> sinks;
  for (const int rank : ranks) sinks.push_back(offered[static_cast<size_t>(rank)].sink);
  const PushedChain chain{slices, static_cast<double>(request.prefix), speeds, link, sinks};
  const PushChoice push =
      request.push ? PushBy(*request.push, cost, chain) : ChoosePush(cost, chain);
  degree.push = push.push;
  degree.seconds = ChainSeconds(cost, link, slices, request.prefix, speeds) + push.delay;
  degree.ranks = std::move(ranks);
  return degree;
}

Degree Alone(const PrefillCost& cost, std::span<const OfferedWorker> offered,
             const DegreeRequest& request) {
  const double nominal = cost.Alone(request.tokens, request.prefix);
  Degree best;
  for (int i = 0; i < static_cast<int>(offered.size()); ++i) {
    const OfferedWorker& worker = offered[static_cast<size_t>(i)];
    if (request.must >= 0 && i != request.must) continue;
    const double seconds = worker.seconds + nominal / worker.speed;
    if (best.ranks.empty() || seconds < best.seconds) {
      best = {.ranks = {i},
              .slices = {request.tokens},
              .seconds = seconds,
              .begin = worker.seconds,
              .alone = seconds};
    }
  }
  return best;
}

// The workers in the order in which they could begin, `must` first.
std::vector<int> SoonestFirst(std::span<const OfferedWorker> offered, int must) {
  std::vector<int> order(offered.size());
  std::iota(order.begin(), order.end(), 0);
  const auto rank = [&](int i) {
    const OfferedWorker& worker = offered[static_cast<size_t>(i)];
    return std::tuple(i != must, worker.slice_seconds, -worker.speed, i);
  };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return rank(a) < rank(b); });
  return order;
}

}  // namespace

Degree ChooseDegree(const PrefillCost& cost, const PlanRecord& record,
                    std::span<const OfferedWorker> offered, const DegreeRequest& request) {
  CHECK(!offered.empty() && request.tokens > 0);
  Degree best = Alone(cost, offered, request);
  const double alone = best.seconds;
  const double alone_work = cost.Alone(request.tokens, request.prefix);
  const OfferedWorker& single = offered[static_cast<size_t>(best.ranks.front())];
  const double alone_delayed = alone_work / single.speed * single.passed;
  const bool forced = request.min_ranks > 1;
  double least = forced ? std::numeric_limits<double>::infinity() : alone;  // with doubts
  const std::vector<int> soonest = SoonestFirst(offered, request.must);
  const int most = std::min(request.max_ranks, static_cast<int>(offered.size()));
  for (int n = std::max(2, request.min_ranks); n <= most; ++n) {
    if (!forced && record.barred(request.tokens, n)) continue;
    std::vector<int> ranks(soonest.begin(), soonest.begin() + n);
    std::sort(ranks.begin(), ranks.end(), [&](int a, int b) {
      return offered[static_cast<size_t>(a)].place < offered[static_cast<size_t>(b)].place;
    });
    Degree relay = Together(cost, offered, std::move(ranks), request);
    if (relay.ranks.empty()) continue;
    const double slowness = record.slowness(request.tokens, n);
    double work = 0;     // a rank is taken until the last one is done
    double delayed = 0;  // of what others wait because of it, in all
    for (const int rank : relay.ranks) {
      const OfferedWorker& worker = offered[static_cast<size_t>(rank)];
      relay.begin = std::max(relay.begin, worker.slice_seconds);
      work += relay.seconds * slowness * worker.speed;
      delayed += relay.seconds * slowness * worker.passed;
    }
    const double doubt = relay.seconds * record.error(request.tokens, n) +
                         std::max(0.0, work - alone_work) * request.waiting +
                         std::max(0.0, delayed - alone_delayed);
    relay.seconds += relay.begin;
    if (relay.seconds + doubt >= least) continue;
    least = relay.seconds + doubt;
    best = std::move(relay);
  }
  best.alone = alone;
  return best;
}

}  // namespace baton
